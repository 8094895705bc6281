// The one list of ops.
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
#include "op/op.h"
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

std::span<const Op* const> catalogue() {
  static constexpr const Op* kOps[] = {
      &kMatmul,
      &kMatmulAccumulate,
      &kMatmulAdd,
      &kMatmulGeluGradient,
      &kBatchMatmul,
      &kAttention,
      &kAttentionGradient,
      &kLayerNorm,
      &kLayerNormGradient,
      &kLayerNormParameterGradient,
      &kLayerNormGradients,
      &kLayerNormGradientsAccumulate,
      &kGroupNorm,
      &kGroupNormSums,
      &kGroupNormGradient,
      &kBatchNorm,
      &kBatchMoments,
      &kBatchNormApply,
      &kBatchNormAdd,
      &kBatchNormGradient,
      &kBatchNormReluGradient,
      &kBatchNormAddReluGradient,
      &kMovingStatistics,
      &kGelu,
      &kGeluGradient,
      &kLeakyRelu,
      &kLeakyReluGradient,
      &kRelu,
      &kReluGradient,
      &kReluBits,
      &kReluBitsGradient,
      &kConv2d,
      &kConv2dInputGradient,
      &kConv2dInputGradientAdd,
      &kConv2dWeightGradient,
      &kClippedRelu,
      &kClippedReluGradient,
      &kPad,
      &kCrop,
      &kAvgPool,
      &kAvgPoolGradient,
      &kUpsample,
      &kUpsampleGradient,
      &kResize,
      &kResizeGradient,
      &kRandomImage,
      &kRandomImageGradient,
      &kRandom,
      &kMaxPool,
      &kMaxPoolGradient,
      &kConv2dPool,
      &kConv2dPoolWeightGradient,
      &kCtcLoss,
      &kCtcLossGradient,
      &kSparseSoftmaxCrossEntropy,
      &kSparseSoftmaxCrossEntropyGradient,
      &kSoftmaxCrossEntropy,
      &kSoftmaxCrossEntropyGradient,
      &kLinearCrossEntropy,
      &kLinearCrossEntropyAccumulate,
      &kLstm,
      &kLstmGradient,
      &kGru,
      &kGruGradient,
      &kSimpleRnn,
      &kSimpleRnnGradient,
      &kRecurrentWeightGradient,
      &kSgd,
      &kSgdMomentum,
      &kAdam,
      &kUpdate,
      &kSumSquares,
      &kConstrain,
      &kAccumulate,
      &kAssign,
      &kOwnRows,
      &kPlaceRows,
      &kAdd,
      &kSubtract,
      &kMultiply,
      &kDivide,
      &kMaximum,
      &kMinimum,
      &kEqualMask,
      &kGreaterMask,
      &kGreaterEqualMask,
      &kFloorDivide,
      &kMod,
      &kPower,
      &kNegative,
      &kExp,
      &kLog,
      &kSqrt,
      &kSquare,
      &kTanh,
      &kSigmoid,
      &kAbs,
      &kSign,
      &kSoftplus,
      &kExpm1,
      &kSin,
      &kCos,
      &kFloor,
      &kCeil,
      &kTrunc,
      &kRound,
      &kScale,
      &kFusedPointwise,
      &kReduceSum,
      &kReduceSumAccumulate,
      &kReduceMax,
      &kReduceMin,
      &kReduceProd,
      &kReduceNorm,
      &kCast,
      &kReshape,
      &kTranspose,
      &kFlip,
      &kArgsort,
      &kOneHot,
      &kFill,
      &kProgression,
      &kBroadcastTo,
      &kSoftmax,
      &kSoftmaxGradient,
      &kLogSoftmax,
      &kSparsemax,
      &kDropout,
      &kDropoutGradient,
      &kSparseCategoricalAccuracy,
      &kCategoricalAccuracy,
      &kEmbedding,
      &kEmbeddingGradient,
      &kEmbeddingGradientOnto,
      &kEmbeddingGradientAccumulate,
      &kGather,
      &kGatherGradient,
      &kConcatenate,
      &kSlice,
      &kSliceGradient,
      &kCausalMask,
  };
  return kOps;
}

}  // namespace pl
