// An independent reading of a schedule over bare problems: bytes are filled with the names of
// values, and every read must find its own. Shares no code with the planner.
#pragma once

#include <map>
#include <set>
#include <string>

#include "plan/problem.h"

namespace pl::test {

class Replay {
 public:
  Replay(const Problem& problem, const std::vector<int>& steps, const Layout& layout)
      : problem_(problem), steps_(steps), layout_(layout) {}

  // Empty: all is well. Otherwise the first thing that is not.
  std::string run() {
    check_order();
    for (size_t v = 0; v < problem_.values.size() && fault_.empty(); ++v)
      if (problem_.values[v].producer < 0) {
        expect(layout_.source_block[v], v, "source");
        put(layout_.source_block[v], static_cast<int>(v));
      }
    for (size_t s = 0; s < steps_.size() && fault_.empty(); ++s) step(s);
    for (size_t v = 0; v < problem_.values.size() && fault_.empty(); ++v)
      if (problem_.values[v].keep) {
        expect(layout_.final_block[v], v, "kept value");
        if (!holds(layout_.final_block[v], static_cast<int>(v))) fail("lost kept value", v);
      }
    return fault_;
  }

 private:
  struct Region {
    ByteOffset end;
    int value;
  };

  void fail(const std::string& what, size_t which) {
    if (fault_.empty()) fault_ = what + " " + std::to_string(which);
  }
  void expect(int block, size_t v, const char* what) {
    if ((block < 0) != (problem_.values[v].bytes == 0))
      fail(std::string("no block for ") + what, v);
  }

  // First runs in base order, effects once, inputs written, replaced values not read.
  void check_order() {
    std::vector<int> runs(problem_.nodes.size(), 0);
    int next = 0;
    for (int node : steps_) {
      if (runs[index(node)]++ == 0 && node != next++) fail("out of base order: node", index(node));
      if (runs[index(node)] > 1 && !problem_.nodes[index(node)].rerun)
        fail("effect again", index(node));
      for (int value : problem_.nodes[index(node)].reads) {
        const auto& v = problem_.values[index(value)];
        if (v.producer >= 0 && runs[index(v.producer)] == 0) fail("unwritten value", index(value));
        if (v.replaced_by >= 0 && v.replaced_by != node && runs[index(v.replaced_by)] > 0)
          fail("replaced value read", index(value));
      }
    }
    if (next != static_cast<int>(problem_.nodes.size())) fail("nodes missing after", index(next));
    if (steps_.size() > 3 * problem_.nodes.size()) fail("too many steps", steps_.size());
  }

  // Fills a block; whatever lies under it is gone. -2 stands for rubbish.
  void put(int block, int value) {
    if (block < 0) return;
    const StorageBlock& b = layout_.blocks[index(block)];
    for (auto at = regions_.begin(); at != regions_.end();)
      at = at->first < b.at + b.bytes && b.at < at->second.end ? regions_.erase(at) : std::next(at);
    regions_[b.at] = {b.at + b.bytes, value};
  }
  bool holds(int block, int value) const {
    if (block < 0) return true;
    const StorageBlock& b = layout_.blocks[index(block)];
    const auto at = regions_.find(b.at);
    return at != regions_.end() && at->second.value == value && at->second.end == b.at + b.bytes;
  }

  void step(size_t s) {
    const Problem::Node& node = problem_.nodes[index(steps_[s])];
    const StepBlocks& blocks = layout_.steps[s];
    put(blocks.workspace, -2);
    for (size_t r = 0; r < node.reads.size(); ++r) {
      expect(blocks.reads[r], index(node.reads[r]), "read");
      if (!holds(blocks.reads[r], node.reads[r])) fail("wrong bytes read at step", s);
    }
    for (size_t w = 0; w < node.writes.size(); ++w) {
      expect(blocks.writes[w], index(node.writes[w]), "write");
      for (size_t r = 0; r < node.reads.size(); ++r) {
        if (!touch(blocks.reads[r], blocks.writes[w])) continue;
        bool allowed = false;
        for (const InOut& pair : node.in_place)
          allowed |= pair.in == static_cast<int>(r) && pair.out == static_cast<int>(w);
        if (!allowed || blocks.reads[r] != blocks.writes[w]) fail("write over a read at step", s);
      }
      put(blocks.writes[w], node.writes[w]);
    }
    for (size_t w = 0; w < node.writes.size(); ++w)
      if (!holds(blocks.writes[w], node.writes[w])) fail("write over a write at step", s);
    if (blocks.workspace >= 0 && !holds(blocks.workspace, -2))
      fail("write over workspace at step", s);
    if (!ran_.insert(steps_[s]).second) return;
    // Copies of released values are gone from here on.
    std::erase_if(regions_, [&](const auto& region) {
      const int value = region.second.value;
      return value >= 0 && problem_.values[index(value)].release == steps_[s];
    });
  }

  bool touch(int a, int b) const {
    if (a < 0 || b < 0) return false;
    const StorageBlock &x = layout_.blocks[index(a)], &y = layout_.blocks[index(b)];
    return x.at < y.at + y.bytes && y.at < x.at + x.bytes;
  }

  const Problem& problem_;
  const std::vector<int>& steps_;
  const Layout& layout_;
  std::map<ByteOffset, Region> regions_;  // by first byte
  std::set<int> ran_;                     // nodes
  std::string fault_;
};

}  // namespace pl::test
