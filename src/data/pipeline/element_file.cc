// The file: a header; elements, each with a hash of itself in front, dimensions where the signature
// leaves them open, and its tensors' bytes; the places of all elements (u64); a footer.
// Little-endian.
#include "data/pipeline/element_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace pl {
namespace {

struct Header {
  char magic[8] = {'p', 'l', 'e', 'l', 'e', 'm', '1', 0};
  uint64_t key = 0;
};
struct Footer {
  uint64_t key = 0;
  int64_t count = 0;
  ByteOffset index_at = 0;
  Bytes largest = 0;
  uint64_t index_hash = 0;
  uint64_t hash = 0;  // of all above
  char magic[8] = {'p', 'l', 'e', 'l', 'e', 'n', 'd', 0};
};
static_assert(sizeof(Header) == 16 && sizeof(Footer) == 56);

// Of an element, as it stands in front of it: never 0, which is what a hole reads as.
uint64_t written(Xxh3& hash) {
  const uint64_t digest = hash.digest();
  return digest == 0 ? 1 : digest;
}

uint64_t hash_of(const Footer& footer) { return xxh3(&footer, offsetof(Footer, hash)); }

constexpr int64_t kIndexPiece = 1024;  // places read or written at a time

// The bytes of one element; `read(to, bytes)` gives them one after another, `left` are there at
// most. Throws DataError with `where` in front.
template <class Read>
Element read_element(const ElementSpec& spec, const Read& read, Bytes left,
                     const std::string& where) {
  uint64_t wanted = 0;
  Xxh3 hash;
  const auto take = [&](void* to, Bytes bytes) {
    if (bytes > left) throw DataError(where + ": expected more bytes than it has; it is damaged");
    read(to, bytes);
    left -= bytes;
  };
  take(&wanted, sizeof(wanted));
  Element out;
  for (const FieldSpec& field : spec.fields) {
    Shape shape = field.shape;
    if (!field.known()) {
      std::vector<Dim> dims(static_cast<size_t>(shape.rank()));
      const auto bytes = static_cast<Bytes>(dims.size() * sizeof(Dim));
      take(dims.data(), bytes);
      hash.update(dims.data(), static_cast<size_t>(bytes));
      for (int axis = 0; axis < shape.rank(); ++axis) {
        const Dim dim = dims[static_cast<size_t>(axis)];
        if (dim < 0 || (shape[axis] != kUnknown && shape[axis] != dim))
          throw DataError(where + ": expected " + field.text() + ", received a dimension of " +
                          std::to_string(dim) + "; it is damaged");
        shape[axis] = dim;
      }
    }
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    Bytes bytes = empty ? 0 : size_of(field.dtype);
    for (const Dim dim : shape) {
      const auto product = checked_mul(bytes, dim);
      if (!product || *product > left)
        throw DataError(where + ": expected " + field.text() + " within " + std::to_string(left) +
                        " bytes, received more; it is damaged");
      bytes = *product;
    }
    Tensor& tensor = out.emplace_back(Meta{field.dtype, shape});
    take(tensor.data(), bytes);
    hash.update(tensor.data(), static_cast<size_t>(bytes));
  }
  if (written(hash) != wanted)
    throw DataError(where + ": expected what was written, received other bytes; it is damaged");
  return out;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw DataError("[data] " + path + ": expected a whole snapshot of this pipeline, received " +
                  what + "; remove it, and it is written again");
}

}  // namespace

ElementFileWriter::ElementFileWriter(const ElementSpec& spec, const std::string& folder,
                                     const std::string& stage)
    : spec_(spec), file_(folder, "[data] " + stage), end_(sizeof(Header)) {
  if (!spec.known()) {
    index_.emplace(folder, "[data] " + stage);
    return;
  }
  each_ = sizeof(uint64_t);
  for (const FieldSpec& field : spec.fields) each_ += field.known_bytes();
}

ByteOffset ElementFileWriter::place(int64_t i) const {
  uint64_t word = 0;  // what nobody wrote reads as 0
  if (index_) {
    index_->read(&word, sizeof(word), i * 8);
    return static_cast<ByteOffset>(word);
  }
  const ByteOffset at = static_cast<ByteOffset>(sizeof(Header)) + i * each_;
  if (i >= prefix_) file_.read(&word, sizeof(word), at);
  return i < prefix_ || word != 0 ? at : 0;
}

