#include "data/pipeline/dataset.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

constexpr const char* kNames[] = {"x", "y", "sample_weight"};

std::vector<NamedField> named(const Tensors& tensors) {
  std::vector<NamedField> fields;
  for (size_t f = 0; f < tensors.size(); ++f)
    fields.push_back({f < 3 ? kNames[f] : "field" + std::to_string(f), tensors[f]});
  return fields;
}

const Tensor& require_value(const Tensor& tensor, const std::string& name) {
  if (!tensor.defined())
    throw UserError("[data] " + name +
                    ": expected a tensor, received an empty one; give it a dtype and a shape");
  tensor.data();  // a symbol is refused here
  return tensor;
}

std::vector<StageRef> stages_of(const std::vector<Dataset>& datasets, const char* stage) {
  if (datasets.empty())
    throw UserError("[data] " + std::string(stage) +
                    ": expected data sets, received none; give one at least");
  std::vector<StageRef> nodes;
  for (const Dataset& dataset : datasets) nodes.push_back(dataset.stage());
  return nodes;
}

// What a function yields, seen from one call on zeros.
ElementSpec probe(const ElementSpec& in, const std::string& stage,
                  const std::function<Element(const Element&, uint64_t)>& function) {
  constexpr const char* kRemedy = "; say what the function yields: map(f, {.spec = ...})";
  if (!in.known())
    throw UserError("[data] " + stage + ": expected an input with known dimensions, received " +
                    in.text() + kRemedy);
  Element zeros;
  for (const FieldSpec& field : in.fields) {
    Tensor& tensor = zeros.emplace_back(Meta{field.dtype, field.shape});
    std::memset(tensor.data(), 0, static_cast<size_t>(tensor.meta().bytes()));
  }
  Element out;
  try {
    out = function(zeros, 0);
  } catch (const std::exception& error) {
    throw UserError("[data] " + stage + ": expected a function that takes an element of zeros, " +
                    "received: " + error.what() + kRemedy);
  } catch (...) {
    throw UserError("[data] " + stage + ": expected a function that takes an element of zeros, " +
                    "received something thrown that is no std::exception" + kRemedy);
  }
  ElementSpec spec;
  for (size_t f = 0; f < out.size(); ++f) {
    std::string name = "field" + std::to_string(f);
    if (f < in.fields.size())
      name = in.fields[f].name;
    else if (f < 3)
      name = kNames[f];
    require_value(out[f], stage);
    spec.fields.push_back({name, out[f].dtype(), out[f].shape()});
  }
  return spec;
}

}  // namespace

int64_t parallel_calls(const MapOptions& options) {
  if (options.num_parallel_calls < 1 && options.num_parallel_calls != AUTOTUNE)
    throw UserError("[data] " + options.name +
                    ": num_parallel_calls: expected a positive number or AUTOTUNE, received " +
                    std::to_string(options.num_parallel_calls) + "; 1 is one after another");
  return std::min<int64_t>(options.num_parallel_calls, 1024);
}

ByteCount::ByteCount(const char* text) : bytes_(parse_bytes(text ? text : "", "bytes")) {}

ByteCount::ByteCount(std::in_place_t, bool negative, uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 62;
  if (negative || bytes > kMost)
    throw UserError("[data] bytes: expected a number from 0 to 2^62, received " +
                    (negative ? "-" + std::to_string(0 - bytes) : std::to_string(bytes)) +
                    "; 0 is as if none was given");
  bytes_ = static_cast<Bytes>(bytes);
}

Dataset::Dataset(StageRef node) : node_(std::move(node)), loops_(new_loops()) {
  check(node_ != nullptr, "a data set has a stage");
  if (node_->spec().fields.empty())
    throw UserError("[data] " + node_->name() +
                    ": expected elements with a field or more, received none; say what they "
                    "consist of");
}

Dataset Dataset::with(StageRef node) const {
  Dataset made(std::move(node));
  made.options_ = options_;
  made.budget();  // a budget that cannot be kept is refused where it becomes so
  return made;
}

Dataset Dataset::from_tensor_slices(const Tensors& tensors) {
  return from_tensor_slices(named(tensors));
}

Dataset Dataset::from_tensor_slices(const std::vector<NamedField>& fields) {
  if (fields.empty())
    throw UserError(
        "[data] from_tensor_slices: expected tensors, received none; give one at least");
  ElementSpec spec;
  Tensors tensors;
  for (const NamedField& field : fields) {
    const Tensor& tensor = require_value(field.values, field.name);
    if (tensor.shape().rank() < 1)
      throw UserError("[data] from_tensor_slices: " + field.name + ": expected rows, received " +
                      tensor.meta().text() + "; from_tensors makes one element");
    if (tensor.shape()[0] != fields[0].values.shape()[0])
      throw UserError(
          "[data] from_tensor_slices: expected as many rows in every tensor, received " +
          fields[0].values.meta().text() + " and " + tensor.meta().text() + "; cut the longer one");
    spec.fields.push_back({field.name, tensor.dtype(), tensor.shape().without_front()});
    tensors.push_back(tensor);
  }
  return Dataset(tensor_slices_stage(std::move(spec), std::move(tensors)));
}

