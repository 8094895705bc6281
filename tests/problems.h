// Bare planning problems for tests and benchmarks: random ones, and the skeletons of models.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "plan/problem.h"
#include "tests/graph_run.h"

namespace pl::test {

// Adds values and nodes to a problem. Ids are returned.
class ProblemMaker {
 public:
  int source(Bytes bytes, bool keep = false) {
    problem.values.push_back({.bytes = bytes, .keep = keep});
    return static_cast<int>(problem.values.size()) - 1;
  }
  // One node; its writes are appended to the values and the first is returned.
  int node(const std::string& kind, double ms, std::vector<int> reads, std::vector<Bytes> writes,
           Bytes workspace = 0, bool rerun = true) {
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    Problem::Node node{.ms = ms, .workspace = workspace, .rerun = rerun, .reads = reads};
    std::string shape = kind;
    for (Bytes bytes : writes) {
      shape += ":" + std::to_string(bytes);
      node.writes.push_back(static_cast<int>(problem.values.size()));
      problem.values.push_back(
          {.bytes = bytes, .producer = static_cast<int>(problem.nodes.size())});
    }
    node.kind = std::hash<std::string>()(shape) | 1;
    problem.nodes.push_back(std::move(node));
    return problem.nodes.back().writes.empty() ? -1 : problem.nodes.back().writes[0];
  }
  // The last node's first write may take the bytes of these reads.
  void in_place(const std::vector<int>& values) {
    Problem::Node& node = problem.nodes.back();
    for (size_t i = 0; i < node.reads.size(); ++i)
      if (std::find(values.begin(), values.end(), node.reads[i]) != values.end())
        node.in_place.push_back({static_cast<int>(i), 0});
  }
  // The update of a variable by its gradient: an effect.
  void update(int variable, int gradient, double ms) {
    problem.values[index(variable)].replaced_by = static_cast<int>(problem.nodes.size());
    node("update", ms, {variable, gradient}, {0}, 0, false);
  }

  Problem problem;
};

// A network of layers, each a node that writes `out`, with the gradients of a training step behind
// it. Records what the backward pass needs.
class Training {
 public:
  explicit Training(ProblemMaker& maker) : maker_(maker) {}

  // y = layer(x, W): the gradient reads x and W; parameter bytes 0 means no weight.
  int layer(const std::string& kind, std::vector<int> in, Bytes out, Bytes weight, double ms,
            bool reads_output = false, bool in_place = false, Bytes workspace = 0) {
    Record record{.kind = kind,
                  .in = in,
                  .weight_bytes = weight,
                  .ms = ms,
                  .reads_output = reads_output,
                  .workspace = workspace};
    if (weight > 0) {
      record.weight = maker_.source(0);
      in.push_back(record.weight);
    }
    record.out = maker_.node(kind, ms, in, {out}, workspace);
    if (in_place) maker_.in_place({record.in[0]});
    records_.push_back(record);
    return record.out;
  }

  // Gradients in reverse, each update as soon as its gradient is there.
  void finish(int loss_of, int labels) {
    const Bytes bytes = maker_.problem.values[index(loss_of)].bytes;
    const int loss = maker_.node("loss", 0.1, {loss_of, labels}, {64});
    maker_.problem.values[index(loss)].keep = true;
    std::vector<int> gradient(maker_.problem.values.size(), -1);
    gradient[index(loss_of)] = maker_.node("dloss", 0.1, {loss_of, labels}, {bytes});
    for (size_t r = records_.size(); r-- > 0;) backward(records_[r], gradient);
  }

 private:
  struct Record {
    std::string kind;
    std::vector<int> in;
    int out = -1, weight = -1;
    Bytes weight_bytes = 0;
    double ms = 0;
    bool reads_output = false;
    Bytes workspace = 0;
  };

  void backward(const Record& record, std::vector<int>& gradient) {
    const int dout = gradient[index(record.out)];
    if (dout < 0) return;
    std::vector<int> reads = record.reads_output ? std::vector<int>{record.out} : record.in;
    reads.push_back(dout);
    const bool addition = record.kind == "add";
    if (record.weight >= 0) {
      const int dw = maker_.node(record.kind + "_dw", record.ms, reads, {record.weight_bytes},
                                 record.workspace);
      reads = {record.weight, dout};
      for (int in : record.in) pass_on(in, record, reads, addition, dout, gradient);
      maker_.update(record.weight, dw, 0.01);
      return;
    }
    for (int in : record.in) pass_on(in, record, reads, addition, dout, gradient);
  }

