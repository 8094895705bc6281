// Attention layers, with Keras's names and defaults. Part of the list in layers.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace pl {

// Called on {query, value} or {query, value, key}, each (T, features) a sample; on one input it is
// self-attention. A fourth input is Keras's attention_mask (T, S), not 0 where a query sees a key.
// Weights have Keras's names and shapes: query/kernel (D, heads, key_dim), ...
struct MultiHeadAttentionOptions {
  int64_t value_dim = 0;     // 0: key_dim
  double dropout = 0;        // of the attention weights, while training
  int64_t output_shape = 0;  // features of the result; 0: the query's
  bool use_bias = true;
  bool use_causal_mask = false;  // Keras has it as an argument of the call
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::optional<uint64_t> seed = {};  // of the dropout
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef MultiHeadAttention(int64_t num_heads, int64_t key_dim,
                            MultiHeadAttentionOptions options = {});

// The same with fewer heads for keys and values: each is used by several heads of queries.
struct GroupedQueryAttentionOptions {
  double dropout = 0;
  bool use_bias = true;
  bool use_causal_mask = false;  // Keras has it as an argument of the call
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::optional<uint64_t> seed = {};  // of the dropout
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef GroupedQueryAttention(int64_t head_dim, int64_t num_query_heads,
                               int64_t num_key_value_heads,
                               GroupedQueryAttentionOptions options = {});
inline LayerRef GroupQueryAttention(int64_t head_dim, int64_t num_query_heads,
                                    int64_t num_key_value_heads,
                                    GroupedQueryAttentionOptions options = {}) {
  return GroupedQueryAttention(head_dim, num_query_heads, num_key_value_heads, std::move(options));
}

// Called on {query, value} or {query, value, key}, without heads and projections: each query has
// the mean of values (S, E), by the softmax of its products with keys ("dot"), or of
// tanh(query + key) ("concat").
struct AttentionLayerOptions {
  bool use_scale = false;  // scores times a weight
  std::string score_mode = "dot";
  double dropout = 0;
  std::optional<uint64_t> seed = {};
  bool use_causal_mask = false;  // Keras has it as an argument of the call
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Attention(AttentionLayerOptions options = {});
struct AdditiveAttentionOptions {
  bool use_scale = true;  // of each feature
  double dropout = 0;
  std::optional<uint64_t> seed = {};
  bool use_causal_mask = false;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef AdditiveAttention(AdditiveAttentionOptions options = {});

// Attention alone, on queries, keys and values that one Dense made: (T, 3 * D) to (T, D).
struct PackedAttentionOptions {
  bool causal = true;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef PackedAttention(int64_t num_heads, PackedAttentionOptions options = {});

}  // namespace pl
