#include "execute/call_file.h"

#include <unistd.h>

#include <bit>
#include <charconv>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace pl {
namespace {

constexpr const char* kCallsVersion = "plimsoll calls 2";
constexpr size_t kMostCalls = 8192;  // of a cache; more are forgotten together
constexpr Bytes kLongestCallFile = 64 * kMiB;

class Described final : public Backend {
 public:
  explicit Described(const CallFile& file)
      : Backend({DeviceKind::cuda, 0}, 1, file.alignment),
        machine_(file.machine),
        numerics_(file.numerics),
        granule_(file.granule) {}
  std::string machine() const override { return machine_; }
  std::string numerics() const override { return numerics_; }
  bool on_host() const override { return false; }
  Bytes granule() const override { return granule_; }

 private:
  std::string machine_, numerics_;
  Bytes granule_;
};

// What stands before the next `end`; the text then begins behind it.
std::string_view take(std::string_view& text, char end, const std::string& path) {
  const size_t at = text.find(end);
  if (at == std::string_view::npos)
    throw DataError("[calls] " + path + ": expected a whole file, received one that is cut off");
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(at + 1);
  return word;
}

int64_t number(std::string_view word, const std::string& path) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < 0 ||
      value > int64_t{1} << 60)
    throw DataError("[calls] " + path + ": expected a number, received '" +
                    std::string(word.substr(0, 40)) + "'");
  return value;
}

}  // namespace

void write_calls(const std::string& path, const CallFile& file) {
  std::string text = std::string(kCallsVersion) + "\n" + file.machine + "\n" + file.numerics + "\n";
  for (Bytes number : {Bytes{file.deterministic}, file.held, file.alignment, file.granule})
    text += std::to_string(number) + "\n";
  for (const auto& [name, call] : file.calls)
    text += std::to_string(call.workspace) + "\t" +
            std::to_string(static_cast<int64_t>(call.ms * kPsPerMs)) + "\t" + call.key + "\t" +
            name + "\n";
  write_file_atomically(path, text);
}

CallFile read_calls(const std::string& path) {
  const std::string whole = read_text_file(path, kLongestCallFile);
  std::string_view text = whole;
  if (take(text, '\n', path) != kCallsVersion)
    throw DataError("[calls] " + path + ": expected a file of plan --calls, received another");
  CallFile file;
  file.machine = take(text, '\n', path);
  file.numerics = take(text, '\n', path);
  file.deterministic = number(take(text, '\n', path), path) != 0;
  for (Bytes* place : {&file.held, &file.alignment, &file.granule})
    *place = number(take(text, '\n', path), path);
  for (const Bytes power : {file.alignment, file.granule})
    if (power < 1 || power > kGiB || !std::has_single_bit(static_cast<uint64_t>(power)))
      throw DataError("[calls] " + path + ": expected an alignment and a granule of 2^n bytes, " +
                      "received " + std::to_string(power));
  while (!text.empty()) {
    KernelBook::Known call;
    call.workspace = number(take(text, '\t', path), path);
    call.ms = static_cast<double>(number(take(text, '\t', path), path)) / kPsPerMs;
    call.key = take(text, '\t', path);
    file.calls[std::string(take(text, '\n', path))] = std::move(call);
  }
  return file;
}

std::string calls_path(const KernelBook& book) {
  const std::string folder = cache_folder();
  if (folder.empty() || !book.times_calls()) return "";
  return folder + "/calls-" + hex16(xxh3(machine_text(book.backend()))) + ".txt";
}

void know_calls(KernelBook& book, const std::string& path) {
  if (path.empty() || ::access(path.c_str(), R_OK) != 0) return;
  try {
    CallFile file = read_calls(path);
    if (file.machine == book.backend().machine() && file.calls.size() <= kMostCalls)
      book.know(std::move(file.calls), false);
  } catch (const Error&) {
    // Of another version, or cut off: it is written anew.
  }
}

void keep_calls(const KernelBook& book, const std::string& path) {
  if (path.empty() || !book.asked()) return;
  try {
    make_directories(path.substr(0, path.rfind('/')));
    write_calls(path, {.machine = book.backend().machine(),
                       .numerics = book.backend().numerics(),
                       .alignment = book.backend().alignment(),
                       .granule = book.backend().granule(),
                       .calls = book.known_calls()});
  } catch (const Error&) {
    // As a cost table's: the next run asks again.
  }
}

std::unique_ptr<Backend> described_device(const CallFile& file) {
  return std::make_unique<Described>(file);
}

}  // namespace pl
