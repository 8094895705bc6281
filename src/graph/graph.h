// Graph: one training step as plain data. Vectors of nodes and values with integer ids; forward,
// gradient and update live in one graph. Variables are versioned: an update node writes the next
// version, and every reader of a version precedes its replacement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/attrs.h"
#include "tensor/shape.h"

namespace pl {

using NodeId = int;
using ValueId = int;
using VariableId = int;

// Ids are ints with -1 for none; vectors want size_t.
constexpr size_t index(int id) { return static_cast<size_t>(id); }

// What a value is for; the plan's bill is split by it.
enum class Category : uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  workspace,
  input,
  other
};
inline constexpr int kCategories = 7;
const char* name_of(Category category);

struct Value {
  Meta meta;
  NodeId producer = -1;      // -1: an input or a variable's first version
  VariableId variable = -1;  // the variable this is a version of, if any
  int version = 0;
  Category category = Category::activations;
  bool rows = false;  // dimension 0 counts the samples of the batch: bytes are b * rows
  std::string path;   // layer path, for messages and reports
};

struct Node {
  std::string op;  // a name in the op catalogue
  std::vector<ValueId> in, out;
  Attrs attrs;
  std::string path;  // layer path
  int loop = -1;     // index into Graph::loops when op is "loop"
};

struct GraphVariable {
  std::string path;
  Meta meta;
  Category category = Category::parameters;
  ValueId first = -1,
          last = -1;  // before and after the step; equal when the step does not write it
};

struct Loop;

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;  // in base order
  std::vector<GraphVariable> variables;
  std::vector<ValueId> inputs;  // filled by the caller before each step
  std::vector<ValueId> keep;    // still readable when the step has ended
  std::vector<Loop> loops;
};

// The one loop node. The body is a graph of its own, run `trips` times. Its inputs and variables
// are what lies outside: each is named in exactly one of the links below. Outer values are those of
// the loop node's `in` and `out`.
//
// With `bands` each trip works on a part of one sample: trip i has band i % bands of sample
// i / bands. A band is a run of image rows (axis 1); bands overlap, and of what they sum each
// counts its own rows only (own_rows).
struct Loop {
  struct In {
    ValueId outer, body;
    std::vector<int64_t> starts = {};  // with bands, of sliced values: the first row of each band
  };
  struct Out {
    ValueId body, outer;
  };
  struct Carried {
    ValueId initial, body_in, body_out, final;
  };
  Graph body;
  int64_t trips = 0;
  int64_t samples = 0;           // of the batch, in one trip
  int64_t bands = 0;             // of each sample; 0: a trip has whole samples
  std::vector<In> shared;        // a variable of the body: the same value in every trip
  std::vector<In> sliced;        // an input: trip i reads rows [i * body rows, (i + 1) * body rows)
  std::vector<In> params;        // an input: the step's parameters, with the trip's rows
  std::vector<Carried> carried;  // an input: trip i + 1 reads what trip i wrote
  std::vector<Out> stacked;      // a kept value: rows of all trips one after another
  std::vector<Out> accumulated;  // a variable's last version: zero before the first trip
};

// Where trip `trip` reads a sliced value or writes a stacked one, in bytes from its first; `part`
// and `whole` are its metas inside and outside of the body.
Bytes trip_offset(const Loop& loop, const Meta& part, const Meta& whole,
                  const std::vector<int64_t>& starts, int64_t trip);

// One line per variable, input, node and kept value; stable, for golden tests and diffs.
std::string print(const Graph& graph);

// Throws InternalError at the first broken rule: ids in range, every value written once, reads
// after writes in base order, versions in order, every reader of a version before the next one is
// written, loop links complete and their body outputs kept.
void check_graph(const Graph& graph);

}  // namespace pl
