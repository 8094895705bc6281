// Recurrent layers step by step, of plain ops: for activations that the kernels of lstm, gru and
// simple_rnn do not have. All that they compute on the way is a value of its own.
#include "model/layers.h"
#include "model/recurrent_layer.h"
#include "op/functions.h"

namespace pl {
namespace {

class Steps {
 public:
  Steps(const RecurrentConfig& config, const RecurrentSequence& in) : config_(config), in_(in) {
    const Dim batch = in.z.shape()[0];
    auto or_zeros = [&](const Tensor& state) {
      return state.defined() ? state : fill(Shape{batch, config.units}, 0, in.z.dtype(), true);
    };
    h_ = or_zeros(in.h0);
    if (config.gates == 4) c_ = or_zeros(in.c0);
  }

  // Outputs of all steps (B, T, units), in the order in which they ran or that of the sequence.
  Tensor run(bool flip) {
    const Dim steps = in_.z.shape()[1];
    Tensors outputs(static_cast<size_t>(steps));
    for (Dim s = 0; s < steps; ++s) {
      const Dim at = config_.go_backwards ? steps - 1 - s : s;
      const Tensor before = h_, cell = c_;
      step(at);
      if (in_.mask.defined()) {
        const Tensor counts = cast(slice(in_.mask, 1, at, 1), h_.dtype());  // (B, 1)
        h_ = chosen(counts, h_, before);
        if (c_.defined()) c_ = chosen(counts, c_, cell);
      }
      outputs[static_cast<size_t>(flip ? s : at)] = reshape(h_, {h_.shape()[0], 1, config_.units});
    }
    return concatenate(outputs, 1);
  }
  Tensors states() const { return c_.defined() ? Tensors{h_, c_} : Tensors{h_}; }

 private:
  static Tensor chosen(const Tensor& counts, const Tensor& now, const Tensor& before) {
    return add(multiply(counts, now), multiply(scale(counts, -1, 1), before));
  }
  // Block g of the columns.
  Tensor block(const Tensor& x, Dim g) const {
    return slice(x, x.shape().rank() - 1, g * config_.units, config_.units);
  }
  // state U of gate g, with the inner bias where there is one.
  Tensor recurrent(const Tensor& state, Dim g, bool with_bias = true) const {
    Tensor left = state;
    if (in_.dropped.defined())
      left =
          multiply(left, reshape(slice(in_.dropped, 1, g, 1), {state.shape()[0], config_.units}));
    return matmul(left, block(in_.u, g), {},
                  with_bias && in_.bias.defined() ? block(in_.bias, g) : Tensor());
  }
  Tensor gate(const Tensor& z, Dim g) const {
    return activate(config_.recurrent_activation, add(block(z, g), recurrent(h_, g)));
  }
  Tensor squashed(const Tensor& x) const { return activate(config_.activation, x); }

  void step(Dim at) {
    const Dim width = in_.z.shape()[2];
    const Tensor z = reshape(slice(in_.z, 1, at, 1), {in_.z.shape()[0], width});
    if (config_.gates == 1) {
      h_ = squashed(add(z, recurrent(h_, 0)));
    } else if (config_.gates == 4) {
      const Tensor i = gate(z, 0), f = gate(z, 1);
      const Tensor g = squashed(add(block(z, 2), recurrent(h_, 2)));
      const Tensor o = gate(z, 3);
      c_ = add(multiply(f, c_), multiply(i, g));
      h_ = multiply(o, squashed(c_));
    } else {
      const Tensor update = gate(z, 0), reset = gate(z, 1);
      const Tensor inner = config_.reset_after ? multiply(reset, recurrent(h_, 2))
                                               : recurrent(multiply(reset, h_), 2);
      const Tensor fresh = squashed(add(block(z, 2), inner));
      h_ = add(multiply(update, h_), multiply(scale(update, -1, 1), fresh));
    }
  }

  const RecurrentConfig& config_;
  const RecurrentSequence& in_;
  Tensor h_, c_;
};

}  // namespace

RecurrentLayer::Result run_step_by_step(const RecurrentConfig& config, const RecurrentSequence& in,
                                        bool flip, Tensor& sequence) {
  Steps steps(config, in);
  sequence = steps.run(flip);
  return {.output = {}, .states = steps.states()};
}

}  // namespace pl