Dataset Dataset::from_tensors(const Tensors& tensors) {
  ElementSpec spec;
  for (const NamedField& field : named(tensors)) {
    require_value(field.values, field.name);
    spec.fields.push_back({field.name, field.values.dtype(), field.values.shape()});
  }
  return Dataset(tensors_stage(std::move(spec), tensors));
}

Dataset Dataset::range(int64_t end) { return range(0, end, 1); }
Dataset Dataset::range(int64_t begin, int64_t end, int64_t step) {
  if (step == 0)
    throw UserError("[data] range: expected a step that is not 0, received 0; give 1 or -1");
  return Dataset(range_stage(begin, end, step));
}

Dataset Dataset::make_generator(std::function<std::function<std::optional<Element>()>()> factory,
                                const ElementSpec& spec, const GeneratorOptions& options) {
  return Dataset(generator_stage(spec, std::move(factory),
                                 {.max_bytes = options.max_bytes.value(), .key = options.key}));
}

Dataset Dataset::from_reader(int64_t count, std::function<Element(int64_t)> read,
                             const ElementSpec& spec, const GeneratorOptions& options) {
  if (count < 0)
    throw UserError("[data] from_reader: expected 0 or more elements, received " +
                    std::to_string(count) + "; from_generator takes any number");
  return Dataset(reader_stage("reader", spec, count, std::move(read),
                              {.max_bytes = options.max_bytes.value(), .key = options.key}));
}

Dataset Dataset::zip(const std::vector<Dataset>& datasets) {
  auto nodes = stages_of(datasets, "zip");
  return datasets[0].with(zip_stage(std::move(nodes)));
}

Dataset Dataset::sample_from_datasets(const std::vector<Dataset>& datasets,
                                      const SampleOptions& options) {
  auto nodes = stages_of(datasets, "sample_from_datasets");
  std::vector<double> weights = options.weights;
  if (weights.empty()) weights.assign(nodes.size(), 1.0);
  const bool sound =
      weights.size() == nodes.size() &&
      std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0 && w < 1e300; }) &&
      std::any_of(weights.begin(), weights.end(), [](double w) { return w > 0; });
  if (!sound) {
    std::string received;
    for (const double w : weights) received += (received.empty() ? "" : ", ") + exact_text(w);
    throw UserError("[data] sample_from_datasets: weights: expected one of 0 or more for each of " +
                    std::to_string(nodes.size()) +
                    " data sets, and one above 0 among them, received " + received +
                    "; none at all are equal ones");
  }
  return datasets[0].with(sample_stage(std::move(nodes), std::move(weights), options.seed,
                                       options.stop_on_empty_dataset));
}

Dataset Dataset::mapped(std::function<Element(const Element&, uint64_t)> function,
                        const MapOptions& options, bool random) const {
  const int64_t parallel = parallel_calls(options);
  MapFacts facts{
      .spec = options.spec ? *options.spec : probe(element_spec(), options.name, function),
      .parallel = parallel,
      .max_bytes = options.max_bytes.value(),
      .scratch = options.scratch.value() > 0 ? options.scratch.value() : -1,
      .beside = options.beside.value(),
      .random = random,
      .key = options.key};
  return with(map_stage(node_, std::move(function), std::move(facts), options.name));
}

Dataset Dataset::map(std::function<Element(const Element&)> function,
                     const MapOptions& options) const {
  return mapped(
      [function = std::move(function)](const Element& in, uint64_t) { return function(in); },
      options, false);
}
Dataset Dataset::map_random(std::function<Element(const Element&, uint64_t)> function,
                            const MapOptions& options) const {
  return mapped(std::move(function), options, true);
}

Dataset Dataset::filter(std::function<bool(const Element&)> predicate) const {
  return with(filter_stage(node_, std::move(predicate)));
}

Dataset Dataset::interleave(std::function<Dataset(const Element&)> function,
                            const InterleaveOptions& options) const {
  if (options.spec.fields.empty())
    throw UserError(
        "[data] interleave: expected .spec, what the inner data sets yield, received none; give "
        "{.spec = inner.element_spec()}");
  return with(interleave_stage(
      node_, [function = std::move(function)](const Element& in) { return function(in).stage(); },
      {.spec = options.spec,
       .cycle = options.cycle_length,
       .block = options.block_length,
       .max_bytes = options.max_bytes.value(),
       .inner = options.inner_bytes.value()}));
}
Dataset Dataset::flat_map(std::function<Dataset(const Element&)> function,
                          const InterleaveOptions& options) const {
  InterleaveOptions flat = options;
  flat.cycle_length = flat.block_length = 1;
  return interleave(std::move(function), flat);
}

