// The stages, one function each. Internal: users see Dataset (dataset.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/node.h"

namespace pl {

using MapFunction = std::function<Element(const Element&, uint64_t key)>;
using Predicate = std::function<bool(const Element&)>;
using Pull = std::function<std::optional<Element>()>;  // nothing: the end

// ---- sources (sources.cc)
NodeRef tensor_slices_node(ElementSpec spec, Tensors tensors);
NodeRef tensors_node(ElementSpec spec, Tensors tensors);
NodeRef range_node(int64_t begin, int64_t end, int64_t step);
NodeRef generator_node(ElementSpec spec, std::function<Pull()> factory, Bytes max_bytes);
// Elements by index, made by `read` on any thread. `scratch`: what it needs besides its result.
using Reader = std::function<Element(int64_t i)>;
NodeRef reader_node(const std::string& kind, ElementSpec spec, int64_t count, Reader read,
                    Bytes max_bytes = 0, Bytes scratch = 0);

// ---- one to one (map.cc)
struct MapFacts {
  ElementSpec spec;
  int64_t parallel = 1;  // or AUTOTUNE
  Bytes max_bytes = 0;   // of an element whose spec is not known; 0: the default
  Bytes scratch = -1;    // of a call besides what goes in and out; -1: as much as goes out
  std::optional<uint64_t> seed = {};  // none: the pipeline's
};
NodeRef map_node(NodeRef input, MapFunction function, MapFacts facts, const std::string& kind);
// Where a shuffle behind maps goes: in front of them.
NodeRef shuffled(NodeRef input, const std::function<NodeRef(NodeRef)>& shuffle);

// ---- groups (batch.cc)
NodeRef batch_node(NodeRef input, int64_t size, bool drop_remainder);
struct PadFacts {
  std::vector<Shape> shapes = {};  // of each field; kUnknown or none: the longest in the batch
  std::vector<double> values = {};
  Bytes max_bytes = 0;
};
NodeRef padded_batch_node(NodeRef input, int64_t size, bool drop_remainder, PadFacts facts);
NodeRef unbatch_node(NodeRef input);
NodeRef rebatch_node(NodeRef input, int64_t size, bool drop_remainder);
NodeRef window_node(NodeRef input, int64_t size, int64_t shift, int64_t stride);

// ---- order and number (order.cc, number.cc)
NodeRef permute_node(NodeRef input, std::optional<uint64_t> seed, bool each_epoch);
NodeRef buffer_shuffle_node(NodeRef input, int64_t elements, Bytes bytes,
                            std::optional<uint64_t> seed, bool each_epoch);
NodeRef repeat_node(NodeRef input, int64_t count);
NodeRef take_node(NodeRef input, int64_t count);
NodeRef skip_node(NodeRef input, int64_t count);
NodeRef shard_node(NodeRef input, int64_t shards, int64_t index);
NodeRef zip_node(std::vector<NodeRef> inputs);
NodeRef concatenate_node(NodeRef first, NodeRef second);
NodeRef enumerate_node(NodeRef input, int64_t start);
NodeRef sample_node(std::vector<NodeRef> inputs, std::vector<double> weights,
                    std::optional<uint64_t> seed, bool stop_on_empty);
NodeRef assert_cardinality_node(NodeRef input, int64_t cardinality);

// ---- streams (flow.cc)
NodeRef filter_node(NodeRef input, Predicate predicate);
using Expand = std::function<NodeRef(const Element&)>;
struct InterleaveFacts {
  ElementSpec spec;
  int64_t cycle = 1, block = 1;
  Bytes inner = 0;  // what one inner data set may need; 0: twice an element and 256 KiB
};
NodeRef interleave_node(NodeRef input, Expand expand, InterleaveFacts facts);
NodeRef ignore_errors_node(NodeRef input, bool log);

// ---- ahead and kept (prefetch.cc, cached.cc)
NodeRef prefetch_node(NodeRef input, int64_t elements, Bytes bytes);
NodeRef cache_node(NodeRef input, Bytes bytes);

// Elements that were skipped, for people: the first few messages.
std::vector<std::string> skipped_messages(Run& run, const Node& node);

}  // namespace pl
