// Prepare functions of all CUDA kernels, as op/cuda_catalogue.cc lists them.
#pragma once

#include "op/op.h"
#include "op/tile_program.h"

namespace pl::cuda {

using Prepared = std::unique_ptr<Kernel>;

// pointwise_cuda.cu
Prepared pointwise(const PrepareCall&, TileOp op);
template <TileOp op>
Prepared pointwise(const PrepareCall& call) {
  return pointwise(call, op);
}
Prepared broadcast_to(const PrepareCall&);
Prepared transpose(const PrepareCall&);

// elements_cuda.cu
Prepared cast(const PrepareCall&);
Prepared fill(const PrepareCall&);
Prepared progression(const PrepareCall&);
Prepared dropout(const PrepareCall&);  // and its gradient
Prepared random(const PrepareCall&);
Prepared relu_bits(const PrepareCall&);
Prepared relu_bits_gradient(const PrepareCall&);
Prepared one_hot(const PrepareCall&);
Prepared causal_mask(const PrepareCall&);

// order_cuda.cu
Prepared flip(const PrepareCall&);
Prepared argsort(const PrepareCall&);

// moves_cuda.cu
Prepared copy_operand(const PrepareCall&);  // the last one: assign, reshape
Prepared concatenate(const PrepareCall&);
Prepared slice(const PrepareCall&);
Prepared slice_gradient(const PrepareCall&);
Prepared pad(const PrepareCall&);
Prepared crop(const PrepareCall&);
Prepared own_rows(const PrepareCall&);
Prepared place_rows(const PrepareCall&);

// reduce_cuda.cu
Prepared reduce_sum(const PrepareCall&);  // and reduce_sum_accumulate
Prepared reduce_max(const PrepareCall&);
Prepared reduce_min(const PrepareCall&);
Prepared reduce_prod(const PrepareCall&);
Prepared reduce_norm(const PrepareCall&);

// group_norm_cuda.cu
Prepared group_norm(const PrepareCall&);
Prepared group_norm_sums(const PrepareCall&);
Prepared group_norm_gradient(const PrepareCall&);

// layer_norm_cuda.cu
Prepared layer_norm(const PrepareCall&);
Prepared layer_norm_gradient(const PrepareCall&);
Prepared layer_norm_parameter_gradient(const PrepareCall&);
Prepared layer_norm_gradients(const PrepareCall&);
Prepared layer_norm_gradients_accumulate(const PrepareCall&);

// batch_norm_cuda.cu
Prepared batch_norm(const PrepareCall&);
Prepared batch_moments(const PrepareCall&);
Prepared batch_norm_apply(const PrepareCall&);
Prepared batch_norm_gradient(const PrepareCall&);
Prepared batch_norm_relu_gradient(const PrepareCall&);
Prepared batch_norm_add_relu_gradient(const PrepareCall&);

// softmax_cuda.cu
Prepared softmax(const PrepareCall&);
Prepared softmax_gradient(const PrepareCall&);
Prepared log_softmax(const PrepareCall&);
Prepared sparsemax(const PrepareCall&);
Prepared sparse_softmax_cross_entropy(const PrepareCall&);
Prepared sparse_softmax_cross_entropy_gradient(const PrepareCall&);
Prepared softmax_cross_entropy(const PrepareCall&);
Prepared softmax_cross_entropy_gradient(const PrepareCall&);
Prepared sparse_categorical_accuracy(const PrepareCall&);
Prepared categorical_accuracy(const PrepareCall&);

// matmul_cuda.cc
Prepared matmul(const PrepareCall&);
Prepared matmul_accumulate(const PrepareCall&);
Prepared matmul_add(const PrepareCall&);
Prepared matmul_gelu_gradient(const PrepareCall&);
Prepared batch_matmul(const PrepareCall&);

// integer_product_cuda.cu
Prepared integer_matmul(const PrepareCall&);
Prepared integer_batch_matmul(const PrepareCall&);

// linear_cross_entropy_cuda.cc
Prepared linear_cross_entropy(const PrepareCall&);
Prepared linear_cross_entropy_accumulate(const PrepareCall&);

// fused_pointwise_cuda.cc
Prepared fused_pointwise(const PrepareCall&);
Prepared update(const PrepareCall&);
Prepared sum_squares(const PrepareCall&);

// optimizers_cuda.cu
Prepared sgd(const PrepareCall&);
Prepared sgd_momentum(const PrepareCall&);
Prepared adam(const PrepareCall&);
Prepared moving_statistics(const PrepareCall&);
Prepared constrain(const PrepareCall&);

// pooling_cuda.cu
Prepared max_pool(const PrepareCall&);
Prepared max_pool_gradient(const PrepareCall&);
Prepared avg_pool(const PrepareCall&);
Prepared avg_pool_gradient(const PrepareCall&);
Prepared resize(const PrepareCall&);
Prepared resize_gradient(const PrepareCall&);
Prepared upsample(const PrepareCall&);
Prepared upsample_gradient(const PrepareCall&);

// embedding_cuda.cu
Prepared embedding(const PrepareCall&);
Prepared embedding_gradient(const PrepareCall&);
Prepared gather(const PrepareCall&);
Prepared gather_gradient(const PrepareCall&);

// attention_cuda.cu
Prepared attention(const PrepareCall&);
Prepared attention_gradient(const PrepareCall&);

// conv2d_cuda.cu
Prepared conv2d(const PrepareCall&);
Prepared conv2d_input_gradient(const PrepareCall&);
Prepared conv2d_weight_gradient(const PrepareCall&);
Prepared conv2d_pool(const PrepareCall&);
Prepared conv2d_pool_weight_gradient(const PrepareCall&);

// attention_dnn_cuda.cc, conv_dnn_cuda.cc
Prepared attention_dnn(const PrepareCall&);
Prepared attention_gradient_dnn(const PrepareCall&);
Prepared conv2d_dnn(const PrepareCall&);
Prepared conv2d_input_gradient_dnn(const PrepareCall&);
Prepared conv2d_input_gradient_add(const PrepareCall&);
Prepared conv2d_weight_gradient_dnn(const PrepareCall&);

// random_image_cuda.cu
Prepared random_image(const PrepareCall&);
Prepared random_image_gradient(const PrepareCall&);

// recurrent_cuda.cu
Prepared lstm(const PrepareCall&);
Prepared lstm_gradient(const PrepareCall&);
Prepared gru(const PrepareCall&);
Prepared gru_gradient(const PrepareCall&);
Prepared simple_rnn(const PrepareCall&);
Prepared simple_rnn_gradient(const PrepareCall&);
Prepared recurrent_weight_gradient(const PrepareCall&);

// ctc_loss_cuda.cu
Prepared ctc_loss(const PrepareCall&);
Prepared ctc_loss_gradient(const PrepareCall&);

}  // namespace pl::cuda
