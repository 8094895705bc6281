// text_sources: windows of a text file as tokens. The file stays on disk; what is held is the table
// from bytes to tokens.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "data/source.h"

namespace pl {
namespace {

constexpr Bytes kTextPiece = 4096;  // bytes read at a time, on the stack

// Token of each byte, -1 where it does not occur.
struct Alphabet {
  std::array<int32_t, 256> token;
  int32_t size = 0;
};

Alphabet alphabet_of(const File& file) {
  std::array<bool, 256> occurs{};
  unsigned char piece[kTextPiece];
  for (ByteOffset at = 0; at < file.size(); at += kTextPiece) {
    const Bytes count = std::min(kTextPiece, file.size() - at);
    file.pread_exact(piece, count, at);
    for (Bytes i = 0; i < count; ++i) occurs[piece[i]] = true;
  }
  Alphabet alphabet;
  for (size_t b = 0; b < occurs.size(); ++b) alphabet.token[b] = occurs[b] ? alphabet.size++ : -1;
  return alphabet;
}

class TextSource : public Source {
 public:
  // Windows of the bytes [begin, end).
  TextSource(std::shared_ptr<const File> file, const Alphabet& alphabet, ByteOffset begin,
             ByteOffset end, int64_t length)
      : file_(std::move(file)), alphabet_(alphabet), begin_(begin), length_(length) {
    size_ = (end - begin - 1) / length;
    const ValueRange range{0, alphabet.size - 1};
    const Meta tokens{Dtype::int32, Shape{length}};
    fields_ = {{"x", tokens, range, Role::x}, {"y", tokens, range, Role::y}};
  }
  std::string name() const override { return file_->path(); }
  int64_t size() const override { return size_; }
  const std::vector<Field>& fields() const override { return fields_; }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == 2, "one destination for each field");
    for (size_t i = 0; i < indices.size(); ++i) {
      check(indices[i] >= 0 && indices[i] < size_, "an index of the source");
      const int64_t row = static_cast<int64_t>(i) * length_;
      int32_t* x = static_cast<int32_t*>(destinations[0]);
      int32_t* y = static_cast<int32_t*>(destinations[1]);
      read_window(begin_ + indices[i] * length_, x ? x + row : nullptr, y ? y + row : nullptr);
    }
  }

  Bytes resident_bytes() const override {
    return 4 * kKiB + 2 * static_cast<Bytes>(file_->path().size());
  }

 private:
  void read_window(ByteOffset at, int32_t* x, int32_t* y) const {
    unsigned char piece[kTextPiece];
    for (int64_t done = 0; done <= length_; done += kTextPiece) {
      const Bytes count = std::min<Bytes>(kTextPiece, length_ + 1 - done);
      file_->pread_exact(piece, count, at + done);
      for (Bytes i = 0; i < count; ++i) {
        const int32_t token = alphabet_.token[piece[i]];
        if (token < 0)
          throw DataError("[data] " + file_->path() +
                          ": expected the characters it had when it was opened, received byte " +
                          std::to_string(piece[i]) + "; leave the file as it is while training");
        const int64_t place = done + i;
        if (x && place < length_) x[place] = token;
        if (y && place > 0) y[place - 1] = token;
      }
    }
  }

  std::shared_ptr<const File> file_;
  Alphabet alphabet_;
  ByteOffset begin_;
  int64_t length_, size_ = 0;
  std::vector<Field> fields_;
};

}  // namespace

Sources text_sources(const std::string& path, int64_t length, int64_t vocabulary) {
  check(length >= 1, "windows of at least one token");
  const auto file = std::make_shared<const File>(File::open(path));
  const ByteOffset split = file->size() - file->size() / 10;
  if (split <= length)
    throw DataError("[data] " + path + ": expected at least " + std::to_string(length + 1) +
                    " characters in its first nine tenths, received a file of " +
                    std::to_string(file->size()) + "; use a longer text or a smaller --input");
  const Alphabet alphabet = alphabet_of(*file);
  if (alphabet.size > vocabulary)
    throw DataError("[data] " + path + ": expected at most " + std::to_string(vocabulary) +
                    " different characters, the model's vocabulary, received " +
                    std::to_string(alphabet.size));
  Sources sources;
  sources.train = std::make_unique<TextSource>(file, alphabet, 0, split, length);
  if (file->size() - split > length)
    sources.test = std::make_unique<TextSource>(file, alphabet, split, file->size(), length);
  return sources;
}

std::string text_characters(const std::string& path) {
  const Alphabet alphabet = alphabet_of(File::open(path));
  std::string characters;
  for (size_t b = 0; b < alphabet.token.size(); ++b)
    if (alphabet.token[b] >= 0) characters += static_cast<char>(b);
  return characters;
}

}  // namespace pl
