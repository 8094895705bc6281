// RecurrentLayer: what LSTM, GRU and SimpleRNN are to those who wrap them.
#pragma once

#include "model/layer.h"

namespace pl {

struct RecurrentConfig {
  const char* kind;  // "LSTM"
  const char* cell;  // "lstm_cell", in front of the weights' names
  int64_t units;
  Dim gates;
  std::string activation, recurrent_activation;
  WeightRules kernel, recurrent, bias;
  std::string activity_regularizer;
  double dropout, recurrent_dropout;
  bool use_bias, return_sequences, return_state, go_backwards;
  bool reset_after;  // of a GRU
  int64_t stateful;  // samples whose states are variables; 0: none are
  std::optional<uint64_t> seed;
  std::string name, dtype;
  bool trainable = true;
};

class RecurrentLayer : public PlainLayer {
 public:
  explicit RecurrentLayer(RecurrentConfig config);
  const char* kind() const override { return config_.kind; }
  std::string config() const override;
  bool supports_masking() const override { return true; }
  Tensor compute_mask(const LayerCall& call) const override;
  Shape build(const std::vector<Shape>& in) override;
  Tensor call(const LayerCall& call) const override;
  std::vector<Symbolic> connect(const std::shared_ptr<Layer>& self,
                                const std::vector<Symbolic>& in) override;

  const RecurrentConfig& recurrent() const { return config_; }
  size_t states() const { return config_.gates == 4 ? 2 : 1; }
  struct Result {
    Tensor output;
    Tensors states;
  };
  // `wrapped`: as Bidirectional wants it, steps where they were in the input and zeros where a mask
  // leaves them out.
  Result run(const LayerCall& call, bool wrapped = false) const;

 private:
  Tensor project(const LayerCall& call, const Tensor& bias) const;
  Tensors carried_states(const LayerCall& call) const;
  void carry(const LayerCall& call, const Tensors& states) const;

  RecurrentConfig config_;
};

// x W + b of all steps, (B, T, gates * units), the recurrent kernel, and what may be undefined: the
// bias inside of a GRU's reset, the first state, a mask, and what recurrent dropout leaves of
// states.
struct RecurrentSequence {
  Tensor z, u, bias, h0, c0, mask, dropped;
};
// With plain ops; `sequence` gets the outputs of all steps. recurrent_steps.cc
RecurrentLayer::Result run_step_by_step(const RecurrentConfig& config, const RecurrentSequence& in,
                                        bool flip, Tensor& sequence);

// The results behind `first`, the symbol of a layer with several: shape i is that of the i-th.
// `masked`: how many of them have the first one's mask.
std::vector<Symbolic> with_more(const Symbolic& first, const std::vector<Shape>& shapes,
                                size_t masked = 0);
// Hands them on in a call; `path` is for messages.
void give_more(const LayerCall& call, const std::string& path, Tensors results);

// The recurrent layer behind a handle, or null.
const RecurrentLayer* as_recurrent(const LayerRef& layer);

}  // namespace pl
