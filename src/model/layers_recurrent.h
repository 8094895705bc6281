// Recurrent layers and wrappers over steps, with Keras's names and defaults. Part of the list in
// layers.h.
#pragma once

#include <optional>
#include <string>

#include "model/layer.h"

namespace pl {

// Sequences (T, features) to the last state (units,), or with return_sequences to (T, units).
// Called on {x, h, c} it starts from that state. A mask of its input leaves steps out. With
// activations other than linear, tanh, sigmoid, relu and hard_sigmoid steps are ops of their own:
// slower, and with more to keep.
struct LSTMOptions {
  std::string activation = "tanh";
  std::string recurrent_activation = "sigmoid";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string recurrent_initializer = "orthogonal";
  std::string bias_initializer = "zeros";
  bool unit_forget_bias = true;  // the forget gate's bias starts as 1
  std::string kernel_regularizer = "";
  std::string recurrent_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string recurrent_constraint = "";
  std::string bias_constraint = "";
  double dropout = 0;                 // of inputs, the same features in all steps
  double recurrent_dropout = 0;       // of the state
  std::optional<uint64_t> seed = {};  // Layer::seed
  bool return_sequences = false;
  bool return_state = false;  // the last h and c as further results: call it with all()
  bool go_backwards = false;  // the last step first; results in that order
  // The state after a batch is the next one's first: sample i goes on where sample i ended. It is a
  // variable for batch_size samples, which every batch must have, and stays until
  // Model::reset_state().
  bool stateful = false;
  int64_t batch_size = 0;  // of a stateful layer; Keras has it in the input's batch_shape
  bool unroll = false;     // of no effect: all steps are one op
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef LSTM(int64_t units, LSTMOptions options = {});

// Called on {x, h} it starts from that state. With reset_after the bias is (2, 3 * units).
struct GRUOptions {
  std::string activation = "tanh";
  std::string recurrent_activation = "sigmoid";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string recurrent_initializer = "orthogonal";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string recurrent_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string recurrent_constraint = "";
  std::string bias_constraint = "";
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<uint64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  int64_t batch_size = 0;
  bool unroll = false;  // of no effect, as LSTM's
  bool reset_after = true;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef GRU(int64_t units, GRUOptions options = {});

struct SimpleRNNOptions {
  std::string activation = "tanh";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string recurrent_initializer = "orthogonal";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string recurrent_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string recurrent_constraint = "";
  std::string bias_constraint = "";
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<uint64_t> seed = {};
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  int64_t batch_size = 0;
  bool unroll = false;  // of no effect, as LSTM's
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef SimpleRNN(int64_t units, SimpleRNNOptions options = {});

// A copy of the layer over the sequence and one over it from its end, with weights of their own.
// Called on {x, states...} the first half of the states is the forward layer's. With return_state,
// or without merge_mode, it has several results (all()): outputs, then states, forward ones first.
struct BidirectionalOptions {
  std::string merge_mode = "concat";            // or "sum", "mul", "ave"; "": Keras's None
  std::optional<LayerRef> backward_layer = {};  // instead of the second copy
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Bidirectional(const LayerRef& layer, BidirectionalOptions options = {});

// The layer on each step of (T, ...) alone, with the same weights.
LayerRef TimeDistributed(const LayerRef& layer, std::string name = "");

}  // namespace pl
