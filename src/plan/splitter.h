// Splitter: what every split of a step shares. Nodes are put before a loop, into its body or behind
// it; what the body sums is accumulated over the trips. Which node goes where, and what a trip has
// of a value, is what splits differ in (split.cc: samples; band_split.cc: image rows).
#pragma once

#include "graph/graph.h"
#include "op/op.h"

namespace pl {

class Splitter {
 public:
  Splitter(const Graph& whole, int64_t trips, int64_t batch);
  virtual ~Splitter() = default;
  Graph run();

 protected:
  // Where a value or a node of the whole step goes.
  enum class Part : uint8_t { before, body, after };

  // Called in order, once for each node; sets part_ and summed_ of the outputs.
  virtual Part classify(const Node& node) = 0;
  // What a trip has of a value that carries samples.
  virtual Meta part_meta(ValueId id) const = 0;
  // Of an input that carries samples, with bands: Loop::In::starts.
  virtual std::vector<int64_t> starts_of(ValueId) const { return {}; }
  // Whether the body's node made of a value what a trip has of it.
  virtual bool fits(ValueId id, const Meta& made) const {
    const Value& value = whole_.values[index(id)];
    return made == (value.rows ? part_meta(id) : value.meta);
  }
  // Attributes that hold the sizes of a whole step.
  virtual void adapt(const Node& node, Node& copy) const = 0;
  virtual void finish(Loop& loop) const = 0;
  // A kept value that carries samples: by default the parts of all trips one behind the other.
  virtual void keep(ValueId id) { stack(id); }
  [[noreturn]] virtual void refuse(const Node& node, const std::string& why) const = 0;

  const Graph& whole_;
  int64_t trips_, batch_;
  std::vector<Part> part_;    // per value of the whole step
  std::vector<bool> summed_;  // per value: made in the body, summed over the trips
  std::vector<bool> early_;   // per node: runs before the loop as well, on the whole batch

  // What the body reads of the whole step.
  ValueId body_operand(ValueId id);
  // Hands a term of the body to a node `add`, whose operands are a variable that lives outside and
  // starts at zero, the term, and those in `add`; the variable's last version is the whole's `id`.
  void collect(ValueId id, Node add);
  // Whether sums may be made where they live, by ops that add to them; else by `accumulate` alone.
  virtual bool adds_in_place() const { return false; }
  bool is_outside(ValueId id) const { return outside_[index(id)] >= 0; }
  void stack(ValueId id);

 private:
  ValueId add_outside(ValueId id);
  void copy_sources();
  void copy_outside(const Node& node);
  ValueId add_body(Value value);
  ValueId body_variable(const std::string& path, const Meta& meta, Category category);
  void copy_to_body(const Node& node);
  void accumulate(ValueId id);
  bool accumulate_in_place(ValueId id);
  ValueId make_sum(const std::vector<ValueId>& terms);
  bool only_reader(ValueId id, const Node* reader) const;
  bool wanted_outside(ValueId id) const;
  void close_loop();

  std::vector<Part> node_part_;
  std::vector<ValueId> in_body_, outside_;
  std::vector<NodeId> aliases_;  // that are kept, in order
  Graph outer_;
  Loop loop_;
};

}  // namespace pl
