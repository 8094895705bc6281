#include "trace/variable.h"

#include "base/error.h"
#include "op/accumulate.h"
#include "op/assign.h"
#include "op/observer.h"
#include "op/pointwise.h"
#include "op/runtime.h"

namespace pl {
namespace {

thread_local VariableTracer* current_tracer = nullptr;

// Runs `update(variable)`, which makes the next version, on the graph's variable or in place.
template <class Update>
void write(const std::shared_ptr<VariableState>& state, const Update& update) {
  if (VariableTracer* tracer = VariableTracer::current()) {
    update(tracer->read(state));
    return;
  }
  update(state->writable());
  state->wrote();
}

}  // namespace

const Tensor& VariableState::current() {
  if (!place) return value;
  void* at = place();
  if (!value.defined() || value.place() != at) {
    value = Tensor(meta, std::make_shared<Buffer>(at, meta.bytes(), keeper, space));
    value.buffer()->set_variable(true);
  }
  return value;
}

Tensor VariableState::writable() {
  current();
  if (value.buffer().use_count() > 1) {
    if (place) {
      value.buffer()->detach();
      value = Tensor();
    } else {
      const Tensor copy(meta, value.buffer()->another());
      copy_value(copy, value);
      copy.buffer()->set_variable(true);
      value.buffer()->set_variable(false);
      value = copy;
    }
  }
  return current();
}

void VariableState::wrote() { value = Tensor(meta, current().buffer()); }

Variable::Variable(const Tensor& initial, VariableOptions options)
    : state_(std::make_shared<VariableState>()) {
  if (!initial.buffer()) initial.data();  // refused: variables are made outside of traced functions
  state_->name = std::move(options.name);
  state_->meta = initial.meta();
  state_->trainable = options.trainable && is_floating(initial.dtype());
  state_->value = value_on(device_of({initial}), initial.meta());
  copy_value(state_->value, initial);
  state_->value.buffer()->set_variable(true);
}

Tensor Variable::value() const {
  if (!state_) throw UserError("[variable] expected one with a value, received an empty one");
  VariableTracer* tracer = VariableTracer::current();
  const Tensor value = tracer ? tracer->read(state_) : state_->current();
  for (OpObserver* observer : observing()) observer->on_read(state_.get(), value, trainable());
  return value;
}

void Variable::check_like(const char* call, const Tensor& other) const {
  if (!state_) throw UserError("[variable] expected one with a value, received an empty one");
  if (!other.defined() || other.meta() != meta())
    throw UserError("[" + std::string(call) + "] " + name() + ": expected " + meta().text() +
                    ", received " + (other.defined() ? other.meta().text() : "nothing"));
}

void Variable::assign(const Tensor& value) const {
  check_like("assign", value);
  write(state_, [&](const Tensor& variable) { pl::assign(variable, value); });
}

void Variable::assign_add(const Tensor& term) const {
  check_like("assign_add", term);
  write(state_, [&](const Tensor& variable) { accumulate(variable, term); });
}

void Variable::assign_sub(const Tensor& term) const {
  check_like("assign_sub", term);
  const Tensor minus = negative(term);
  write(state_, [&](const Tensor& variable) { accumulate(variable, minus); });
}

VariableTracer::VariableTracer() : previous_(current_tracer) { current_tracer = this; }
VariableTracer::~VariableTracer() { current_tracer = previous_; }
VariableTracer* VariableTracer::current() { return current_tracer; }

}  // namespace pl
