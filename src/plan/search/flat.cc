#include "plan/search/flat.h"

#include <algorithm>

namespace pl {
namespace {

void append(std::vector<int>& at, std::vector<int>& list, const std::vector<int>& part) {
  list.insert(list.end(), part.begin(), part.end());
  at.push_back(static_cast<int>(list.size()));
}

}  // namespace

Flat::Flat(const Problem& problem)
    : nodes(static_cast<int>(problem.nodes.size())),
      values(static_cast<int>(problem.values.size())) {
  read_at = write_at = pair_at = {0};
  std::vector<int> use_count(index(values) + 1, 0);
  for (const Problem::Node& node : problem.nodes) {
    append(read_at, read_list, node.reads);
    append(write_at, write_list, node.writes);
    std::vector<InOut> pairs = node.in_place;
    std::stable_sort(pairs.begin(), pairs.end(),
                     [](const InOut& a, const InOut& b) { return a.out < b.out; });
    for (const InOut& pair : pairs) {
      const InOut by_value{node.reads[index(pair.in)], node.writes[index(pair.out)]};
      const Bytes size = problem.values[index(by_value.in)].bytes;
      if (size > 0 && size == problem.values[index(by_value.out)].bytes)
        pair_list.push_back(by_value);
    }
    pair_at.push_back(static_cast<int>(pair_list.size()));
    ms.push_back(node.ms);
    workspace.push_back(node.workspace);
    rerun.push_back(node.rerun);
    joins.push_back(node.joins);
    for (int value : node.reads) ++use_count[index(value) + 1];
  }
  for (size_t v = 1; v < use_count.size(); ++v) use_count[v] += use_count[v - 1];
  use_at = use_count;
  use_list.resize(read_list.size());
  for (int n = 0; n < nodes; ++n)
    for (int value : reads(n)) use_list[index(use_count[index(value)]++)] = n;
  for (int v = 0; v < values; ++v) {
    const Problem::Value& value = problem.values[index(v)];
    bytes.push_back(value.bytes);
    producer.push_back(value.producer);
    replaced_by.push_back(value.replaced_by);
    keep.push_back(value.keep);
    if (value.keep) kept_bytes += value.bytes;
    if (value.release >= 0 && value.bytes > 0) released.emplace_back(value.release, v);
    if (value.producer < 0 && !value.keep && uses(v).empty()) unread_source_bytes += value.bytes;
  }
  std::sort(released.begin(), released.end());
  copies = problem.copies;
  marked = copies.bytes_per_ms > 0;
  if (marked) add_marks();
  make_walks();
}

// A value that has left is read by its mark; one that comes back is written by it. What is there
// before the first step and kept stays in its place: the next step finds it there.
void Flat::add_marks() {
  for (int v = 0; v < values; ++v)
    leaves.push_back(bytes[index(v)] >= std::max<Bytes>(copies.least, 1) &&
                     !(producer[index(v)] < 0 && keep[index(v)]));
  for (const auto& [node, value] : released) leaves[index(value)] = 0;
  for (int v = 0; v < values; ++v) {
    append(read_at, read_list, {v});
    append(write_at, write_list, {});
  }
  for (int v = 0; v < values; ++v) {
    append(read_at, read_list, {});
    append(write_at, write_list, {v});
  }
  pair_at.resize(pair_at.size() + 2 * index(values), static_cast<int>(pair_list.size()));
}

void Flat::make_walks() {
  auto touch = [&](std::span<const int> list) {
    for (int value : list)
      if (bytes[index(value)] > 0) touches.push_back({value, bytes[index(value)]});
    return static_cast<int>(touches.size());
  };
  const int steps = nodes + (marked ? 2 * values : 0);
  for (int n = 0; n < steps; ++n) {
    Walk walk{.first = static_cast<int>(touches.size()),
              .pairs = pair_at[index(n)],
              .pairs_end = pair_at[index(n) + 1],
              .workspace = n < nodes ? workspace[index(n)] : 0,
              .ms = n < nodes ? ms[index(n)] : 0};
    walk.reads = touch(writes(n));
    walk.end = touch(reads(n));
    walk.replaced = nodes;
    for (int value : reads(n))
      if (const int by = replaced_by[index(value)]; by >= 0)
        walk.replaced = std::min(walk.replaced, by);
    const auto all = pairs(n);
    walk.one_output = std::all_of(all.begin(), all.end(),
                                  [&](const InOut& pair) { return pair.out == all[0].out; });
    walks.push_back(walk);
  }
}

bool by_place(const Drop& a, const Drop& b) {
  return a.at != b.at ? a.at < b.at : a.value < b.value;
}

Drops placed(Drops drops) {
  std::sort(drops.begin(), drops.end(), by_place);
  return drops;
}

}  // namespace pl
