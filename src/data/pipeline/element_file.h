// Elements in a file, by number. While it is written it has no name; an index and a footer at its
// end make it one that other runs can open. What was cut off or damaged is never taken for whole.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/growing_file.h"
#include "data/pipeline/spec.h"

namespace pl {

class ElementFileWriter {
 public:
  // `stage` is for messages. Throws UserError when the folder cannot be written.
  ElementFileWriter(const ElementSpec& spec, const std::string& folder, const std::string& stage);

  bool has(int64_t i) const { return i < prefix_ || (i < numbers_ && place(i) > 0); }
  int64_t count() const { return count_; }
  void put(int64_t i, const Element& element);  // once for each number
  Element read(int64_t i) const;
  // All numbers from 0 on have been put: writes the index, and gives it its name. `key`: what
  // open() must ask for.
  void publish(const std::string& path, uint64_t key);

 private:
  ByteOffset place(int64_t i) const;  // 0: not there

  const ElementSpec& spec_;
  GrowingFile file_;
  // Where elements are, by number (u64): in a file too, so that any number of them takes no memory.
  // None where all have one size: the places follow from it.
  std::optional<GrowingFile> index_;
  Bytes each_ = 0;  // of one in the file; 0: they differ
  ByteOffset end_;
  Bytes largest_ = 0;
  int64_t count_ = 0, numbers_ = 0;  // that were put; the largest number and one
  int64_t prefix_ = 0;               // all before are there
};

// A whole one. Holds nothing: index and elements stay on disk.
class ElementFile {
 public:
  // Nothing: there is no such file. Throws DataError unless it is whole, of this spec and key.
  static std::unique_ptr<const ElementFile> open(const std::string& path, const ElementSpec& spec,
                                                 uint64_t key);
  int64_t count() const { return count_; }
  Bytes largest() const { return largest_; }  // element, in bytes of the ledger
  Element read(int64_t i) const;              // any thread; throws DataError for a damaged one

 private:
  ElementFile(File file, const ElementSpec& spec) : file_(std::move(file)), spec_(spec) {}

  File file_;
  const ElementSpec spec_;
  int64_t count_ = 0;
  ByteOffset index_at_ = 0;
  Bytes largest_ = 0;
};

}  // namespace pl
