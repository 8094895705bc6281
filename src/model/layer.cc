#include "model/layer.h"

#include <algorithm>

#include "base/error.h"
#include "model/constraint.h"
#include "model/initializer.h"
#include "model/layer_context.h"
#include "model/regularizer.h"
#include "model/rules.h"
#include "model/weight_home.h"

namespace pl {

int64_t Layer::parameters() const {
  int64_t count = 0;
  for (const Weight& weight : weights_)
    if (!weight.owner) count += weight.shape.elements();
  return count;
}

size_t Layer::own_weights() const {
  size_t parts = 0;
  for (const LayerMember& part : parts_) parts += part.weights.size();
  return weights_.size() - std::min(parts, weights_.size());
}

bool Layer::trains(size_t index) const {
  for (const LayerMember& part : parts_)
    if (!part.weights.empty() && index >= part.weights.front() && index <= part.weights.back())
      return trainable && part.layer->trains(index - part.weights.front());
  return trainable;
}

std::vector<int64_t> axes_behind_batch(const Axes& axes, const Shape& sample) {
  std::vector<int64_t> list;
  const int64_t rank = sample.rank() + 1;
  for (int64_t given : axes.value) {
    const int64_t axis = given < 0 ? given + rank : given;
    if (axis < 1 || axis >= rank || std::find(list.begin(), list.end(), axis) != list.end())
      throw UserError("expected axes behind the batch, each once, received " +
                      std::to_string(given) + " for " + sample.text());
    list.push_back(axis);
  }
  if (list.empty()) throw UserError("expected at least one axis, received none");
  std::sort(list.begin(), list.end());
  return list;
}

void check_rules(const WeightRules& rules) {
  check_initializer(rules.initializer);
  check_regularizer(rules.regularizer);
  check_constraint(rules.constraint);
}

LayerRef::LayerRef(std::shared_ptr<Layer> layer) : layer_(std::move(layer)) {
  if (!layer_) throw UserError("[build] expected a layer, received null");
}

Symbolic LayerRef::operator()(const Symbolic& in) const {
  return (*this)(std::vector<Symbolic>{in});
}

std::vector<Symbolic> LayerRef::all(const std::vector<Symbolic>& in) const {
  return layer_->connect(layer_, in);
}

Symbolic LayerRef::operator()(const std::vector<Symbolic>& in) const {
  std::vector<Symbolic> out = all(in);
  if (out.size() != 1)
    throw UserError("[build] " + layer_->label() + ": expected a layer with one output, received " +
                    std::to_string(out.size()) +
                    "; call the model itself for several, or layer.all()");
  return out[0];
}

std::vector<Symbolic> Layer::connect(const std::shared_ptr<Layer>& self,
                                     const std::vector<Symbolic>& in) {
  std::vector<Shape> shapes;
  for (const Symbolic& symbol : in) shapes.push_back(symbol.shape());
  try {
    auto origin =
        std::make_shared<Symbolic::Origin>(Symbolic::Origin{self, in, build_layer(*this, shapes)});
    output_ = origin;
    return {Symbolic(std::move(origin))};
  } catch (const UserError& error) {
    throw build_error(label(), error);
  }
}

UserError build_error(const std::string& path, const UserError& error) {
  constexpr std::string_view kStage = "[build] ";
  const std::string text = error.what();
  if (text.starts_with(kStage))
    return UserError(std::string(kStage) + path + "/" + text.substr(kStage.size()));
  return UserError(std::string(kStage) + path + ": " + text);
}

void set_dtype(Layer& layer, const std::string& policy) {
  if (policy.empty()) return;
  layer.dtype = policy_from_name(policy);
  if (!layer.dtype)
    throw UserError("[build] " + layer.label() +
                    " dtype: expected float32, float64, mixed_bfloat16 or mixed_float16, received "
                    "'" +
                    policy + "'");
}

LayerRef LayerRef::dtype(const std::string& policy) const {
  set_dtype(*layer_, policy);
  return *this;
}

LayerRef LayerRef::trainable(bool trains) const {
  layer_->trainable = trains;
  return *this;
}

Symbolic LayerRef::output() const {
  const auto origin = std::static_pointer_cast<const Symbolic::Origin>(layer_->output_.lock());
  if (!origin)
    throw UserError("[output] " + layer_->label() +
                    ": expected a layer that was called on symbols, of a model that is built; call "
                    "it on Input() or on another layer's output first");
  return Symbolic(origin);
}

Tensor LayerRef::operator()(const Tensor& in) const { return (*this)(Tensors{in}); }

Tensor LayerRef::operator()(const Tensors& in) const {
  const Tensors out = all(in);
  if (out.size() != 1)
    throw UserError("[call] " + layer_->label() + ": expected a layer with one result, received " +
                    std::to_string(out.size()) + "; layer.all({x}) gives them all");
  return out[0];
}

Tensors LayerRef::all(const Tensors& in) const {
  if (LayerContext* context = LayerContext::current()) return context->call(layer_, in);
  throw UserError("[call] " + layer_->label() +
                  ": expected to be called on tensors in call() of a model or layer, whose weights "
                  "it uses; derive from pl::Model, or call it on Input()");
}

Symbolic Input(Shape shape, std::string name) {
  for (Dim dim : shape)
    if (dim <= 0)
      throw UserError("[build] Input: expected positive dimensions, received " + shape.text() +
                      "; the batch is none of them, and what is planned has one size: pad or "
                      "resize samples to it");
  shape.elements();
  return Symbolic(std::make_shared<Symbolic::Origin>(
      Symbolic::Origin{nullptr, {}, std::move(shape), std::move(name)}));
}

}  // namespace pl
