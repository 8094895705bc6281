// Dataset: an input pipeline in tf.data's words. A cheap handle to an immutable chain of stages;
// nothing is read before it is iterated. All that an iterator ever holds is within one budget.
//
//   auto data = Dataset::from_tensor_slices({x, y}).shuffle().map(augment, {.num_parallel_calls =
//       AUTOTUNE}).batch(32).prefetch(AUTOTUNE).with_options({.memory = "64MiB"});
//   for (const Element& batch : data) use(batch[0], batch[1]);
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/pipeline/generator.h"
#include "data/pipeline/stage.h"

namespace pl {

// A number of bytes as users write it: "64MiB", or a number.
class ByteCount {
 public:
  ByteCount() = default;
  ByteCount(const char* text);  // throws UserError
  ByteCount(const std::string& text) : ByteCount(text.c_str()) {}
  // Throws UserError for what is below 0 or above 2^62.
  ByteCount(std::integral auto bytes)
      : ByteCount(std::in_place, bytes < 0, static_cast<uint64_t>(bytes)) {}
  Bytes value() const { return bytes_; }

 private:
  ByteCount(std::in_place_t, bool negative, uint64_t bytes);
  Bytes bytes_ = 0;  // 0: not given
};

struct DatasetOptions {
  // The hard budget of an iterator. None: 64 MiB, or what the pipeline needs at least if that is
  // more.
  ByteCount memory = {};
  int threads = 0;    // that work beside the consumer; 0: the cores
  uint64_t seed = 0;  // of stages that have none of their own
};

struct MapOptions {
  int64_t num_parallel_calls = 1;  // or AUTOTUNE
  bool deterministic = true;       // accepted for tf.data's sake: the order is always kept
  // What the function yields. None: it is called once, on zeros, to see; the input's signature
  // must be known for that.
  std::optional<ElementSpec> spec = {};
  ByteCount max_bytes = {};  // of an element whose dimensions are not known
  ByteCount scratch = {};  // that a call takes besides its input and result; default: as its result
  // What the function holds, such as lists of files: on the bill, but no part of the budget.
  ByteCount beside = {};
  std::string name = "map";
  // Which of the functions of this name it is: snapshots and positions of others are not taken.
  std::string key = {};
};

// Of options that were checked; throws UserError.
int64_t parallel_calls(const MapOptions& options);

struct ShuffleOptions {
  ByteCount bytes = {};  // over streams: of the buffer, instead of a number of elements
  std::optional<uint64_t> seed = {};
  bool reshuffle_each_iteration = true;
};

struct PaddedBatchOptions {
  std::vector<Shape> padded_shapes = {};  // of each field; kUnknown: the longest of the batch
  std::vector<double> padding_values = {};
  bool drop_remainder = false;
  ByteCount max_bytes = {};  // of a batch
};

struct BucketOptions {
  std::vector<Shape> padded_shapes = {};
  std::vector<double> padding_values = {};
  // Unknown dimensions become the bucket's boundary - 1; nothing may be longer than the last one.
  bool pad_to_bucket_boundary = false;
  bool no_padding = false;  // elements of a batch must have one shape
  bool drop_remainder = false;
  ByteCount max_bytes = {};  // of a batch
};

struct WindowOptions {
  int64_t shift = 0;  // 0: as size
  int64_t stride = 1;
};

struct PrefetchOptions {
  ByteCount bytes = {};
};

struct CacheOptions {
  // Held in memory; default: a quarter of the budget. The rest is in a file.
  ByteCount bytes = {};
  int64_t elements = 0;  // instead of bytes
};

struct SnapshotOptions {
  std::string key = {};  // of functions and data that the stages' signatures do not show
};

struct GeneratorOptions {
  ByteCount max_bytes = {};  // of an element whose dimensions are not known
  std::string key = {};      // see MapOptions
};

struct SampleOptions {
  std::vector<double> weights = {};
  std::optional<uint64_t> seed = {};
  bool stop_on_empty_dataset = false;
};

// One line for each stage, from the source on, and the ledger's.
struct StageReport {
  std::string name, options, spec;
  int64_t cardinality = kUnknownCardinality;
  Bytes floor = 0;          // of this stage alone
  Bytes element_bytes = 0;  // bound
  int64_t elements = 0, waited_ns = 0;
  int64_t parallel = 0, buffer = 0, held_peak = 0;  // chosen values; 0: no such stage
  int64_t skipped = 0;
  std::vector<std::string> messages;  // of the first elements that were skipped
};
struct PipelineReport {
  std::vector<StageReport> stages;
  LedgerFigures ledger;
  int threads = 0;
  std::string text() const;
};

class Dataset;
class DatasetIterator;

struct InterleaveOptions {
  ElementSpec spec = {};  // required: what the inner data sets yield
  int64_t cycle_length = 1, block_length = 1;
  ByteCount max_bytes = {};    // of an element whose dimensions are not known
  ByteCount inner_bytes = {};  // floor of an inner data set; default: two elements and 256 KiB
};

struct NamedField {
  std::string name;
  Tensor values;
};

class Dataset {
 public:
  explicit Dataset(StageRef node);  // of a stage of your own (stage.h)
  // Moving is copying a handle, so that what was moved from is still a data set.
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  ~Dataset() = default;

