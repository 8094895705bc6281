// What the recurrent ops (lstm, gru, simple_rnn) share: how steps follow one another, the functions
// of gates, operands and samples.
//
// Sequences are (B, T, ...). Step s of T reads its input at one place of the sequence and writes
// its state at another; a step that a mask leaves out hands the state on as it is.
#pragma once

#include <optional>
#include <span>
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
  bool reset_after = true;  // of gru
  Squash activation = Squash::tanh, recurrent_activation = Squash::sigmoid;
  // Places of operands; -1: absent.
  int bias = -1, h0 = -1, c0 = -1, mask = -1, dropped = -1;
  int dh = -1, dlast_h = -1, dlast_c = -1, dgates = -1, dcells = -1;  // of gradients alone
  // Where step s reads and where it writes.
  Dim input_at(Dim s) const { return backwards ? steps - 1 - s : s; }
  Dim output_at(Dim s) const { return backwards && !flip ? steps - 1 - s : s; }
};
// `sequence` (B, T, ...). Rejects unknown functions. Places are not set.
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

// An operand that is there if an attribute says so.
struct RecurrentOperand {
  const char* attr;
  const char* what;
  int RecurrentForm::*place;
  Meta (*meta)(const RecurrentSizes&);
  int of_output = -1;  // of a gradient: the output whose gradient it is
};
// The operands that the ops have in common.
inline constexpr RecurrentOperand kFirstState{"state", "h0", &RecurrentForm::h0,
                                              [](const RecurrentSizes& s) { return s.state(); }};
inline constexpr RecurrentOperand kFirstCell{"state", "c0", &RecurrentForm::c0,
                                             [](const RecurrentSizes& s) { return s.state(); }};
inline constexpr RecurrentOperand kStepMask{"mask", "a mask", &RecurrentForm::mask,
                                            [](const RecurrentSizes& s) { return s.mask(); }};
inline constexpr RecurrentOperand kDropped{"dropped", "factors", &RecurrentForm::dropped,
                                           [](const RecurrentSizes& s) { return s.dropped(); }};
constexpr RecurrentOperand gradient_of_steps(int output) {
  return {"dh", "dh", &RecurrentForm::dh, [](const RecurrentSizes& s) { return s.sequence(); },
          output};
}
constexpr RecurrentOperand gradient_of_last(int output) {
  return {"dlast_h", "dlast_h", &RecurrentForm::dlast_h,
          [](const RecurrentSizes& s) { return s.state(); }, output};
}

// What tells the ops apart. Operands that are always there: a sequence (B, T, gates * H) first, the
// weights u (H, gates * H) last, sequences (B, T, H) between them.
struct RecurrentKind {
  const char* op;
  Dim gates;
  int always;
  std::span<const RecurrentOperand> more;
  int u() const { return always - 1; }
};
// Sets the places of operands that the attributes name; answers how many operands there are.
int place_operands(const RecurrentKind& kind, const Attrs& attrs, RecurrentForm& form);
RecurrentSizes check_recurrent(const RecurrentKind& kind, const Metas& in, const Attrs& attrs);
RecurrentForm recurrent_form(const RecurrentKind& kind, const Metas& in, const Attrs& attrs);
// Every operand but the weights (and a bias) has samples along dimension 0.
Rows recurrent_rows(const RecurrentKind& kind, const Attrs& attrs, RowMask in);
// A product with u for each step, and `per_unit` operations for each unit.
Cost recurrent_cost(Dim gates, double per_unit, const Metas& in, const Metas& out);
// What the op of `backward` gives for a call of `forward`'s; `always`: its first operands.
Tensors recurrent_backward(const Op& op, const RecurrentKind& backward,
                           const RecurrentKind& forward, const GradientCall& call, Tensors always);

// Samples of the ops: each case has the operands that its attributes name.
struct RecurrentCase {
  const char* name;
  Dim batch, steps, units;
  std::vector<std::pair<std::string, Attr>> attrs = {};
  bool benchmark = false;
};
std::vector<Sample> recurrent_samples(const RecurrentKind& kind,
                                      const std::vector<RecurrentCase>& cases);
SampleInput sample_real(Shape shape, Fill fill = Fill::normal);

}  // namespace pl
