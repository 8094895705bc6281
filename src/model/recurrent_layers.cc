// LSTM, GRU and SimpleRNN: one matrix product projects the inputs of all steps, one op runs them.
#include "base/error.h"
#include "base/number_text.h"
#include "model/layer_context.h"
#include "model/layers.h"
#include "model/recurrent_layer.h"
#include "model/rules.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

// Ones, of which a share `rate` is zero and the rest 1 / (1 - rate). `part` tells draws of one
// layer apart.
Tensor kept(const LayerCall& call, Shape shape, double rate, Dtype dtype, int64_t part) {
  const Tensor ones = fill(std::move(shape), 1.0, dtype, true);
  return dropout(ones, call.step_params, rate, call.stream ^ (part << 32));
}

// Column block `g` of `count`.
Tensor block(const Tensor& matrix, int64_t axis, Dim g, Dim count) {
  const Dim size = matrix.shape()[static_cast<int>(axis)] / count;
  return slice(matrix, axis, g * size, size);
}

// (B, T): 1 from the first step on that the mask has not left out, in the order of the steps, or
// `backwards` in that of the sequence read from its end.
Tensor seen_so_far(const Tensor& mask, bool backwards, Dtype dtype) {
  const Dim steps = mask.shape()[1];
  const Tensor counts = cast(mask, dtype);
  const Tensor past = causal_mask_gradient(fill(Shape{steps, steps}, 1, dtype));  // t sees 0 to t
  if (!backwards) return minimum(matmul(counts, past, {.transpose_b = true}), fill({}, 1, dtype));
  const Tensor seen = minimum(matmul(counts, past), fill({}, 1, dtype));
  Tensors flipped;
  for (Dim t = steps; t-- > 0;) flipped.push_back(slice(seen, 1, t, 1));
  return concatenate(flipped, 1);
}

void expect_rate(const char* kind, const char* what, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw UserError("[" + std::string(kind) + "] " + what + ": expected 0 <= " + what +
                    " < 1, received " + number_text(rate));
}

}  // namespace

RecurrentLayer::RecurrentLayer(RecurrentConfig config) : config_(std::move(config)) {
  const std::string kind = std::string("[") + config_.kind + "] ";
  if (config_.units <= 0)
    throw UserError(kind + "units: expected a positive number, received " +
                    std::to_string(config_.units));
  for (const auto& activation : {config_.activation, config_.recurrent_activation})
    check_activation(activation);
  expect_rate(config_.kind, "dropout", config_.dropout);
  expect_rate(config_.kind, "recurrent_dropout", config_.recurrent_dropout);
  check_rules(config_.kernel);
  check_rules(config_.recurrent);
  check_rules(config_.bias);
  check_regularizer(config_.activity_regularizer);
  activity_regularizer = config_.activity_regularizer;
  set_common(*this, config_);
}

std::string RecurrentLayer::config() const {
  return std::to_string(config_.units) + (config_.return_sequences ? " sequences" : "") +
         (config_.go_backwards ? " backwards" : "");
}

Tensor RecurrentLayer::compute_mask(const LayerCall& call) const {
  return config_.return_sequences ? call.mask(0) : Tensor();
}

Shape RecurrentLayer::build(const std::vector<Shape>& in) {
  if (in.empty() || in[0].rank() != 2)
    throw UserError("expected a sequence (steps, features), received " +
                    (in.empty() ? "nothing" : in[0].text()));
  if (in.size() != 1 && in.size() != 1 + states())
    throw UserError("expected a sequence, or it and " + std::to_string(states()) +
                    " states, received " + std::to_string(in.size()) + " inputs");
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != Shape{config_.units})
      throw UserError("expected states of " + std::to_string(config_.units) + " units, received " +
                      in[i].text());
  const Dim features = in[0][1], width = config_.gates * config_.units;
  if (!weights_.empty() && weights_[0].shape[0] != features)
    throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                    " features as in its first call, received " + in[0].text());
  if (weights_.empty()) {
    const std::string cell = std::string(config_.cell) + "/";
    add_weight(cell + "kernel", Shape{features, width}, config_.kernel);
    add_weight(cell + "recurrent_kernel", Shape{config_.units, width}, config_.recurrent);
    const bool two = config_.gates == 3 && config_.reset_after;
    if (config_.use_bias)
      add_weight(cell + "bias", two ? Shape{2, width} : Shape{width}, config_.bias);
    for (size_t s = 0; s < states() && config_.stateful > 0; ++s) {
      add_weight(s == 0 ? "rnn_state" : "rnn_state_1", Shape{config_.stateful, config_.units},
                 "zeros", false);
      weights_.back().carried = true;
    }
  }
  return config_.return_sequences ? Shape{in[0][0], config_.units} : Shape{config_.units};
}