Dataset Dataset::batch(int64_t size, bool drop) const {
  return with(batch_stage(node_, size, drop));
}
Dataset Dataset::padded_batch(int64_t size, const PaddedBatchOptions& options) const {
  return with(padded_batch_stage(node_, size, options.drop_remainder,
                                 {.shapes = options.padded_shapes,
                                  .values = options.padding_values,
                                  .max_bytes = options.max_bytes.value()}));
}
Dataset Dataset::bucket_by_sequence_length(std::function<int64_t(const Element&)> element_length,
                                           const std::vector<int64_t>& bucket_boundaries,
                                           const std::vector<int64_t>& bucket_batch_sizes,
                                           const BucketOptions& options) const {
  return with(
      bucket_stage(node_, {.length = std::move(element_length),
                           .boundaries = bucket_boundaries,
                           .batch_sizes = bucket_batch_sizes,
                           .pad = {.shapes = options.padded_shapes,
                                   .values = options.padding_values,
                                   .max_bytes = options.max_bytes.value()},
                           .to_boundary = options.pad_to_bucket_boundary && !options.no_padding,
                           .no_padding = options.no_padding,
                           .drop = options.drop_remainder}));
}
Dataset Dataset::unbatch() const { return with(unbatch_stage(node_)); }
Dataset Dataset::rebatch(int64_t size, bool drop) const {
  return with(rebatch_stage(node_, size, drop));
}
Dataset Dataset::window(int64_t size, const WindowOptions& options) const {
  return with(window_stage(node_, size, options.shift == 0 ? size : options.shift, options.stride));
}

Dataset Dataset::shuffle(int64_t buffer_size, const ShuffleOptions& options) const {
  if (buffer_size < 1)
    throw UserError(
        "[data] shuffle: buffer_size: expected a positive number, received " +
        std::to_string(buffer_size) +
        "; shuffle() without one where elements can be got by index, or {.bytes = ...}");
  return shuffled_by(buffer_size, options);
}
Dataset Dataset::shuffle(const ShuffleOptions& options) const { return shuffled_by(0, options); }
Dataset Dataset::shuffled_by(int64_t buffer_size, const ShuffleOptions& options) const {
  return with(shuffled(node_, [&](StageRef input) {
    if (input->indexable() && input->cardinality() >= 0)
      return permute_stage(input, options.seed, options.reshuffle_each_iteration);
    if (buffer_size < 1 && options.bytes.value() < 1)
      throw UserError(
          "[data] shuffle: expected a buffer over a stream, whose elements cannot be got by index, "
          "received none; give a number of elements, or .bytes");
    return buffer_shuffle_stage(input, buffer_size, options.bytes.value(), options.seed,
                                options.reshuffle_each_iteration);
  }));
}
Dataset Dataset::repeat(int64_t count) const { return with(repeat_stage(node_, count)); }
Dataset Dataset::take(int64_t count) const { return with(take_stage(node_, count)); }
Dataset Dataset::skip(int64_t count) const { return with(skip_stage(node_, count)); }
Dataset Dataset::shard(int64_t shards, int64_t index) const {
  return with(shard_stage(node_, shards, index));
}
Dataset Dataset::concatenate(const Dataset& other) const {
  return with(concatenate_stage(node_, other.node_));
}
Dataset Dataset::enumerate(int64_t start) const { return with(enumerate_stage(node_, start)); }
Dataset Dataset::assert_cardinality(int64_t cardinality) const {
  return with(assert_cardinality_stage(node_, cardinality));
}
Dataset Dataset::cache(const CacheOptions& options) const {
  return with(cache_stage(node_, options.elements, options.bytes.value()));
}
Dataset Dataset::snapshot(const std::string& folder, const SnapshotOptions& options) const {
  if (folder.empty())
    throw UserError("[data] snapshot: expected a folder, received no name; give one to write to");
  return with(snapshot_stage(node_, folder, options.key));
}
Dataset Dataset::prefetch(int64_t buffer_size, const PrefetchOptions& options) const {
  return with(prefetch_stage(node_, buffer_size, options.bytes.value()));
}
Dataset Dataset::prefetch(const PrefetchOptions& options) const { return prefetch(0, options); }
Dataset Dataset::ignore_errors(bool log_warning) const {
  return with(ignore_errors_stage(node_, log_warning));
}
DatasetIterator Dataset::iterate(uint64_t epoch) const { return DatasetIterator(*this, epoch); }

}  // namespace pl
