#include "trace/tape.h"

#include <algorithm>

#include "base/error.h"
#include "op/fill.h"
#include "op/pointwise.h"
#include "op/recorder.h"
#include "trace/backward.h"

namespace pl {

// Recorded entries as a trail: every tensor has a number.
class GradientTape::Walk {
 public:
  explicit Walk(const GradientTape& tape) {
    for (const Entry& entry : tape.entries_) {
      Trail::Step step{entry.op, {}, {}};
      for (const Tensor& tensor : entry.in) step.in.push_back(number(tensor));
      for (const Tensor& tensor : entry.out) step.out.push_back(number(tensor));
      trail.steps.push_back(std::move(step));
    }
    for (const auto& [variable, keys] : tape.reads_)
      for (const Key& key : keys)
        if (const auto at = numbers_.find(key); at != numbers_.end())
          trail.values[static_cast<size_t>(at->second)].variable = true;
  }

  int number(const Tensor& tensor) {
    const auto [at, fresh] = numbers_.emplace(key_of(tensor), static_cast<int>(numbers_.size()));
    if (fresh) trail.values.push_back({tensor.dtype()});
    return at->second;
  }

  // The numbers of a source: one, or one for each value that was read of a variable.
  std::vector<int> numbers(const GradientTape& tape, const GradientSource& source) {
    std::vector<int> list;
    if (!source.variable().defined()) {
      if (tape.tracked_.contains(key_of(source.tensor()))) list.push_back(number(source.tensor()));
      return list;
    }
    const auto reads = tape.reads_.find(source.variable().state().get());
    if (reads == tape.reads_.end()) return list;
    for (const Key& key : reads->second)
      if (const auto at = numbers_.find(key); at != numbers_.end() && tape.tracked_.contains(key))
        list.push_back(at->second);
    return list;
  }

  Trail trail;

 private:
  std::unordered_map<Key, int, KeyHash> numbers_;
};

namespace {

// While the gradients of a symbol are appended, they are counted as such.
class GradientCategory {
 public:
  explicit GradientCategory(Recorder* recorder) : recorder_(recorder) {
    if (!recorder_) return;
    before_ = recorder_->category();
    recorder_->set_category(Category::gradients);
  }
  ~GradientCategory() {
    if (recorder_) recorder_->set_category(before_);
  }
  GradientCategory(const GradientCategory&) = delete;
  GradientCategory& operator=(const GradientCategory&) = delete;

 private:
  Recorder* recorder_;
  Category before_ = Category::activations;
};

Tensor filled_like(const Tensor& target, double value) {
  return fill(target.shape(), value, target.dtype(), carries_rows(target));
}

}  // namespace

GradientTape::GradientTape(TapeOptions options) : options_(options) { begin_observing(*this); }
GradientTape::~GradientTape() { end_observing(*this); }

void GradientTape::watch(const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype()))
    throw UserError("[tape] watch: expected a floating tensor, received " +
                    (tensor.defined() ? tensor.meta().text() : "nothing"));
  tracked_.insert(key_of(tensor));
}

void GradientTape::watch(const Variable& variable) {
  const Tensor value = variable.value();
  on_read(variable.state().get(), value, true);
  watch(value);
}

void GradientTape::on_read(const void* variable, const Tensor& value, bool trainable) {
  if (paused_ > 0 || !trainable || !is_floating(value.dtype())) return;
  const Key key = key_of(value);
  std::vector<Key>& keys = reads_[variable];
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  if (options_.watch_accessed_variables) tracked_.insert(key);
}

void GradientTape::on_apply(const Op& op, const Tensors& in, const Attrs& attrs,
                            const Tensors& out) {
  // An assignment is no part of what is differentiated: who reads the variable again starts anew.
  if (paused_ > 0 || op.effects.writes_state) return;
  const bool follows = std::any_of(in.begin(), in.end(),
                                   [&](const Tensor& x) { return tracked_.contains(key_of(x)); });
  if (!follows) return;
  bool differentiable = false;
  for (const Tensor& tensor : out)
    if (is_floating(tensor.dtype())) {
      tracked_.insert(key_of(tensor));
      differentiable = true;
    }
  if (!differentiable) return;
  const Recorder* recorder = out[0].recorder();
  entries_.push_back({&op, attrs, in, out, recorder ? recorder->path() : ""});
}

Tensors GradientTape::gradient(const Tensor& target, const GradientSources& sources,
                               const GradientOptions& options) {
  if (ended_)
    throw UserError(
        "[tape] gradient: expected a persistent tape for a second call, received one that freed "
        "what it held; write GradientTape tape({.persistent = true})");
  if (!target.defined() || !is_floating(target.dtype()))
    throw UserError("[tape] gradient: expected a floating target, received " +
                    (target.defined() ? target.meta().text() : "nothing"));
  if (options.output_gradient.defined() && options.output_gradient.meta() != target.meta())
    throw UserError("[tape] gradient: expected an output_gradient of " + target.meta().text() +
                    ", received " + options.output_gradient.meta().text());
  const Pause pause(*this);
  Walk walk(*this);
  const int root = walk.number(target);
  std::vector<std::vector<int>> numbers;
  std::vector<int> wrt;
  for (const GradientSource& source : sources.list) {
    numbers.push_back(walk.numbers(*this, source));
    wrt.insert(wrt.end(), numbers.back().begin(), numbers.back().end());
  }
  std::vector<Entry> own;
  if (!options_.persistent) {
    own = std::move(entries_);
    end_observing(*this);
    ended_ = true;
    reset();
  }
  std::vector<Entry>& entries = options_.persistent ? entries_ : own;

  Recorder* recorder = target.recorder();
  const GradientCategory category(recorder);
  Backward backward(walk.trail, wrt);
  backward.add(
      root, options.output_gradient.defined() ? options.output_gradient : filled_like(target, 1));
  for (size_t e = entries.size(); e-- > 0;) {
    const Trail::Step& step = walk.trail.steps[e];
    const Entry& entry = entries[e];
    backward.visit(step, {entry.attrs, entry.in, entry.out, entry.path, recorder});
    for (int out : step.out) backward.release(out);
    if (!options_.persistent) entries.pop_back();
  }
  Tensors result;
  for (size_t s = 0; s < numbers.size(); ++s) {
    Tensor sum;
    for (int number : numbers[s])
      if (const Tensor& part = backward.sum(number); part.defined())
        sum = sum.defined() ? add(sum, part) : part;
    if (!sum.defined() && options.unconnected_gradients == UnconnectedGradients::zero)
      sum = fill(sources.list[s].meta().shape, 0, sources.list[s].meta().dtype);
    result.push_back(sum);
  }
  return result;
}

void GradientTape::reset() {
  entries_ = {};
  tracked_ = {};
  reads_ = {};
}

Bytes GradientTape::held_bytes() const {
  std::unordered_map<const void*, Bytes> buffers;
  for (const Entry& entry : entries_)
    for (const Tensors* list : {&entry.in, &entry.out})
      for (const Tensor& tensor : *list)
        if (tensor.buffer()) buffers[tensor.buffer().get()] = tensor.buffer()->bytes();
  Bytes bytes = 0;
  for (const auto& [buffer, size] : buffers) bytes += size;
  return bytes;
}

}  // namespace pl