  void pass_on(int in, const Record& record, const std::vector<int>& reads, bool addition, int dout,
               std::vector<int>& gradient) {
    if (maker_.problem.values[index(in)].producer < 0) return;
    const Bytes bytes = maker_.problem.values[index(in)].bytes;
    int d = dout;
    if (!addition)
      d = maker_.node(record.kind + "_dx", record.ms, reads, {bytes}, record.workspace);
    if (!addition) maker_.in_place({dout});
    int& sum = gradient[index(in)];
    if (sum >= 0) {
      d = maker_.node("sum", 0.05, {sum, d}, {bytes});
      maker_.in_place(maker_.problem.nodes.back().reads);
    }
    sum = d;
  }

  ProblemMaker& maker_;
  std::vector<Record> records_;
};

inline constexpr Bytes kUnit = 1 << 20;

// A decoder-only transformer: `blocks` equal blocks of about 56 nodes with their gradients.
inline Problem transformer(int blocks, Bytes unit = kUnit) {
  ProblemMaker maker;
  Training net(maker);
  const int tokens = maker.source(64), labels = maker.source(64);
  const Bytes w = unit / 2;
  int x = net.layer("embed", {tokens}, unit, 8 * w, 0.2);
  for (int b = 0; b < blocks; ++b) {
    int y = net.layer("norm", {x}, unit, 64, 0.1);
    int q = net.layer("matmul", {y}, unit, w, 1.0);
    int k = net.layer("matmul", {y}, unit, w, 1.0);
    int v = net.layer("matmul", {y}, unit, w, 1.0);
    q = net.layer("bias", {q}, unit, 64, 0.1, false, true);
    k = net.layer("bias", {k}, unit, 64, 0.1, false, true);
    v = net.layer("bias", {v}, unit, 64, 0.1, false, true);
    int a = net.layer("attention", {q, k, v}, unit, 0, 1.5, false, false, unit / 4);
    a = net.layer("matmul", {a}, unit, w, 1.0);
    a = net.layer("dropout", {a}, unit, 0, 0.1, false, true);
    x = net.layer("add", {x, a}, unit, 0, 0.1);
    y = net.layer("norm", {x}, unit, 64, 0.1);
    y = net.layer("matmul4", {y}, 4 * unit, 4 * w, 4.0);
    y = net.layer("gelu", {y}, 4 * unit, 0, 0.4);
    y = net.layer("matmul4", {y}, unit, 4 * w, 4.0);
    y = net.layer("dropout", {y}, unit, 0, 0.1, false, true);
    x = net.layer("add", {x, y}, unit, 0, 0.1);
  }
  x = net.layer("norm", {x}, unit, 64, 0.1);
  x = net.layer("head", {x}, 6 * unit, 8 * w, 8.0);
  net.finish(x, labels);
  return std::move(maker.problem);
}

// Convolutions with shortcuts; halving sizes, doubling channels.
inline Problem residual_network(int stages, int blocks, Bytes unit = kUnit) {
  ProblemMaker maker;
  Training net(maker);
  const int image = maker.source(unit), labels = maker.source(64);
  Bytes size = 8 * unit;
  int x = net.layer("stem", {image}, size, 64 * 64, 2.0);
  for (int s = 0; s < stages; ++s, size /= 2)
    for (int b = 0; b < blocks; ++b) {
      const double ms = 2.0;
      int y = net.layer("conv", {x}, size, 64 * 1024 << s, ms, false, false, size / 8);
      y = net.layer("batchnorm", {y}, size, 64, 0.3);
      y = net.layer("relu", {y}, size, 0, 0.1, true, true);
      y = net.layer("conv", {y}, size, 64 * 1024 << s, ms, false, false, size / 8);
      y = net.layer("batchnorm", {y}, size, 64, 0.3);
      const int shortcut = b == 0 ? net.layer("project", {x}, size, 64 * 256 << s, 0.5) : x;
      y = net.layer("add", {shortcut, y}, size, 0, 0.1);
      x = net.layer("relu", {y}, size, 0, 0.1, true, true);
    }
  x = net.layer("pool", {x}, 64 * 1024, 0, 0.1);
  x = net.layer("dense", {x}, 64 * 64, 64 * 1024, 0.1);
  net.finish(x, labels);
  return std::move(maker.problem);
}

// Down and up again, with skips over everything between.
inline Problem u_network(int levels, Bytes unit = kUnit) {
  ProblemMaker maker;
  Training net(maker);
  const int image = maker.source(unit), labels = maker.source(unit);
  Bytes size = 32 * unit;
  int x = image;
  std::vector<int> skips;
  auto convolutions = [&](double ms) {
    for (int i = 0; i < 2; ++i) {
      x = net.layer("conv", {x}, size, 64 * 1024, ms, false, false, size / 16);
      x = net.layer("relu", {x}, size, 0, 0.1, true, true);
    }
  };
  for (int l = 0; l < levels; ++l) {
    convolutions(3.0);
    skips.push_back(x);
    size /= 2;
    x = net.layer("pool", {x}, size / 2, 0, 0.2);
  }
  convolutions(3.0);
  for (int l = levels; l-- > 0;) {
    size *= 2;
    x = net.layer("up", {x}, size, 64 * 512, 1.0);
    x = net.layer("join", {x, skips[index(l)]}, 2 * size, 0, 0.3);
    convolutions(3.0);
  }
  net.finish(x, labels);
  return std::move(maker.problem);
}

// Anything: branches, skips, several outputs, tied variables with updates, effects, in-place pairs,
// workspaces, values nobody reads, kept values.
inline Problem random_problem(Numbers& numbers, int most_nodes = 30) {
  ProblemMaker maker;
  Problem& problem = maker.problem;
  auto size = [&] { return Bytes{64} * (numbers.chance(0.1) ? 0 : 1 + numbers.below(20)); };
  const int sources = 1 + numbers.below(3), variables = numbers.below(4);
  for (int i = 0; i < sources; ++i) maker.source(size(), numbers.chance(0.2));
  for (int i = 0; i < variables; ++i) maker.source(0);
  const int nodes = 1 + numbers.below(most_nodes);
  std::vector<bool> gone(problem.values.size(), false);
  for (int n = 0; n < nodes; ++n) {
    std::vector<int> reads;
    const int values = static_cast<int>(problem.values.size());
    for (int r = 1 + numbers.below(3); r > 0; --r) {
      const int back =
          numbers.chance(0.6) ? numbers.below(std::min(values, 4)) : numbers.below(values);
      const int value = values - 1 - back;
      if (!gone[index(value)]) reads.push_back(value);
    }
    if (numbers.chance(0.1) && variables > 0) {
      const int variable = sources + numbers.below(variables);
      if (!gone[index(variable)]) {
        maker.update(variable, reads.empty() ? 0 : reads[0], numbers.real());
        gone[index(variable)] = true;
        gone.resize(problem.values.size(), false);
        continue;
      }
    }
    std::vector<Bytes> writes;
    for (int w = numbers.chance(0.2) ? 2 : 1; w > 0; --w) writes.push_back(size());
    maker.node("n" + std::to_string(numbers.below(4)), numbers.real(), reads, writes,
               numbers.chance(0.2) ? size() : 0, !numbers.chance(0.08));
    Problem::Node& node = problem.nodes.back();
    for (size_t w = 0; w < node.writes.size(); ++w) {
      problem.values[index(node.writes[w])].keep = numbers.chance(0.06);
      for (size_t r = 0; r < node.reads.size(); ++r)
        if (numbers.chance(0.4)) {
          node.in_place.push_back({static_cast<int>(r), static_cast<int>(w)});
          if (numbers.chance(0.5))
            problem.values[index(node.writes[w])].bytes =
                problem.values[index(node.reads[r])].bytes;
        }
    }
    std::reverse(node.in_place.begin(), node.in_place.end());
    gone.resize(problem.values.size(), false);
  }
  return std::move(problem);
}

// Drops taken at random from those that could have a meaning.
inline Drops random_drops(const Problem& problem, Numbers& numbers, double share) {
  Drops drops;
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (size_t v = 0; v < problem.values.size(); ++v) {
      const auto& reads = problem.nodes[n].reads;
      const bool used = std::find(reads.begin(), reads.end(), static_cast<int>(v)) != reads.end();
      const int producer = problem.values[v].producer;
      if (producer < 0 || producer >= static_cast<int>(n)) continue;
      if (numbers.chance(used ? share : share / 8))
        drops.push_back({static_cast<int>(v), static_cast<int>(n)});
    }
  std::sort(drops.begin(), drops.end());
  return drops;
}

}  // namespace pl::test
