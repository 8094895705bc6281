// What the recurrent ops (lstm, gru, simple_rnn) share: how steps follow one another, the functions
// of gates, operands and samples.
//
// Sequences are (B, T, ...). Step s of T reads its input at one place of the sequence and writes
// its state at another; a step that a mask leaves out hands the state on as it is.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "op/op.h"

namespace pl {

// Functions whose slope follows from their result.
enum class Squash : uint8_t { linear, tanh, sigmoid, relu, hard_sigmoid };
// "linear", "tanh", "sigmoid", "relu" or "hard_sigmoid"; Keras's relu6(x + 3) / 6 is the last.
std::optional<Squash> squash_from_name(std::string_view name);
inline constexpr const char* kSquashNames = "linear, tanh, sigmoid, relu or hard_sigmoid";

struct RecurrentOptions {
  std::string activation = "tanh";
  std::string recurrent_activation = "sigmoid";  // of gates
  bool backwards = false;                        // the last step of the sequence comes first
  bool flip = false;  // with `backwards`: results in the order in which steps ran
};
Attrs recurrent_attrs(const RecurrentOptions& options);

// What kernels know of a call.
struct RecurrentForm {
  Dim batch = 0, steps = 0, units = 0;
  bool backwards = false, flip = false;
  Squash activation = Squash::tanh, recurrent_activation = Squash::sigmoid;
  // Where step s reads and where it writes.
  Dim input_at(Dim s) const { return backwards ? steps - 1 - s : s; }
  Dim output_at(Dim s) const { return backwards && !flip ? steps - 1 - s : s; }
};
// `sequence` (B, T, ...). Rejects unknown functions.
RecurrentForm recurrent_form(const char* op, const Shape& sequence, Dim units, const Metas& in,
                             const Attrs& attrs);

// Operands behind the first ones, each there if the attribute of its name says so.
class OptionalOperands {
 public:
  OptionalOperands(const Attrs& attrs, int first) : attrs_(attrs), next_(first) {}
  int take(const char* name) { return attrs_.integer(name, 0) ? next_++ : -1; }
  int count() const { return next_; }

 private:
  const Attrs& attrs_;
  int next_;
};
// Appends the tensor, if it is defined, and says so in the attributes.
void add_operand(const char* name, const Tensor& tensor, Tensors& in, Attrs& attrs);

// Shapes of a call: `gates` times the units.
struct RecurrentSizes {
  Dtype dtype;
  Dim batch, steps, units, gates;
  Meta sequence(Dim factor = 1) const { return {dtype, Shape{batch, steps, factor * units}}; }
  Meta state() const { return {dtype, Shape{batch, units}}; }
  Meta mask() const { return {Dtype::boolean, Shape{batch, steps}}; }
  Meta dropped() const { return {dtype, Shape{batch, gates, units}}; }
};
// `sequence` (B, T, gates * H) of a floating dtype and `u` (H, gates * H), or a refusal.
RecurrentSizes recurrent_sizes(const char* op, Dim gates, const Meta& sequence, const Meta& u,
                               const Metas& in, const Attrs& attrs);
// Rejects the call unless operand `at`, if it is there, is like `meta`.
void expect_recurrent_meta(const char* op, const char* what, int at, const Meta& meta,
                           const Metas& in, const Attrs& attrs);
// The attributes that an op shares with its gradient: all but those that name operands.
Attrs recurrent_shared_attrs(const Attrs& attrs);
// Of ops whose operands, `count` of them, have samples along dimension 0 but for the `weights`.
Rows recurrent_rows(RowMask weights, int count, RowMask in);

// Samples of the ops.
struct RecurrentCase {
  const char* name;
  Dim batch, steps, units;
  std::vector<std::pair<std::string, Attr>> attrs = {};
  bool benchmark = false;
};
Sample recurrent_sample(const RecurrentCase& c);
SampleInput sample_real(Shape shape, Fill fill = Fill::normal);
// `states` first states, a mask and factors, as far as the attributes name them.
void add_recurrent_extras(const RecurrentCase& c, Dim gates, int states, Sample& sample);

}  // namespace pl