  // Rows of the tensors. Fields are called x, y, sample_weight unless names are given. The tensors
  // are held and are no part of the budget; elements are copies of their rows, to be written to.
  static Dataset from_tensor_slices(const Tensors& tensors);
  static Dataset from_tensor_slices(const std::vector<NamedField>& fields);
  static Dataset from_tensors(const Tensors& tensors);  // one element
  static Dataset range(int64_t end);
  static Dataset range(int64_t begin, int64_t end, int64_t step = 1);
  // `factory` is called once a pass; what it returns is called for each element: a function of
  // std::optional<Element>() or a coroutine, Generator<Element>.
  template <class F>
  static Dataset from_generator(F factory, const ElementSpec& spec,
                                const GeneratorOptions& options = {}) {
    return make_generator(
        [factory = std::move(factory)]() -> std::function<std::optional<Element>()> {
          auto made = std::make_shared<decltype(factory())>(factory());
          return [made] { return (*made)(); };
        },
        spec, options);
  }
  // Elements by index: `read` is called on any thread, and gives the same for the same index.
  static Dataset from_reader(int64_t count, std::function<Element(int64_t)> read,
                             const ElementSpec& spec, const GeneratorOptions& options = {});
  static Dataset zip(const std::vector<Dataset>& datasets);
  static Dataset sample_from_datasets(const std::vector<Dataset>& datasets,
                                      const SampleOptions& options = {});

  // Functions must give the same result for the same element, do not change what they are given,
  // and are called on several threads where num_parallel_calls is not 1.
  Dataset map(std::function<Element(const Element&)> function,
              const MapOptions& options = {}) const;
  // The same with a random number that depends on seed, epoch and place alone.
  Dataset map_random(std::function<Element(const Element&, uint64_t)> function,
                     const MapOptions& options = {}) const;
  Dataset filter(std::function<bool(const Element&)> predicate) const;
  Dataset flat_map(std::function<Dataset(const Element&)> function,
                   const InterleaveOptions& options) const;
  Dataset interleave(std::function<Dataset(const Element&)> function,
                     const InterleaveOptions& options) const;

  Dataset batch(int64_t batch_size, bool drop_remainder = false) const;
  Dataset padded_batch(int64_t batch_size, const PaddedBatchOptions& options = {}) const;
  // tf.data's: elements of a length below bucket_boundaries[0] are in bucket 0, and so on; each
  // bucket has its batch size, and a batch is padded to its longest element.
  Dataset bucket_by_sequence_length(std::function<int64_t(const Element&)> element_length,
                                    const std::vector<int64_t>& bucket_boundaries,
                                    const std::vector<int64_t>& bucket_batch_sizes,
                                    const BucketOptions& options = {}) const;
  Dataset unbatch() const;
  Dataset rebatch(int64_t batch_size, bool drop_remainder = false) const;
  // Whole windows, each stacked to one element: tf.data's window(..., drop_remainder=True) and
  // flat_map(batch).
  Dataset window(int64_t size, const WindowOptions& options = {}) const;

