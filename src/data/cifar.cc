#include "data/cifar.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "data/function_source.h"

namespace pl {
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixels = 3 * kPlane;

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace

CifarFiles::CifarFiles(const std::vector<std::string>& files, CifarKind kind, OnError on_error)
    : classes_(kind == CifarKind::cifar10    ? 10
               : kind == CifarKind::cifar100 ? 100
                                             : 20),
      labels_(kind == CifarKind::cifar10 ? 1 : 2),
      label_at_(kind == CifarKind::cifar100 ? 1 : 0) {
  if (files.empty()) throw UserError("[cifar] expected files, received none");
  int64_t count = 0;
  for (const std::string& path : files) {
    files_.push_back(File::open(path));
    const Bytes record = labels_ + kPixels, size = files_.back().size();
    if (size > 0 && size % record == 0) {
      count += size / record;
    } else {
      const std::string why = "[cifar] " + path + ": expected records of " +
                              std::to_string(record) + " bytes, received a file of " +
                              std::to_string(size) + "; it is truncated or of another kind";
      if (on_error == OnError::stop) throw DataError(why);
      damaged_.add(count++, why);
    }
    ends_.push_back(count);
  }
}

int32_t CifarFiles::read(int64_t i, uint8_t* x) const {
  damaged_.raise(i);
  const auto at =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  const int64_t place = i - (at > 0 ? ends_[at - 1] : 0);
  uint8_t record[2 + kPixels];
  const Bytes bytes = labels_ + (x ? kPixels : 0);
  files_[at].pread_exact(record, bytes, place * (labels_ + kPixels));
  const int32_t label = record[label_at_];
  if (label >= classes_)
    throw DataError("[cifar] " + files_[at].path() + ": record " + std::to_string(place) +
                    ": expected a label from 0 to " + std::to_string(classes_ - 1) + ", received " +
                    std::to_string(label));
  for (int64_t p = 0; x && p < kPlane; ++p)
    for (int64_t c = 0; c < 3; ++c) x[3 * p + c] = record[labels_ + c * kPlane + p];
  return label;
}

std::unique_ptr<Source> cifar_source(const std::vector<std::string>& files, CifarKind kind,
                                     OnError on_error) {
  const auto open = std::make_shared<const CifarFiles>(files, kind, on_error);
  std::vector<Field> fields{
      {"x", {Dtype::uint8, Shape{kSide, kSide, 3}}, std::nullopt, Role::x},
      {"y", {Dtype::int32, Shape()}, ValueRange{0, open->classes() - 1}, Role::y}};
  return function_source(std::move(fields), open->size(),
                         [open](int64_t i, std::span<void* const> to) {
                           const int32_t label = open->read(i, static_cast<uint8_t*>(to[0]));
                           if (to[1]) *static_cast<int32_t*>(to[1]) = label;
                         });
}

Sources cifar_sources(const std::string& folder, OnError on_error) {
  Sources sources;
  std::vector<std::string> batches;
  for (int i = 1; exists(folder + "/data_batch_" + std::to_string(i) + ".bin"); ++i)
    batches.push_back(folder + "/data_batch_" + std::to_string(i) + ".bin");
  const bool ten = !batches.empty();
  const CifarKind kind = ten ? CifarKind::cifar10 : CifarKind::cifar100;
  if (!ten && exists(folder + "/train.bin")) batches.push_back(folder + "/train.bin");
  if (batches.empty()) return sources;
  sources.train = cifar_source(batches, kind, on_error);
  const std::string test = folder + (ten ? "/test_batch.bin" : "/test.bin");
  if (exists(test)) sources.test = cifar_source({test}, kind, on_error);
  return sources;
}

}  // namespace pl
