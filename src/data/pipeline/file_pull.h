// What sources over files share. Elements of one file after another, for generator_stage: after an
// error that concerns one element alone the file is read on; after any other one the rest of the
// file is left out, and the next file begins.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/pipeline/stages.h"

namespace pl {

inline ElementSpec bytes_spec(const char* name) {
  return {{{name, Dtype::uint8, Shape{kUnknown}}}};
}
inline Tensor bytes_tensor(Bytes bytes) { return Tensor(Meta{Dtype::uint8, Shape{bytes}}); }
inline Tensor bytes_tensor(std::string_view text) {
  Tensor tensor = bytes_tensor(static_cast<Bytes>(text.size()));
  if (!text.empty()) std::memcpy(tensor.data(), text.data(), text.size());
  return tensor;
}

inline void require_files(const std::vector<std::string>& files, const char* what) {
  if (files.empty())
    throw UserError("[data] " + std::string(what) +
                    ": expected files, received none; list_files(pattern) finds them");
}

class FileReader {
 public:
  virtual ~FileReader() = default;
  virtual std::optional<Element> next() = 0;  // nothing: the file's end
  // Of an exception that next() raised: the next call goes on behind it.
  virtual bool goes_on() const { return false; }
};
using OpenFile = std::function<std::unique_ptr<FileReader>(const std::string& path)>;

inline Pull pull_files(std::vector<std::string> files, OpenFile open) {
  return [files = std::move(files), open = std::move(open), file = size_t{0},
          reader = std::shared_ptr<FileReader>()]() mutable -> std::optional<Element> {
    for (; file < files.size(); ++file, reader.reset()) {
      try {
        if (!reader) reader = open(files[file]);
        if (std::optional<Element> made = reader->next()) return made;
      } catch (...) {
        if (!reader || !reader->goes_on()) {
          reader.reset();
          ++file;
        }
        throw;
      }
    }
    return {};
  };
}

}  // namespace pl
