// Variable: a value that lives on and is assigned to, such as a weight. Reading it gives a tensor
// that later assignments do not change. In a traced function it is a variable of the graph.
//
//   Variable w(fill({3}, 1.0), {.name = "w"});
//   w.assign_sub(scale(gradient, 0.1));
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "tensor/tensor.h"

namespace pl {

struct VariableOptions {
  std::string name = "variable";
  bool trainable = true;  // gradient tapes watch it when it is read
};

struct VariableState {
  std::string name;
  Meta meta;
  bool trainable = true;
  Category category = Category::parameters;
  Tensor value;  // current()
  // Where the bytes are, when they lie in someone else's memory, which `keeper` keeps alive.
  std::function<void*()> place = nullptr;
  std::shared_ptr<const void> keeper = nullptr;
  std::shared_ptr<DeviceSpace> space = nullptr;  // of that memory, where it is a device's

  const Tensor& current();
  // Its bytes for an op that writes the next version over them. Whoever read the variable before
  // keeps what was read: the bytes are copied if there is somebody.
  Tensor writable();
  void wrote();  // after that
};

class Variable {
 public:
  Variable() = default;
  // Copies, to the device in scope, or to where the tensor lies.
  explicit Variable(const Tensor& initial, VariableOptions options = {});
  explicit Variable(std::shared_ptr<VariableState> state) : state_(std::move(state)) {}

  Tensor value() const;
  operator Tensor() const { return value(); }
  // Of the variable's dtype and shape.
  void assign(const Tensor& value) const;
  void assign_add(const Tensor& term) const;
  void assign_sub(const Tensor& term) const;

  bool defined() const { return state_ != nullptr; }
  const Meta& meta() const { return state_->meta; }
  const Shape& shape() const { return state_->meta.shape; }
  Dtype dtype() const { return state_->meta.dtype; }
  const std::string& name() const { return state_->name; }
  bool trainable() const { return state_->trainable; }
  const std::shared_ptr<VariableState>& state() const { return state_; }

 private:
  void check_like(const char* call, const Tensor& other) const;
  std::shared_ptr<VariableState> state_;
};

// What a traced function makes of variables, while it is in scope on this thread.
class VariableTracer {
 public:
  VariableTracer();
  virtual Tensor read(const std::shared_ptr<VariableState>& variable) = 0;  // its newest version
  static VariableTracer* current();  // null: variables are read and written at once

 protected:
  ~VariableTracer();

 private:
  VariableTracer* previous_;
};

}  // namespace pl
