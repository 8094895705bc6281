#include "train/random.h"

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "model/layer_context.h"
#include "op/argsort.h"
#include "op/dropout.h"
#include "op/random.h"
#include "op/recorder.h"
#include "op/runtime.h"
#include "op/step_params.h"
#include "train/function_trace.h"

namespace pl::random {
namespace {

// The two keys of a draw beside the element's place.
struct Source {
  Tensor step_params;
  int64_t stream;
};

Tensor params_at(int64_t step) {
  const Tensor value(step_params_meta());
  const StepParams params{.step = step};
  std::memcpy(value.data(), &params, sizeof params);
  return value;
}

constexpr char kParamsKey = 0;  // of the one input that all draws in a function share

// Of values: another step in every call, of a function in every call of that.
Tensor next_params() {
  FunctionTrace* trace = FunctionTrace::current();
  if (!trace) return params_at(Runtime::here().next_draw());
  return trace->host_input({&kParamsKey, "random_params", step_params_meta(), [](void* to) {
                              const StepParams params{.step = Runtime::here().next_draw()};
                              std::memcpy(to, &params, sizeof params);
                            }});
}

Source source_of(const Seed& seed) {
  RandomScope* scope = RandomScope::current();
  const int64_t draw = scope ? scope->next() : 0;
  std::string key = scope ? std::to_string(scope->stream()) : "value";
  if (seed.number) key = "seed " + std::to_string(*seed.number);
  if (!seed.repeats) key += "#" + std::to_string(draw);
  const auto stream = static_cast<int64_t>(xxh3("random/" + key) >> 1);
  if (seed.repeats) return {params_at(0), stream};
  return {scope ? scope->step_params() : next_params(), stream};
}

void check_real(const char* call, Dtype dtype) {
  if (!is_floating(dtype))
    throw UserError("[random::" + std::string(call) +
                    "] dtype: expected a floating one, received " + std::string(name_of(dtype)));
}

Tensor drawn(const char* call, const Shape& shape, const RandomOptions& options, Dtype dtype,
             const Seed& seed, bool rows) {
  check_real(call, dtype);
  const Source source = source_of(seed);
  return draw(shape, source.step_params, source.stream, options, dtype, rows);
}

Tensor normal_of(const Shape& shape, const NormalOptions& o, Dtype dtype, bool rows) {
  if (!(o.stddev >= 0))
    throw UserError("[random::normal] stddev: expected a number from 0, received " +
                    std::to_string(o.stddev));
  return drawn("normal", shape, {.a = o.mean, .b = o.stddev}, dtype, o.seed, rows);
}

Tensor uniform_of(const Shape& shape, const UniformOptions& o, Dtype dtype, bool rows) {
  if (!(o.minval <= o.maxval))
    throw UserError("[random::uniform] expected minval up to maxval, received " +
                    std::to_string(o.minval) + " and " + std::to_string(o.maxval));
  return drawn("uniform", shape, {.distribution = "uniform", .a = o.minval, .b = o.maxval}, dtype,
               o.seed, rows);
}

}  // namespace

Tensor normal(const Shape& shape, const NormalOptions& options) {
  return normal_of(shape, options, options.dtype, false);
}
Tensor uniform(const Shape& shape, const UniformOptions& options) {
  return uniform_of(shape, options, options.dtype, false);
}
Tensor normal_like(const Tensor& x, const NormalOptions& options) {
  return normal_of(x.shape(), options, x.dtype(), carries_rows(x));
}
Tensor uniform_like(const Tensor& x, const UniformOptions& options) {
  return uniform_of(x.shape(), options, x.dtype(), carries_rows(x));
}

Tensor randint(const Shape& shape, int64_t minval, int64_t maxval, const Seed& seed) {
  if (minval >= maxval || minval < INT32_MIN || maxval > INT32_MAX)
    throw UserError("[random::randint] expected minval below maxval, both int32, received " +
                    std::to_string(minval) + " and " + std::to_string(maxval));
  const UniformOptions options{
      .minval = static_cast<double>(minval), .maxval = static_cast<double>(maxval), .seed = seed};
  // Rounding may reach the upper end.
  return ops::minimum(
      ops::cast(ops::floor(uniform_of(shape, options, Dtype::float64, false)), Dtype::int32),
      maxval - 1);
}

// The largest of logits with Gumbel's noise.
Tensor categorical(const Tensor& logits, int64_t num_samples, const Seed& seed) {
  if (logits.shape().rank() != 2 || num_samples < 1)
    throw UserError("[random::categorical] expected logits (N, classes), received " +
                    logits.meta().text());
  const Tensor many = ops::repeat(ops::expand_dims(logits, 1), num_samples, 1);
  const Tensor u = uniform_like(many, {.minval = 1e-12, .seed = seed});
  return ops::argmax(many - ops::log(-ops::log(u)), -1);
}

Tensor dropout(const Tensor& x, double rate, const Seed& seed) {
  const Source source = source_of(seed);
  return pl::dropout(x, source.step_params, rate, source.stream);
}

Tensor shuffle(const Tensor& x, int64_t axis, const Seed& seed) {
  const int rank = x.shape().rank();
  if (rank < 1 || axis < -rank || axis >= rank)
    throw UserError("[random::shuffle] expected an axis of " + x.meta().text() + ", received " +
                    std::to_string(axis));
  const Dim size = x.shape()[static_cast<int>(axis < 0 ? axis + rank : axis)];
  return ops::take(x, argsort(uniform({size}, {.seed = seed}), size), axis);
}

}  // namespace pl::random
