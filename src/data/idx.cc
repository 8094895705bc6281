#include "data/idx.h"

#include <algorithm>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/cache.h"

namespace pl {
namespace {

constexpr int kMostIdxDimensions = 8;
constexpr Bytes kLongestIdxHeader = 4 + 4 * kMostIdxDimensions;
constexpr unsigned char kUnsignedByte = 0x08;

bool is_gzip(const File& file) {
  unsigned char magic[2] = {};
  return file.read_some(magic, 2, 0) == 2 && magic[0] == 0x1F && magic[1] == 0x8B;
}

// The first bytes of the file, or of what it inflates to.
std::string head_of(const File& file, const Section* gzip) {
  std::string head(kLongestIdxHeader, '\0');
  Bytes size = 0;
  if (!gzip) {
    size = file.read_some(head.data(), kLongestIdxHeader, 0);
  } else {
    // One piece is all the callback takes, and it may be larger than a header.
    inflate_section(file, *gzip, INT64_MAX, file.path(), [&](const void* data, Bytes bytes) {
      const Bytes count = std::min(bytes, kLongestIdxHeader - size);
      std::copy_n(static_cast<const char*>(data), count, head.begin() + size);
      size += count;
      return size < kLongestIdxHeader;
    });
  }
  head.resize(static_cast<size_t>(size));
  return head;
}

struct Header {
  Shape shape;
  Bytes bytes = 0;  // of the header itself
};

Header parse_header(const std::string& head, const std::string& path) {
  ByteReader reader(head, path);
  const std::string_view magic = reader.take(4);
  if (magic[0] != 0 || magic[1] != 0)
    throw DataError("[idx] " + path + ": expected an IDX file (two zero bytes first), received " +
                    "something else; give the files of MNIST or Fashion-MNIST");
  const auto type = static_cast<unsigned char>(magic[2]);
  if (type != kUnsignedByte)
    throw DataError("[idx] " + path + ": expected elements of type 0x08 (unsigned bytes), " +
                    "received type " + std::to_string(type) + "; save other types as .npz");
  const auto rank = static_cast<unsigned char>(magic[3]);
  if (rank < 1 || rank > kMostIdxDimensions)
    throw DataError("[idx] " + path + ": expected 1 to 8 dimensions, received " +
                    std::to_string(rank));
  std::vector<Dim> dims;
  for (int i = 0; i < rank; ++i) dims.push_back(reader.u32_big());
  return {Shape(std::move(dims)), 4 + 4 * Bytes{rank}};
}

}  // namespace

DiskArray open_idx(const std::string& path) {
  File file = File::open(path);
  const bool compressed = is_gzip(file);
  const Section gzip{0, file.size(), Compression::gzip};
  Header header = parse_header(head_of(file, compressed ? &gzip : nullptr), path);
  const Bytes total = header.bytes + checked_bytes(header.shape, 1, path);
  if (compressed) {
    file = inflated_copy(file, gzip, total, std::nullopt, path);
    // The copy is a file like any other: somebody may have changed it since.
    if (parse_header(head_of(file, nullptr), path).shape != header.shape)
      throw DataError("[idx] " + path + ": expected the cached copy " + file.path() +
                      " to have shape " + header.shape.text() + "; delete it");
  }
  if (file.size() != total)
    throw DataError("[idx] " + path + ": expected " + std::to_string(total) + " bytes for shape " +
                    header.shape.text() + ", received " + std::to_string(file.size()) +
                    "; the file is truncated or damaged");
  return {std::make_shared<const File>(std::move(file)), header.bytes, Stored::uint8,
          std::move(header.shape), path};
}

}  // namespace pl
