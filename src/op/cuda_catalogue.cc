// The one list of CUDA kernels.
#include "backend/cuda/cuda_backend.h"

#include "op/accumulate.h"
#include "op/accuracy.h"
#include "op/adam.h"
#include "op/argsort.h"
#include "op/assign.h"
#include "op/attention.h"
#include "op/avg_pool.h"
#include "op/batch_matmul.h"
#include "op/batch_norm.h"
#include "op/batch_norm_gradient.h"
#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/causal_mask.h"
#include "op/clipped_relu.h"
#include "op/concatenate.h"
#include "op/constrain.h"
#include "op/conv2d.h"
#include "op/conv2d_gradient_add.h"
#include "op/conv2d_pool.h"
#include "op/ctc_loss.h"
#include "op/cuda/kernels.h"
#include "op/device_kernels.h"
#include "op/dropout.h"
#include "op/embedding.h"
#include "op/fill.h"
#include "op/flip.h"
#include "op/fused_pointwise.h"
#include "op/gather.h"
#include "op/gelu.h"
#include "op/group_norm.h"
#include "op/gru.h"
#include "op/layer_norm.h"
#include "op/layer_norm_gradients.h"
#include "op/leaky_relu.h"
#include "op/linear_cross_entropy.h"
#include "op/log_softmax.h"
#include "op/lstm.h"
#include "op/matmul.h"
#include "op/matmul_accumulate.h"
#include "op/matmul_fused.h"
#include "op/max_pool.h"
#include "op/moving_statistics.h"
#include "op/one_hot.h"
#include "op/own_rows.h"
#include "op/pad.h"
#include "op/place_rows.h"
#include "op/pointwise.h"
#include "op/progression.h"
#include "op/random.h"
#include "op/random_image.h"
#include "op/recurrent_weight_gradient.h"
#include "op/reduce.h"
#include "op/relu.h"
#include "op/relu_bits.h"
#include "op/reshape.h"
#include "op/resize.h"
#include "op/scale.h"
#include "op/sgd.h"
#include "op/simple_rnn.h"
#include "op/softmax.h"
#include "op/softmax_cross_entropy.h"
#include "op/sparsemax.h"
#include "op/transpose.h"
#include "op/update.h"
#include "op/upsample.h"

