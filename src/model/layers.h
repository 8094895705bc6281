// The layers, with Keras's names and defaults. One visible list; each is a small file.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "model/constraint.h"
#include "model/initializer.h"
#include "model/layer.h"
#include "model/layers_attention.h"
#include "model/layers_normalization.h"
#include "model/layers_preprocessing.h"
#include "model/layers_recurrent.h"
#include "model/layers_regularization.h"
#include "model/layers_spatial.h"
#include "model/regularizer.h"

namespace pl {

// One number for both directions, or two.
struct Pair {
  Pair(int64_t both) : value{both, both} {}
  Pair(int64_t height, int64_t width) : value{height, width} {}
  std::array<int64_t, 2> value;
};

// Rows and columns of padding: one number for all sides, one for each direction, or
// {{top, bottom}, {left, right}}.
struct Padding2D {
  Padding2D(int64_t all) : value{all, all, all, all} {}
  Padding2D(int64_t height, int64_t width) : value{height, height, width, width} {}
  Padding2D(std::array<int64_t, 2> rows, std::array<int64_t, 2> columns)
      : value{rows[0], rows[1], columns[0], columns[1]} {}
  std::array<int64_t, 4> value;  // top, bottom, left, right
};

struct DenseOptions {
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef Dense(int64_t units, DenseOptions options = {});

struct Conv2DOptions {
  Pair strides = 1;
  std::string padding = "valid";
  Pair dilation_rate = 1;
  int64_t groups = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef Conv2D(int64_t filters, Pair kernel_size, Conv2DOptions options = {});

// Each channel has depth_multiplier kernels of its own: (KH, KW, C, M), as in Keras.
struct DepthwiseConv2DOptions {
  Pair strides = 1;
  std::string padding = "valid";
  int64_t depth_multiplier = 1;
  Pair dilation_rate = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string depthwise_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string depthwise_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string depthwise_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef DepthwiseConv2D(Pair kernel_size, DepthwiseConv2DOptions options = {});

// A depthwise convolution, then one of 1x1.
struct SeparableConv2DOptions {
  Pair strides = 1;
  std::string padding = "valid";
  Pair dilation_rate = 1;
  int64_t depth_multiplier = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string depthwise_initializer = "glorot_uniform";
  std::string pointwise_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string depthwise_regularizer = "";
  std::string pointwise_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string depthwise_constraint = "";
  std::string pointwise_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef SeparableConv2D(int64_t filters, Pair kernel_size, SeparableConv2DOptions options = {});

// The kernel is (KH, KW, filters, C), as in Keras.
struct Conv2DTransposeOptions {
  Pair strides = 1;
  std::string padding = "valid";
  std::optional<Pair> output_padding = {};  // pixels behind, fewer than strides; none: Keras's rule
  Pair dilation_rate = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Conv2DTranspose(int64_t filters, Pair kernel_size, Conv2DTransposeOptions options = {});

struct MaxPooling2DOptions {
  Pair strides = 0;  // 0: the pool size
  std::string padding = "valid";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef MaxPooling2D(Pair pool_size = 2, MaxPooling2DOptions options = {});

// Padding is no part of a mean.
struct AveragePooling2DOptions {
  Pair strides = 0;  // 0: the pool size
  std::string padding = "valid";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef AveragePooling2D(Pair pool_size = 2, AveragePooling2DOptions options = {});

struct GlobalPooling2DOptions {
  bool keepdims = false;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef GlobalAveragePooling2D(GlobalPooling2DOptions options = {});
LayerRef GlobalMaxPooling2D(GlobalPooling2DOptions options = {});

LayerRef ZeroPadding2D(Padding2D padding = 1, std::string name = "");
LayerRef Cropping2D(Padding2D cropping = 0, std::string name = "");

struct UpSampling2DOptions {
  std::string interpolation = "nearest";  // or as Resizing's
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef UpSampling2D(Pair size = 2, UpSampling2DOptions options = {});

struct ReLUOptions {
  std::optional<double> max_value = {};
  double negative_slope = 0;
  double threshold = 0;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef ReLU(ReLUOptions options = {});
LayerRef LeakyReLU(double negative_slope = 0.3, std::string name = "");
LayerRef ELU(double alpha = 1, std::string name = "");
LayerRef Softmax(Axes axis = -1, std::string name = "");
struct PReLUOptions {
  std::string alpha_initializer = "zeros";
  std::string alpha_regularizer = "";
  std::string alpha_constraint = "";
  std::vector<int64_t> shared_axes = {};  // 1 is the first behind the batch
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef PReLU(PReLUOptions options = {});

LayerRef Flatten(std::string name = "");
// Samples in another shape; one dimension may be -1, whatever is left.
LayerRef Reshape(std::vector<Dim> target_shape, std::string name = "");
LayerRef Activation(std::string activation, std::string name = "");

// Tokens to vectors: int32 (...) to (..., output_dim). Tokens lie in [0, input_dim).
struct EmbeddingOptions {
  std::string embeddings_initializer = "uniform";
  std::string embeddings_regularizer = "";
  std::string embeddings_constraint = "";
  bool mask_zero = false;  // token 0 is padding: masked
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef Embedding(int64_t input_dim, int64_t output_dim, EmbeddingOptions options = {});

// x (..., T, D) plus a learned vector for each of the T positions.
struct PositionalEmbeddingOptions {
  std::string embeddings_initializer = "uniform";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef PositionalEmbedding(PositionalEmbeddingOptions options = {});

// x (T, D) behind a learned vector: (1 + T, D); and one position of x (T, D): (D,).
struct ClassTokenOptions {
  std::string token_initializer = "zeros";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef ClassToken(ClassTokenOptions options = {});
LayerRef TakePosition(int64_t position, std::string name = "");

// The Embedding's table once more, as a head: x (..., D) to logits (..., input_dim), without bias.
// One variable; the gradients of both uses add up.
LayerRef TiedDense(const LayerRef& embedding, std::string name = "");

// "ab,bc->ac", "abc,cde->abde", "...x,xy->...y": the kernel's dimensions are those of its letters.
// output_shape without the batch; 0 for a size that is the input's.
struct EinsumDenseOptions {
  std::string activation = "linear";
  std::string bias_axes = "";  // letters of the output; "": no bias
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";  // LayerRef::dtype()
  bool trainable = true;
};
LayerRef EinsumDense(std::string equation, std::vector<int64_t> output_shape,
                     EinsumDenseOptions options = {});

// Of two or more inputs, of one shape or of shapes that broadcast; Subtract of two.
LayerRef Add(std::string name = "");
LayerRef Subtract(std::string name = "");
LayerRef Multiply(std::string name = "");
LayerRef Average(std::string name = "");
LayerRef Maximum(std::string name = "");
LayerRef Minimum(std::string name = "");
LayerRef Concatenate(int64_t axis = -1, std::string name = "");
// Products of two inputs, summed along one axis of each, counted with the batch as 0.
struct DotOptions {
  bool normalize = false;  // to length 1 along the axes first
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Dot(Pair axes, DotOptions options = {});

LayerRef Permute(std::vector<int64_t> dims, std::string name = "");  // 1: first behind the batch
LayerRef RepeatVector(int64_t n, std::string name = "");             // (F,) to (n, F)
// Positions (T, F) whose features all equal mask_value are masked (docs/decisions/0014-masks.md).
LayerRef Masking(double mask_value = 0, std::string name = "");
LayerRef Identity(std::string name = "");
// Any function of tensors with the batch as dimension 0, made of public op functions.
using LambdaFunction = std::function<Tensor(const Tensors&)>;
LayerRef Lambda(LambdaFunction function, std::string name = "");
// The same under another kind, by which it is named: "Add" to add, add_1, ...
LayerRef op_layer(std::string kind, LambdaFunction function);

// Keras's other names.
inline LayerRef MaxPool1D(int64_t pool_size = 2, Pooling1DOptions options = {}) {
  return MaxPooling1D(pool_size, std::move(options));
}
inline LayerRef MaxPool2D(Pair pool_size = 2, MaxPooling2DOptions options = {}) {
  return MaxPooling2D(pool_size, std::move(options));
}
inline LayerRef MaxPool3D(Triple pool_size = 2, Pooling3DOptions options = {}) {
  return MaxPooling3D(pool_size, std::move(options));
}
inline LayerRef AvgPool1D(int64_t pool_size = 2, Pooling1DOptions options = {}) {
  return AveragePooling1D(pool_size, std::move(options));
}
inline LayerRef AvgPool2D(Pair pool_size = 2, AveragePooling2DOptions options = {}) {
  return AveragePooling2D(pool_size, std::move(options));
}
inline LayerRef AvgPool3D(Triple pool_size = 2, Pooling3DOptions options = {}) {
  return AveragePooling3D(pool_size, std::move(options));
}

// Activations, by all of Keras's names, with its options behind them (model/spec.h): "relu",
// "gelu" (exact), "gelu_tanh", "leaky_relu:0.1", "elu:alpha=0.5", "softmax:axis=1",
// "threshold:threshold=0.5,value=0", ... The list is in activation.cc. Throws UserError listing
// them for anything else, and for "glu", which halves an axis, unless any_shape.
void check_activation(const std::string& activation, bool any_shape = false);
// Integers come out as float32, but for linear, and relu and relu6 with whole numbers.
Tensor activate(const std::string& activation, const Tensor& x);
Shape activated_shape(const std::string& activation, Shape in);  // of one sample
// Keras's relu: slope * (x - threshold) below the threshold, x above it, at most `most`.
inline constexpr double kNoReluLimit = 1e30;
Tensor general_relu(const Tensor& x, double slope, double most, double threshold);
Tensor real_of(const Tensor& x);  // integers as float32

}  // namespace pl