// x W + b of all steps. As in Keras, dropped features are the same for all steps, and for all gates
// unless the state is dropped as well.
Tensor RecurrentLayer::project(const LayerCall& call, const Tensor& bias) const {
  const Tensor &x = call.in[0], &kernel = call.weights[0];
  if (!call.training || config_.dropout == 0) return matmul(x, kernel, {}, bias);
  const Shape shape{x.shape()[0], 1, x.shape()[2]};
  if (config_.recurrent_dropout == 0)
    return matmul(multiply(x, kept(call, shape, config_.dropout, x.dtype(), 1)), kernel, {}, bias);
  Tensors gates;
  for (Dim g = 0; g < config_.gates; ++g) {
    const Tensor dropped = multiply(x, kept(call, shape, config_.dropout, x.dtype(), 1 + g));
    const Tensor of_gate = bias.defined() ? block(bias, 0, g, config_.gates) : Tensor();
    gates.push_back(matmul(dropped, block(kernel, 1, g, config_.gates), {}, of_gate));
  }
  return concatenate(gates, -1);
}

// Copies of the variables, which the next version may then replace: whatever the gradient reads is
// the state that the batch began with. Sums with nothing that has the samples' rows, as states do.
Tensors RecurrentLayer::carried_states(const LayerCall& call) const {
  Tensors list;
  const Tensor& x = call.in[0];
  if (config_.stateful == 0 || LayerContext::sketching()) return list;
  if (x.shape()[0] != config_.stateful)
    throw UserError("[call] " + label() + ": expected batches of " +
                    std::to_string(config_.stateful) + " samples, its batch_size as a stateful " +
                    "layer, received " + std::to_string(x.shape()[0]) +
                    "; give data that are a multiple of it, and the same batch_size");
  for (size_t w = call.weights.size() - states(); w < call.weights.size(); ++w) {
    const Tensor state = cast(last_version(call.weights[w]), x.dtype());
    list.push_back(add(state, fill(state.shape(), 0, x.dtype(), true)));
  }
  return list;
}

void RecurrentLayer::carry(const LayerCall& call, const Tensors& states) const {
  if (config_.stateful == 0 || LayerContext::sketching()) return;
  for (size_t s = 0; s < states.size(); ++s) {
    const Tensor& variable = call.weights[call.weights.size() - states.size() + s];
    assign(last_version(variable), cast(states[s], variable.dtype()));
  }
}

RecurrentLayer::Result RecurrentLayer::run(const LayerCall& call, bool wrapped) const {
  const Tensor &x = call.in[0], &u = call.weights[1];
  const Dim width = config_.gates * config_.units;
  Tensor bias = config_.use_bias ? call.weights[2] : Tensor(), inner_bias;
  if (bias.defined() && bias.shape().rank() == 2) {
    inner_bias = cast(reshape(block(bias, 0, 1, 2), {width}), wide(x.dtype()));
    bias = reshape(block(bias, 0, 0, 2), {width});
  }
  const Tensor z = project(call, bias), mask = call.mask(0);
  Tensor dropped;
  if (call.training && config_.recurrent_dropout > 0)
    dropped = kept(call, Shape{x.shape()[0], config_.gates, config_.units},
                   config_.recurrent_dropout, x.dtype(), 8);
  const Tensors carried = carried_states(call);
  auto state = [&](size_t i) {
    if (i < call.in.size()) return call.in[i];
    return i <= carried.size() ? carried[i - 1] : Tensor();
  };
  const RecurrentOptions options{.activation = config_.activation,
                                 .recurrent_activation = config_.recurrent_activation,
                                 .backwards = config_.go_backwards,
                                 .flip = !wrapped};
  Result result;
  Tensor sequence;
  if (!squash_from_name(config_.activation) || !squash_from_name(config_.recurrent_activation)) {
    result = run_step_by_step(config_, {z, u, inner_bias, state(1), state(2), mask, dropped},
                              options.flip, sequence);
  } else if (config_.gates == 4) {
    const LstmResult made =
        lstm(z, u, {.h0 = state(1), .c0 = state(2), .mask = mask, .dropped = dropped}, options);
    sequence = made.h;
    result.states = {made.last_h, made.last_c};
  } else if (config_.gates == 3) {
    const GruResult made =
        gru(z, u, {.bias = inner_bias, .h0 = state(1), .mask = mask, .dropped = dropped},
            {options, config_.reset_after});
    sequence = made.h;
    result.states = {made.last_h};
  } else {
    const SimpleRnnResult made =
        simple_rnn(z, u, {.h0 = state(1), .mask = mask, .dropped = dropped}, options);
    sequence = made.h;
    result.states = {made.last_h};
  }
  carry(call, result.states);
  result.output = config_.return_sequences ? sequence : result.states[0];
  // Keras's output is 0 until a step counts, whatever the state that it starts from.
  if (mask.defined() && (call.in.size() > 1 || !carried.empty())) {
    const Dtype dtype = sequence.dtype();
    if (!config_.return_sequences)
      result.output = multiply(result.output, reduce_max(cast(mask, dtype), {1}, true));
    else if (!wrapped)
      result.output = multiply(sequence, reshape(seen_so_far(mask, config_.go_backwards, dtype),
                                                 {mask.shape()[0], mask.shape()[1], 1}));
  }
  if (wrapped && config_.return_sequences && mask.defined())
    result.output = multiply(
        sequence, cast(reshape(mask, {mask.shape()[0], mask.shape()[1], 1}), sequence.dtype()));
  return result;
}