namespace pl {
namespace {

constexpr DeviceKernel of(const Op& op, const char* name,
                          std::unique_ptr<Kernel> (*prepare)(const PrepareCall&)) {
  return {&op, {name, DeviceKind::cuda, prepare}};
}

constexpr DeviceKernel kList[] = {
    of(kMatmul, "cuda", cuda::matmul),
    of(kMatmulAccumulate, "cuda", cuda::matmul_accumulate),
    of(kMatmulAdd, "cuda", cuda::matmul_add),
    of(kMatmulGeluGradient, "cuda", cuda::matmul_gelu_gradient),
    of(kBatchMatmul, "cuda", cuda::batch_matmul),
    of(kAttention, "cudnn", cuda::attention_dnn),
    of(kAttention, "cuda", cuda::attention),
    of(kAttentionGradient, "cudnn", cuda::attention_gradient_dnn),
    of(kAttentionGradient, "cuda", cuda::attention_gradient),
    of(kGroupNorm, "cuda", cuda::group_norm),
    of(kGroupNormSums, "cuda", cuda::group_norm_sums),
    of(kGroupNormGradient, "cuda", cuda::group_norm_gradient),
    of(kLayerNorm, "cuda", cuda::layer_norm),
    of(kLayerNormGradient, "cuda", cuda::layer_norm_gradient),
    of(kLayerNormParameterGradient, "cuda", cuda::layer_norm_parameter_gradient),
    of(kLayerNormGradients, "cuda", cuda::layer_norm_gradients),
    of(kLayerNormGradients, "parts", layer_norm_gradients_in_parts),
    of(kLayerNormGradientsAccumulate, "cuda", cuda::layer_norm_gradients_accumulate),
    of(kLayerNormGradientsAccumulate, "parts", layer_norm_gradients_accumulate_composed),
    of(kBatchNorm, "cuda", cuda::batch_norm),
    of(kBatchMoments, "cuda", cuda::batch_moments),
    of(kBatchNormApply, "cuda", cuda::batch_norm_apply),
    of(kBatchNormAdd, "cuda", cuda::batch_norm_apply),
    of(kBatchNormGradient, "cuda", cuda::batch_norm_gradient),
    of(kBatchNormReluGradient, "cuda", cuda::batch_norm_relu_gradient),
    of(kBatchNormAddReluGradient, "cuda", cuda::batch_norm_add_relu_gradient),
    of(kMovingStatistics, "cuda", cuda::moving_statistics),
    of(kGelu, "cuda", cuda::pointwise<TileOp::gelu>),
    of(kGeluGradient, "cuda", cuda::pointwise<TileOp::gelu_gradient>),
    of(kLeakyRelu, "cuda", cuda::pointwise<TileOp::leaky_relu>),
    of(kLeakyReluGradient, "cuda", cuda::pointwise<TileOp::leaky_relu_gradient>),
    of(kRelu, "cuda", cuda::pointwise<TileOp::relu>),
    of(kReluGradient, "cuda", cuda::pointwise<TileOp::relu_gradient>),
    of(kClippedRelu, "cuda", cuda::pointwise<TileOp::relu>),
    of(kClippedReluGradient, "cuda", cuda::pointwise<TileOp::relu_gradient>),
    of(kReluBits, "cuda", cuda::relu_bits),
    of(kReluBitsGradient, "cuda", cuda::relu_bits_gradient),
    of(kConv2d, "cudnn", cuda::conv2d_dnn),
    of(kConv2d, "cuda", cuda::conv2d),
    of(kConv2dInputGradient, "cudnn", cuda::conv2d_input_gradient_dnn),
    of(kConv2dInputGradient, "cuda", cuda::conv2d_input_gradient),
    of(kConv2dInputGradientAdd, "cuda", cuda::conv2d_input_gradient_add),
    of(kConv2dWeightGradient, "cudnn", cuda::conv2d_weight_gradient_dnn),
    of(kConv2dWeightGradient, "cuda", cuda::conv2d_weight_gradient),
    of(kPad, "cuda", cuda::pad),
    of(kCrop, "cuda", cuda::crop),
    of(kAvgPool, "cuda", cuda::avg_pool),
    of(kAvgPoolGradient, "cuda", cuda::avg_pool_gradient),
    of(kUpsample, "cuda", cuda::upsample),
    of(kUpsampleGradient, "cuda", cuda::upsample_gradient),
    of(kResize, "cuda", cuda::resize),
    of(kResizeGradient, "cuda", cuda::resize_gradient),
    of(kRandomImage, "cuda", cuda::random_image),
    of(kRandomImageGradient, "cuda", cuda::random_image_gradient),
    of(kRandom, "cuda", cuda::random),
    of(kMaxPool, "cuda", cuda::max_pool),
    of(kMaxPoolGradient, "cuda", cuda::max_pool_gradient),
    of(kConv2dPool, "cuda", cuda::conv2d_pool),
    of(kConv2dPoolWeightGradient, "cuda", cuda::conv2d_pool_weight_gradient),
    of(kCtcLoss, "cuda", cuda::ctc_loss),
    of(kCtcLossGradient, "cuda", cuda::ctc_loss_gradient),
    of(kSparseSoftmaxCrossEntropy, "cuda", cuda::sparse_softmax_cross_entropy),
    of(kSparseSoftmaxCrossEntropyGradient, "cuda", cuda::sparse_softmax_cross_entropy_gradient),
    of(kSoftmaxCrossEntropy, "cuda", cuda::softmax_cross_entropy),
    of(kSoftmaxCrossEntropyGradient, "cuda", cuda::softmax_cross_entropy_gradient),
    of(kLinearCrossEntropy, "cuda", cuda::linear_cross_entropy),
    of(kLinearCrossEntropyAccumulate, "cuda", cuda::linear_cross_entropy_accumulate),
    of(kLstm, "cuda", cuda::lstm),
    of(kLstmGradient, "cuda", cuda::lstm_gradient),
    of(kGru, "cuda", cuda::gru),
    of(kGruGradient, "cuda", cuda::gru_gradient),
    of(kSimpleRnn, "cuda", cuda::simple_rnn),
    of(kSimpleRnnGradient, "cuda", cuda::simple_rnn_gradient),
    of(kRecurrentWeightGradient, "cuda", cuda::recurrent_weight_gradient),
    of(kSgd, "cuda", cuda::sgd),
    of(kSgdMomentum, "cuda", cuda::sgd_momentum),
    of(kAdam, "cuda", cuda::adam),
    of(kUpdate, "cuda", cuda::update),
    of(kSumSquares, "cuda", cuda::sum_squares),
    of(kConstrain, "cuda", cuda::constrain),
    of(kAccumulate, "cuda", cuda::pointwise<TileOp::add>),
    of(kAssign, "cuda", cuda::copy_operand),
    of(kOwnRows, "cuda", cuda::own_rows),
    of(kPlaceRows, "cuda", cuda::place_rows),
    of(kAdd, "cuda", cuda::pointwise<TileOp::add>),
    of(kSubtract, "cuda", cuda::pointwise<TileOp::subtract>),
    of(kMultiply, "cuda", cuda::pointwise<TileOp::multiply>),
    of(kDivide, "cuda", cuda::pointwise<TileOp::divide>),
    of(kMaximum, "cuda", cuda::pointwise<TileOp::maximum>),
    of(kMinimum, "cuda", cuda::pointwise<TileOp::minimum>),
    of(kEqualMask, "cuda", cuda::pointwise<TileOp::equal_mask>),
    of(kGreaterMask, "cuda", cuda::pointwise<TileOp::greater_mask>),
    of(kGreaterEqualMask, "cuda", cuda::pointwise<TileOp::greater_equal_mask>),
    of(kFloorDivide, "cuda", cuda::pointwise<TileOp::floor_divide>),
    of(kMod, "cuda", cuda::pointwise<TileOp::mod>),
    of(kPower, "cuda", cuda::pointwise<TileOp::power>),
    of(kNegative, "cuda", cuda::pointwise<TileOp::negative>),
    of(kExp, "cuda", cuda::pointwise<TileOp::exp>),
    of(kLog, "cuda", cuda::pointwise<TileOp::log>),
    of(kSqrt, "cuda", cuda::pointwise<TileOp::sqrt>),
    of(kSquare, "cuda", cuda::pointwise<TileOp::square>),
    of(kTanh, "cuda", cuda::pointwise<TileOp::tanh>),
    of(kSigmoid, "cuda", cuda::pointwise<TileOp::sigmoid>),
    of(kAbs, "cuda", cuda::pointwise<TileOp::abs>),
    of(kSign, "cuda", cuda::pointwise<TileOp::sign>),
    of(kSoftplus, "cuda", cuda::pointwise<TileOp::softplus>),
    of(kExpm1, "cuda", cuda::pointwise<TileOp::expm1>),
    of(kSin, "cuda", cuda::pointwise<TileOp::sin>),
    of(kCos, "cuda", cuda::pointwise<TileOp::cos>),
    of(kFloor, "cuda", cuda::pointwise<TileOp::floor>),
    of(kCeil, "cuda", cuda::pointwise<TileOp::ceil>),
    of(kTrunc, "cuda", cuda::pointwise<TileOp::trunc>),
    of(kRound, "cuda", cuda::pointwise<TileOp::round>),
    of(kScale, "cuda", cuda::pointwise<TileOp::scale>),
    of(kFusedPointwise, "cuda", cuda::fused_pointwise),
    of(kReduceSum, "cuda", cuda::reduce_sum),
    of(kReduceSumAccumulate, "cuda", cuda::reduce_sum),
    of(kReduceMax, "cuda", cuda::reduce_max),
    of(kReduceMin, "cuda", cuda::reduce_min),
    of(kReduceProd, "cuda", cuda::reduce_prod),
    of(kReduceNorm, "cuda", cuda::reduce_norm),
    of(kCast, "cuda", cuda::cast),
    of(kReshape, "cuda", cuda::copy_operand),
    of(kTranspose, "cuda", cuda::transpose),
    of(kFlip, "cuda", cuda::flip),
    of(kArgsort, "cuda", cuda::argsort),
    of(kOneHot, "cuda", cuda::one_hot),
    of(kFill, "cuda", cuda::fill),
    of(kProgression, "cuda", cuda::progression),
    of(kBroadcastTo, "cuda", cuda::broadcast_to),
    of(kSoftmax, "cuda", cuda::softmax),
    of(kSoftmaxGradient, "cuda", cuda::softmax_gradient),
    of(kLogSoftmax, "cuda", cuda::log_softmax),
    of(kSparsemax, "cuda", cuda::sparsemax),
    of(kDropout, "cuda", cuda::dropout),
    of(kDropoutGradient, "cuda", cuda::dropout),
    of(kSparseCategoricalAccuracy, "cuda", cuda::sparse_categorical_accuracy),
    of(kCategoricalAccuracy, "cuda", cuda::categorical_accuracy),
    of(kEmbedding, "cuda", cuda::embedding),
    of(kEmbeddingGradient, "cuda", cuda::embedding_gradient),
    of(kEmbeddingGradientOnto, "cuda", cuda::embedding_gradient),
    of(kEmbeddingGradientAccumulate, "cuda", cuda::embedding_gradient),
    of(kGather, "cuda", cuda::gather),
    of(kGatherGradient, "cuda", cuda::gather_gradient),
    of(kConcatenate, "cuda", cuda::concatenate),
    of(kSlice, "cuda", cuda::slice),
    of(kSliceGradient, "cuda", cuda::slice_gradient),
    of(kCausalMask, "cuda", cuda::causal_mask),
};

}  // namespace

const DeviceKernels& cuda_kernels() {
  static const DeviceKernels kKernels{kList};
  return kKernels;
}

const DeviceKernels* CudaBackend::kernels() const { return &cuda_kernels(); }

}  // namespace pl
