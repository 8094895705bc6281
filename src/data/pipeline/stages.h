// The stages, one function each. Internal: users see Dataset (dataset.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/stage.h"
#include "data/source.h"

namespace pl {

using MapFunction = std::function<Element(const Element&, uint64_t key)>;
using Predicate = std::function<bool(const Element&)>;
using Pull = std::function<std::optional<Element>()>;  // nothing: the end

// ---- sources (sources.cc)
StageRef tensor_slices_stage(ElementSpec spec, Tensors tensors);
StageRef tensors_stage(ElementSpec spec, Tensors tensors);
StageRef range_stage(int64_t begin, int64_t end, int64_t step);
struct SourceFacts {
  Bytes max_bytes = 0;    // of an element whose dimensions are not known; 0: the default
  Bytes most = 0;         // the default is no more than that; 0: any
  Bytes scratch = 0;      // what a call needs besides its result
  Bytes beside = 0;       // what it holds, outside of the budget
  std::string key = {};   // see Stage::decides
  uint64_t contents = 0;  // see Stage::contents
  bool goes_on = false;   // a generator that may be asked again after it has thrown
};
StageRef generator_stage(ElementSpec spec, std::function<Pull()> factory, SourceFacts facts = {});
// Elements by index, made by `read` on any thread.
using Reader = std::function<Element(int64_t i)>;
StageRef reader_stage(const std::string& kind, ElementSpec spec, int64_t count, Reader read,
                      SourceFacts facts = {});
// A Source's samples by index, put where they are wanted. One thread at a time reads it.
StageRef source_stage(std::shared_ptr<Source> source, SourceFacts facts);

// ---- one to one (map.cc)
struct MapFacts {
  ElementSpec spec;
  int64_t parallel = 1;  // or AUTOTUNE
  Bytes max_bytes = 0;   // of an element whose spec is not known; 0: the default
  // Instead: so many bytes for each byte of the input's bound, and so many more.
  int64_t bytes_per_byte = 0;
  Bytes more_bytes = 0;
  Bytes scratch = -1;  // of a call besides what goes in and out; -1: as much as goes out
  // Called instead, with what its scratch may be: `scratch`, or more where the budget is large.
  std::function<Element(const Element&, uint64_t key, Bytes scratch)> roomy = {};
  std::optional<uint64_t> seed = {};        // none: the pipeline's
  Bytes beside = 0;                         // what the function holds, outside of the budget
  bool random = false;                      // it uses its key
  std::string key = {};                     // see Stage::decides
  std::function<uint64_t()> contents = {};  // see Stage::contents; called for a snapshot
};
StageRef map_stage(StageRef input, MapFunction function, MapFacts facts, const std::string& kind);
// Where a shuffle behind maps goes: in front of them.
StageRef shuffled(StageRef input, const std::function<StageRef(StageRef)>& shuffle);

// ---- groups (batch.cc, padded.cc)
StageRef batch_stage(StageRef input, int64_t size, bool drop_remainder);
struct PadFacts {
  std::vector<Shape> shapes = {};  // of each field; kUnknown or none: the longest in the batch
  std::vector<double> values = {};
  Bytes max_bytes = 0;
};
StageRef padded_batch_stage(StageRef input, int64_t size, bool drop_remainder, PadFacts facts);
struct BucketFacts {
  std::function<int64_t(const Element&)> length;
  std::vector<int64_t> boundaries, batch_sizes;
  PadFacts pad = {};
  bool to_boundary = false, no_padding = false, drop = false;
};
StageRef bucket_stage(StageRef input, BucketFacts facts);
StageRef unbatch_stage(StageRef input);
StageRef rebatch_stage(StageRef input, int64_t size, bool drop_remainder);
StageRef window_stage(StageRef input, int64_t size, int64_t shift, int64_t stride);

// ---- order and number (order.cc, number.cc)
StageRef permute_stage(StageRef input, std::optional<uint64_t> seed, bool each_epoch);
StageRef buffer_shuffle_stage(StageRef input, int64_t elements, Bytes bytes,
                              std::optional<uint64_t> seed, bool each_epoch);
StageRef repeat_stage(StageRef input, int64_t count);
StageRef take_stage(StageRef input, int64_t count);
StageRef skip_stage(StageRef input, int64_t count);
StageRef shard_stage(StageRef input, int64_t shards, int64_t index);
StageRef zip_stage(std::vector<StageRef> inputs);
StageRef concatenate_stage(StageRef first, StageRef second);
StageRef enumerate_stage(StageRef input, int64_t start);
StageRef sample_stage(std::vector<StageRef> inputs, std::vector<double> weights,
                      std::optional<uint64_t> seed, bool stop_on_empty);
StageRef assert_cardinality_stage(StageRef input, int64_t cardinality);

// ---- streams (flow.cc)
StageRef filter_stage(StageRef input, Predicate predicate);
using Expand = std::function<StageRef(const Element&)>;
struct InterleaveFacts {
  ElementSpec spec;
  int64_t cycle = 1, block = 1;
  Bytes max_bytes = 0;  // of an element whose spec is not known; 0: the default
  Bytes inner = 0;      // what one inner data set may need; 0: twice an element and 256 KiB
};
StageRef interleave_stage(StageRef input, Expand expand, InterleaveFacts facts);
StageRef ignore_errors_stage(StageRef input, bool log);

// ---- ahead and kept (prefetch.cc, cached.cc)
StageRef prefetch_stage(StageRef input, int64_t elements, Bytes bytes);
StageRef cache_stage(StageRef input, int64_t elements, Bytes bytes);
StageRef snapshot_stage(StageRef input, std::string folder, std::string key);

// Elements that were skipped, for people: the first few messages.
std::vector<std::string> skipped_messages(Run& run, const Stage& node);

}  // namespace pl