Tensor RecurrentLayer::call(const LayerCall& call) const {
  Result result = run(call);
  if (config_.return_state) give_more(call, name, std::move(result.states));
  return result.output;
}

std::vector<Symbolic> RecurrentLayer::connect(const std::shared_ptr<Layer>& self,
                                              const std::vector<Symbolic>& in) {
  const Symbolic first = Layer::connect(self, in)[0];
  if (!config_.return_state) return {first};
  return with_more(first, std::vector<Shape>(states(), Shape{config_.units}));
}

namespace {

// One of the results behind the first of the layer in front of it.
class MoreLayer final : public PlainLayer {
 public:
  MoreLayer(size_t at, Shape shape, bool masked)
      : at_(at), shape_(std::move(shape)), masked_(masked) {}
  const char* kind() const override { return "State"; }
  bool supports_masking() const override { return masked_; }
  Shape build(const std::vector<Shape>&) override { return shape_; }
  Tensor call(const LayerCall& call) const override { return call.more_of_in[0].at(at_); }

 private:
  size_t at_;
  Shape shape_;
  bool masked_;
};

}  // namespace

std::vector<Symbolic> with_more(const Symbolic& first, const std::vector<Shape>& shapes,
                                size_t masked) {
  std::vector<Symbolic> all{first};
  for (size_t i = 0; i < shapes.size(); ++i)
    all.push_back(LayerRef(std::make_shared<MoreLayer>(i, shapes[i], i < masked))(first));
  return all;
}

void give_more(const LayerCall& call, const std::string& path, Tensors results) {
  if (!call.more)
    throw UserError("[call] " + path +
                    ": expected a layer with one result, received several (return_state); call it "
                    "with all()");
  *call.more = std::move(results);
}

const RecurrentLayer* as_recurrent(const LayerRef& layer) {
  return dynamic_cast<const RecurrentLayer*>(layer.get().get());
}

namespace {

template <class Options>
RecurrentConfig config_of(const char* kind, const char* cell, int64_t units, Dim gates,
                          const Options& o) {
  if (o.stateful ? o.batch_size < 1 : o.batch_size != 0)
    throw UserError("[" + std::string(kind) +
                    "] batch_size: expected the number of samples of every batch with stateful, " +
                    "and none without it, received " + std::to_string(o.batch_size));
  return {.kind = kind,
          .cell = cell,
          .units = units,
          .gates = gates,
          .activation = o.activation,
          .recurrent_activation = "sigmoid",
          .kernel = {o.kernel_initializer, o.kernel_regularizer, o.kernel_constraint},
          .recurrent = {o.recurrent_initializer, o.recurrent_regularizer, o.recurrent_constraint},
          .bias = {o.bias_initializer, o.bias_regularizer, o.bias_constraint},
          .activity_regularizer = o.activity_regularizer,
          .dropout = o.dropout,
          .recurrent_dropout = o.recurrent_dropout,
          .use_bias = o.use_bias,
          .return_sequences = o.return_sequences,
          .return_state = o.return_state,
          .go_backwards = o.go_backwards,
          .reset_after = false,
          .stateful = o.batch_size,
          .seed = o.seed,
          .name = o.name,
          .dtype = o.dtype,
          .trainable = o.trainable};
}

}  // namespace

LayerRef LSTM(int64_t units, LSTMOptions options) {
  RecurrentConfig config = config_of("LSTM", "lstm_cell", units, 4, options);
  config.recurrent_activation = options.recurrent_activation;
  if (options.unit_forget_bias && options.use_bias && options.bias_initializer != "ones") {
    if (options.bias_initializer != "zeros")
      throw UserError(
          "[LSTM] bias_initializer: expected zeros or ones with unit_forget_bias, received '" +
          options.bias_initializer + "'; set unit_forget_bias = false for others");
    config.bias.initializer = "unit_forget";
  }
  return LayerRef(std::make_shared<RecurrentLayer>(std::move(config)));
}

LayerRef GRU(int64_t units, GRUOptions options) {
  RecurrentConfig config = config_of("GRU", "gru_cell", units, 3, options);
  config.recurrent_activation = options.recurrent_activation;
  config.reset_after = options.reset_after;
  return LayerRef(std::make_shared<RecurrentLayer>(std::move(config)));
}

LayerRef SimpleRNN(int64_t units, SimpleRNNOptions options) {
  return LayerRef(std::make_shared<RecurrentLayer>(
      config_of("SimpleRNN", "simple_rnn_cell", units, 1, options)));
}

}  // namespace pl
