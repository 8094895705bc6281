// Recorder: appends nodes to a Graph. Op functions call it through `apply` when an operand is a
// symbol.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "op/op.h"

namespace pl {

class Recorder {
 public:
  // Sources. A variable starts at version 0; an input is filled before each step.
  Tensor input(std::string name, Meta meta, bool rows);
  Tensor variable(std::string path, Meta meta, Category category);

  Tensors append(const Op& op, const Tensors& in, Attrs attrs);
  void keep(const Tensor& tensor, std::string name);

  // What a value becomes when an op meets it in this trace. Without it a value is refused, and ops
  // on values alone run at once.
  using Capture = std::function<Tensor(const Tensor& value)>;
  void set_capture(Capture capture) { capture_ = std::move(capture); }
  bool captures() const { return static_cast<bool>(capture_); }
  Tensor capture(const Tensor& value) { return capture_(value); }

  // Layer path of the nodes appended from now on; scopes nest: "block/dense".
  void push_scope(const std::string& name);
  void pop_scope();
  std::string path() const;

  // Forward values are activations; trace/gradient.cc switches to gradients.
  void set_category(Category category) { category_ = category; }
  Category category() const { return category_; }

  const Graph& graph() const { return graph_; }
  Graph take() { return std::move(graph_); }

 private:
  ValueId add_value(Value value);
  Graph graph_;
  std::vector<std::string> scopes_;
  Category category_ = Category::activations;
  Capture capture_;
};

// Whether dimension 0 counts the samples of the batch being traced. Values (eager) answer false.
bool carries_rows(const Tensor& tensor);

// The newest version of a traced variable, whichever version `variable` is; a value is its own.
Tensor last_version(const Tensor& variable);

// Puts a recorder in scope for ops without operands. Thread-local.
class RecorderScope {
 public:
  explicit RecorderScope(Recorder& recorder);
  ~RecorderScope();
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;
  static Recorder* current();  // null when there is none

 private:
  Recorder* previous_;
};

// Names a layer while its ops are recorded.
class PathScope {
 public:
  PathScope(Recorder* recorder, const std::string& name) : recorder_(recorder) {
    if (recorder_) recorder_->push_scope(name);
  }
  ~PathScope() {
    if (recorder_) recorder_->pop_scope();
  }
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  Recorder* recorder_;
};

}  // namespace pl