  // Perfect and without memory wherever elements can be got by index, whatever the buffer size.
  Dataset shuffle(int64_t buffer_size, const ShuffleOptions& options = {}) const;
  Dataset shuffle(const ShuffleOptions& options = {}) const;  // over streams: with options.bytes
  Dataset repeat(int64_t count = -1) const;
  Dataset take(int64_t count) const;
  Dataset skip(int64_t count) const;
  Dataset shard(int64_t num_shards, int64_t index) const;
  Dataset concatenate(const Dataset& other) const;
  Dataset enumerate(int64_t start = 0) const;
  Dataset assert_cardinality(int64_t cardinality) const;

  Dataset cache(const CacheOptions& options = {}) const;
  // The elements of the first epoch in a file of that folder, which later runs of the same pipeline
  // read instead. It appears when the last element has been written.
  Dataset snapshot(const std::string& folder, const SnapshotOptions& options = {}) const;
  Dataset prefetch(int64_t buffer_size, const PrefetchOptions& options = {}) const;
  Dataset prefetch(const PrefetchOptions& options) const;
  // Elements that raise DataError (std::runtime_error in functions is one) are left out, counted
  // and named (report()); mistakes in programs and a lack of memory are not.
  Dataset ignore_errors(bool log_warning = false) const;
  Dataset with_options(const DatasetOptions& options) const;

  int64_t cardinality() const { return node_->cardinality(); }
  const ElementSpec& element_spec() const { return node_->spec(); }
  const DatasetOptions& options() const { return options_; }
  const StageRef& stage() const { return node_; }
  // The fewest bytes it runs in, and what it will run in. budget() throws DoesNotFit, with a table,
  // when the memory that was asked for is less than the fewest.
  Bytes minimum_bytes() const;
  Bytes budget() const;
  // The most that an iterator and what it reads can hold: the budget, or less where the stages
  // cannot use it, with tensors, tables and threads beside it.
  Bytes bill() const;

  // Epoch `epoch`: always the same one.
  DatasetIterator iterate(uint64_t epoch = 0) const;
  // Loops (`for (const Element& e : data)`) over a data set and its copies are epochs 0, 1, 2 and
  // so on: each has another order, the same in each run of the program, and caches stay.
  DatasetIterator begin() const;
  std::nullptr_t end() const { return nullptr; }

 private:
  friend class DatasetIterator;
  struct Loops;
  static std::shared_ptr<Loops> new_loops();
  static Dataset make_generator(std::function<std::function<std::optional<Element>()>()> factory,
                                const ElementSpec& spec, const GeneratorOptions& options);
  Dataset with(StageRef node) const;
  Dataset shuffled_by(int64_t buffer_size, const ShuffleOptions& options) const;
  Dataset mapped(std::function<Element(const Element&, uint64_t)> function,
                 const MapOptions& options, bool random) const;

  StageRef node_;
  DatasetOptions options_;
  std::shared_ptr<Loops> loops_;
};

// A running pipeline. One thread at a time. Elements outlive it.
class DatasetIterator {
 public:
  DatasetIterator(const Dataset& dataset, uint64_t epoch);  // throws DoesNotFit
  DatasetIterator(DatasetIterator&&) noexcept;
  DatasetIterator& operator=(DatasetIterator&&) noexcept;
  ~DatasetIterator();  // whatever is under way ends first

  bool next(Element& out);  // false: the end of the epoch
  std::optional<Element> next();
  // Begins an epoch; caches stay.
  void start(uint64_t epoch);
  // Passes over elements; how many there were. Nothing is made where places are known.
  int64_t advance(int64_t count);

  // Where it stands: epoch and elements delivered; 32 bytes. A pipeline made of the same stages
  // goes on with exactly the next element, with whatever threads and budget.
  std::string save() const;
  void restore(const std::string& position);  // throws DataError

  uint64_t epoch() const { return epoch_; }
  int64_t delivered() const { return delivered_; }
  PipelineReport report() const;

  // For range-for.
  const Element& operator*() const { return current_; }
  DatasetIterator& operator++();
  bool operator!=(std::nullptr_t) const { return !ended_; }

 private:
  friend class Dataset;
  explicit DatasetIterator(const Dataset& dataset);  // that does not run yet
  void make_run();
  void finish() noexcept;
  Run& running() const;  // throws UserError where it was moved from
  void expect_started() const;

  Dataset dataset_;
  std::unique_ptr<Run> run_;
  IteratorRef root_;
  uint64_t epoch_ = 0;
  int64_t delivered_ = 0;
  Element current_;
  bool ended_ = false, loop_ = false;
};

}  // namespace pl
