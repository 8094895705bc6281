// Source: samples on disk or made from a seed, read by index into memory that the caller planned.
// Samples stay on disk: compressed files are inflated once to a cache there (data/cache.h), and
// only arrays of at most 256 KiB, such as labels, are held. So resident bytes do not grow with the
// data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace pl {

// The least and greatest value of an integer field, both included.
struct ValueRange {
  int64_t low = 0, high = 0;
};

// What a field is to a model: an input, a target, or the weight of a sample in the loss.
enum class Role : uint8_t { x, y, weight };

struct Field {
  std::string name;  // "x" or "y", or the name of an input
  Meta sample;       // of one sample, without the batch dimension
  // For integer fields: a loss or an embedding that indexes with them needs high < its classes.
  // read() throws DataError rather than hand out a value outside.
  std::optional<ValueRange> range;
  Role role = Role::x;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::string name() const = 0;
  virtual int64_t size() const = 0;                      // samples, at least 1
  virtual const std::vector<Field>& fields() const = 0;  // x, then y, then weights
  // Puts sample indices[i] of field f at destinations[f] + i * fields()[f].sample.bytes(). A null
  // destination leaves that field out. Runs of consecutive indices are one read. Allocates nothing.
  virtual void read(std::span<const int64_t> indices, std::span<void* const> destinations) = 0;
  // Samples that read() will be asked for next: a disk may fetch them meanwhile.
  virtual void expect(std::span<const int64_t> /*indices*/) {}
  virtual Bytes resident_bytes() const = 0;  // upper bound of the heap it holds

  // Of sources that are read in order, one whole batch after another: its rows; 0: any indices.
  virtual int64_t batch() const { return 0; }
  // Told before an epoch's first read; training counts from 1, evaluation is 0.
  virtual void begin_epoch(int64_t /*epoch*/) {}
  // Of an integer field whose values nobody has seen: read() must throw DataError for any that is
  // not in [0, count) and not `allowed`. False: there is nothing that it could check.
  virtual bool require_below(size_t /*field*/, const std::string& /*what*/, int64_t /*count*/,
                             std::optional<int64_t> /*allowed*/) {
    return false;
  }
};

struct SyntheticSpec {
  Meta x;                   // of one sample: float32, float64, uint8, or int32 tokens
  int64_t vocabulary = 0;   // int32 x: tokens in [0, vocabulary)
  Shape y;                  // of one sample's labels: () for one label, (T,) for one a token
  int64_t classes = 0;      // y: int32 labels in [0, classes)
  bool next_token = false;  // int32 x: y is of x's shape, and is x moved on by one token
  int64_t samples = 0;      // the one fixed batch
  uint64_t seed = 0;
};

// Made anew at each read from (seed, sample, element): x uniform in [-1, 1), nothing is stored.
std::unique_ptr<Source> synthetic_source(const SyntheticSpec& spec);

enum class Part : uint8_t { train, test };

// x uint8 (28, 28, 1), y int32 (). An empty directory means that of Debian's dataset-fashion-mnist.
std::unique_ptr<Source> fashion_mnist_source(Part part, const std::string& directory = "");

// IDX files (MNIST's format), plain or gzip: x uint8 (H, W, 1), y int32 ().
std::unique_ptr<Source> idx_source(const std::string& images, const std::string& labels);

// Arrays `x` and `y` of an .npz. Integer y becomes int32 labels, floating y stays as it is; x keeps
// its dtype (int8, int16 and uint16 become int32; uint32 and uint64 become int64).
std::unique_ptr<Source> npz_source(const std::string& path);

struct Sources {
  std::unique_ptr<Source> train;
  std::unique_ptr<Source> test;  // null: there is none
};

// Characters of a text file as tokens: a byte's number is its place among the bytes that occur in
// the file, in ascending order. Samples are windows of `length` + 1 bytes, one behind the other
// with one byte in common: x int32 (length), y int32 (length) moved on by one. The last tenth of
// the file is for testing, if it holds a window. DataError when more than `vocabulary` different
// bytes occur, or no window fits.
Sources text_sources(const std::string& path, int64_t length, int64_t vocabulary);

// The bytes that occur in a file, ascending: token i is character i.
std::string text_characters(const std::string& path);

// `fashion-mnist`, FILE.npz, or a folder with train-images-idx3-ubyte[.gz] and its fellows.
// Everything else is DataError that says what is accepted. (`synthetic` and FILE.txt need the
// model's shapes: see above.)
Sources open_source(const std::string& spec);

}  // namespace pl
