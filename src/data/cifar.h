// CIFAR's binary files: records of one label (CIFAR-10) or two (CIFAR-100: coarse, fine), then the
// planes of red, green and blue, 32 x 32 each.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/on_error.h"
#include "data/source.h"

namespace pl {

enum class CifarKind : uint8_t { cifar10, cifar100, cifar100_coarse };

// Files of one kind, behind each other. They stay on disk. DataError for what is no whole number of
// records, since nobody knows where they begin; with OnError::skip it is that of one record, and
// the file has no others.
class CifarFiles {
 public:
  CifarFiles(const std::vector<std::string>& files, CifarKind kind,
             OnError on_error = OnError::stop);
  int64_t size() const { return ends_.back(); }
  int64_t classes() const { return classes_; }
  const std::string& path() const { return files_[0].path(); }
  // The label; the pixels go to `x`, (32, 32, 3), unless it is null. Any thread. Throws DataError
  // for a label that is none.
  int32_t read(int64_t i, uint8_t* x) const;

 private:
  std::vector<File> files_;
  std::vector<int64_t> ends_;  // of each file's records
  DamagedPlaces damaged_;
  int64_t classes_;
  Bytes labels_, label_at_;  // bytes before the pixels, and which of them counts
};

// x uint8 (32, 32, 3), y int32 ().
std::unique_ptr<Source> cifar_source(const std::vector<std::string>& files, CifarKind kind,
                                     OnError on_error = OnError::stop);

// A folder with data_batch_1.bin and its fellows, or train.bin and test.bin. Both empty: it has
// neither.
Sources cifar_sources(const std::string& folder, OnError on_error = OnError::stop);

}  // namespace pl