void ElementFileWriter::put(int64_t i, const Element& element) {
  const ByteOffset begin = each_ > 0 ? static_cast<ByteOffset>(sizeof(Header)) + i * each_ : end_;
  ByteOffset at = begin + static_cast<Bytes>(sizeof(uint64_t));
  Xxh3 hash;
  const auto give = [&](const void* from, Bytes bytes) {
    if (bytes == 0) return;
    hash.update(from, static_cast<size_t>(bytes));
    file_.write(from, bytes, at);
    at += bytes;
  };
  for (size_t f = 0; f < element.size(); ++f) {
    const auto& dims = element[f].shape().dims();
    if (!spec_.fields[f].known()) give(dims.data(), static_cast<Bytes>(dims.size() * sizeof(Dim)));
    give(element[f].data(), element[f].meta().bytes());
  }
  const uint64_t digest = written(hash);
  file_.write(&digest, sizeof(digest), begin);
  const auto word = static_cast<uint64_t>(begin);
  if (index_) index_->write(&word, sizeof(word), i * 8);
  end_ = std::max(end_, at);
  largest_ = std::max(largest_, granted(element));
  ++count_;
  numbers_ = std::max(numbers_, i + 1);
  if (i == prefix_) ++prefix_;
  if (count_ == numbers_) prefix_ = count_;
}

Element ElementFileWriter::read(int64_t i) const {
  ByteOffset at = place(i);
  return read_element(
      spec_,
      [&](void* to, Bytes bytes) {
        file_.read(to, bytes, at);
        at += bytes;
      },
      end_ - at, "[data] element " + std::to_string(i));
}

void ElementFileWriter::publish(const std::string& path, uint64_t key) {
  check(count_ == numbers_, "every element before a file is whole");
  Header header;
  header.key = key;
  file_.write(&header, sizeof(header), 0);
  Xxh3 hash;
  ByteOffset places[kIndexPiece];
  for (int64_t i = 0; i < count_; i += kIndexPiece) {
    const int64_t piece = std::min(kIndexPiece, count_ - i);
    for (int64_t k = 0; k < piece; ++k) places[k] = place(i + k);
    hash.update(places, static_cast<size_t>(piece * 8));
    file_.write(places, piece * 8, end_ + i * 8);
  }
  const Bytes bytes = count_ * 8;
  Footer footer;
  footer.key = key;
  footer.count = count_;
  footer.index_at = end_;
  footer.largest = largest_;
  footer.index_hash = hash.digest();
  footer.hash = hash_of(footer);
  file_.write(&footer, sizeof(footer), end_ + bytes);
  file_.publish(path);
}

std::unique_ptr<const ElementFile> ElementFile::open(const std::string& path,
                                                     const ElementSpec& spec, uint64_t key) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return nullptr;
  std::unique_ptr<ElementFile> opened(new ElementFile(File::open(path), spec));
  const File& file = opened->file_;
  const Header wanted;
  const Footer end;
  Header header;
  Footer footer;
  if (file.size() < static_cast<Bytes>(sizeof(header) + sizeof(footer))) refuse(path, "a part");
  const ByteOffset footer_at = file.size() - static_cast<Bytes>(sizeof(footer));
  file.pread_exact(&header, sizeof(header), 0);
  file.pread_exact(&footer, sizeof(footer), footer_at);
  if (std::memcmp(header.magic, wanted.magic, sizeof(wanted.magic)) != 0)
    refuse(path, "a file of another kind");
  if (std::memcmp(footer.magic, end.magic, sizeof(end.magic)) != 0 ||
      footer.hash != hash_of(footer))
    refuse(path, "a part of one");
  if (header.key != key || footer.key != key) refuse(path, "that of another");
  const bool sound = footer.count >= 0 && footer.index_at >= static_cast<Bytes>(sizeof(header)) &&
                     footer.index_at <= footer_at && footer.largest >= 0 &&
                     (footer_at - footer.index_at) / 8 == footer.count &&
                     (footer_at - footer.index_at) % 8 == 0;
  if (!sound) refuse(path, "one that is damaged");
  Xxh3 hash;
  ByteOffset places[kIndexPiece];
  for (int64_t i = 0; i < footer.count; i += kIndexPiece) {
    const int64_t count = std::min(kIndexPiece, footer.count - i);
    file.pread_exact(places, count * 8, footer.index_at + i * 8);
    hash.update(places, static_cast<size_t>(count * 8));
    for (int64_t k = 0; k < count; ++k)
      if (places[k] < static_cast<Bytes>(sizeof(header)) || places[k] >= footer.index_at)
        refuse(path, "one that is damaged");
  }
  if (hash.digest() != footer.index_hash) refuse(path, "one whose index is damaged");
  opened->count_ = footer.count;
  opened->index_at_ = footer.index_at;
  opened->largest_ = footer.largest;
  return opened;
}

Element ElementFile::read(int64_t i) const {
  ByteOffset at = 0;
  file_.pread_exact(&at, sizeof(at), index_at_ + i * 8);
  const std::string where = "[data] " + file_.path() + ": element " + std::to_string(i);
  if (at < static_cast<Bytes>(sizeof(Header)) || at > index_at_)
    throw DataError(where + ": expected a place in the file; it has changed");
  return read_element(
      spec_,
      [&](void* to, Bytes bytes) {
        file_.pread_exact(to, bytes, at);
        at += bytes;
      },
      index_at_ - at, where);
}

}  // namespace pl
