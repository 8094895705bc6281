// lay_out(): the blocks of an order of steps. Written for clarity, not speed: it runs once for each
// plan of the pool, and tests hold it against evaluate().
#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/problem.h"

namespace pl {
namespace {

// One write of a value, or its presence before the first step.
struct Copy {
  int last_use;  // a step; the last one for the final copy of a kept value
  bool kept;     // readable behind the last step
};

class LayingOut {
 public:
  LayingOut(const Problem& problem, std::span<const int> steps)
      : problem_(problem), steps_(steps), copy_of_(problem.values.size(), -1) {
    const int nodes = static_cast<int>(problem.nodes.size());
    const int values = static_cast<int>(problem.values.size());
    for (size_t s = 0; s < steps.size(); ++s) {
      if (steps[s] < nodes) continue;
      Problem::Node& mark = marks_[static_cast<int>(s)];
      const int value = (steps[s] - nodes) % values;
      (steps[s] - nodes < values ? mark.reads : mark.writes).push_back(value);
    }
  }

  Layout run() {
    find_copies();
    place_sources();
    layout_.steps.resize(steps_.size());
    for (size_t s = 0; s < steps_.size(); ++s) place_step(static_cast<int>(s));
    layout_.final_block.assign(problem_.values.size(), -1);
    for (size_t v = 0; v < problem_.values.size(); ++v)
      if (problem_.values[v].keep) layout_.final_block[v] = block_of_[v];
    return std::move(layout_);
  }

 private:
  const Problem::Node& node_at(int s) const {
    const size_t node = index(steps_[index(s)]);
    return node < problem_.nodes.size() ? problem_.nodes[node] : marks_.at(s);
  }

  // Copies in the order in which place_step meets them: sources by value, then writes by step.
  void find_copies() {
    const int last = std::max(static_cast<int>(steps_.size()) - 1, 0);
    auto open = [&](int value, int s) {
      copy_of_[index(value)] = static_cast<int>(copies_.size());
      copies_.push_back({s, false});
    };
    for (size_t v = 0; v < problem_.values.size(); ++v)
      if (problem_.values[v].producer < 0) open(static_cast<int>(v), 0);
    for (int s = 0; s < static_cast<int>(steps_.size()); ++s) {
      for (int value : node_at(s).reads) {
        check(copy_of_[index(value)] >= 0, "a value is read before it is written");
        copies_[index(copy_of_[index(value)])].last_use = s;
      }
      for (int value : node_at(s).writes) open(value, s);
    }
    for (size_t v = 0; v < problem_.values.size(); ++v)
      if (problem_.values[v].keep && copy_of_[v] >= 0) copies_[index(copy_of_[v])] = {last, true};
  }

  int open_block(Bytes bytes, int start, int end) {
    if (bytes == 0) return -1;
    layout_.blocks.push_back({start, end, bytes});
    return static_cast<int>(layout_.blocks.size()) - 1;
  }

  void place_sources() {
    block_of_.assign(problem_.values.size(), -1);
    layout_.source_block.assign(problem_.values.size(), -1);
    int copy = 0;
    for (size_t v = 0; v < problem_.values.size(); ++v) {
      if (problem_.values[v].producer >= 0) continue;
      copy_of_[v] = copy++;
      block_of_[v] = open_block(problem_.values[v].bytes, 0, copies_[index(copy_of_[v])].last_use);
      layout_.source_block[v] = block_of_[v];
    }
    next_copy_ = copy;
  }

  // The block of a read that write number `out` of the node may take, or -1.
  int block_in_place(int s, int out) const {
    const Problem::Node& node = node_at(s);
    for (const InOut& pair : node.in_place) {
      if (pair.out != out) continue;
      const int read = node.reads[index(pair.in)];
      const Copy& copy = copies_[index(copy_of_[index(read)])];
      const int block = block_of_[index(read)];
      if (copy.last_use != s || copy.kept || block < 0) continue;
      if (layout_.blocks[index(block)].bytes !=
          problem_.values[index(node.writes[index(out)])].bytes)
        continue;
      const auto& taken = layout_.steps[index(s)].writes;
      if (std::find(taken.begin(), taken.end(), block) == taken.end()) return block;
    }
    return -1;
  }

  void place_step(int s) {
    const Problem::Node& node = node_at(s);
    StepBlocks& step = layout_.steps[index(s)];
    for (int value : node.reads) step.reads.push_back(block_of_[index(value)]);
    for (size_t out = 0; out < node.writes.size(); ++out) {
      const Copy& copy = copies_[index(next_copy_) + out];
      int block = block_in_place(s, static_cast<int>(out));
      if (block >= 0)
        layout_.blocks[index(block)].end = std::max(s, copy.last_use);
      else
        block = open_block(problem_.values[index(node.writes[out])].bytes, s, copy.last_use);
      step.writes.push_back(block);
    }
    for (size_t out = 0; out < node.writes.size(); ++out) {
      copy_of_[index(node.writes[out])] = next_copy_++;
      block_of_[index(node.writes[out])] = step.writes[out];
    }
    step.workspace = open_block(node.workspace, s, s);
  }

  const Problem& problem_;
  std::span<const int> steps_;
  std::map<int, Problem::Node> marks_;  // by step: where a value has left, or begins to come back
  std::vector<Copy> copies_;
  std::vector<int> copy_of_;   // per value: the copy that is there now
  std::vector<int> block_of_;  // per value: the block of that copy, or -1
  int next_copy_ = 0;
  Layout layout_;
};

}  // namespace

Layout lay_out(const Problem& problem, std::span<const int> steps) {
  return LayingOut(problem, steps).run();
}

Bytes height_of(const Problem& problem, std::span<const int> steps) {
  Layout layout = lay_out(problem, steps);
  return assign_addresses(layout.blocks, static_cast<int>(steps.size()));
}

}  // namespace pl
