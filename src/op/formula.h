// Formula: an optimiser's arithmetic, written as it is on paper and run in one pass. Terms are
// tensors, numbers of the step (its learning rate, how many updates there were) and constants; what
// is computed from numbers alone is computed once, in the variables' dtype.
//
//   Formula f(step_params);
//   const Term w = f.variable(weight), m = f.variable(momentum), g = f.operand(gradient);
//   const Term next = m * 0.9 - g * f.rate();
//   f.write(m, next);
//   f.write(w, w + next);
//   const Tensors versions = f.update();   // of w and m
#pragma once

#include "op/update.h"

namespace pl {

class Formula;

// A handle into a Formula, or a constant.
class Term {
 public:
  Term(double constant) : constant_(constant) {}

 private:
  friend class Formula;
  friend Term combine(TileOp tile, ScalarOp scalar, const Term& a, const Term& b);
  friend Term apply(TileOp op, const Term& x);
  friend Term power(const Term& base, const Term& exponent);
  friend Term sqrt(const Term& x);
  Term(Formula* formula, int id) : formula_(formula), id_(id) {}
  Formula* formula_ = nullptr;  // null: a constant
  int id_ = -1;
  double constant_ = 0;
};

class Formula {
 public:
  explicit Formula(const Tensor& step_params) : step_params_(step_params) {}
  Formula(const Formula&) = delete;
  Formula& operator=(const Formula&) = delete;

  Term variable(const Tensor& tensor);  // to be written; all of one shape
  Term operand(const Tensor& tensor);   // broadcasts to it
  Term rate();
  Term step();                   // 1 in the first update
  Term every(int64_t steps);     // 1 in each so-many-th update, else 0
  Term number(double constant);  // in the variables' dtype
  void write(const Term& variable, const Term& value);
  void guard(const Tensor& flag);  // {}: where it is zero nothing is written

  Tensors update();  // next versions, in the order of variable()
  Tensors sums_of_squares(const std::vector<Term>& terms);  // {} each

 private:
  friend Term combine(TileOp tile, ScalarOp scalar, const Term& a, const Term& b);
  friend Term apply(TileOp op, const Term& x);
  friend Term power(const Term& base, const Term& exponent);
  friend Term sqrt(const Term& x);

  enum class Kind : uint8_t { variable, operand, scalar, value };
  struct Entry {
    Kind kind;
    int at;  // in the list of its kind
  };

  Kind kind(const Term& term) const { return entries_[static_cast<size_t>(term.id_)].kind; }
  bool is_scalar(const Term& term) const { return !term.formula_ || kind(term) == Kind::scalar; }
  Term add(Kind kind, size_t at);
  Term scalar(const ScalarInstruction& made);
  Term scalar_of(ScalarOp op, const Term& a, const Term& b);
  Term value(const TileInstruction& made);
  Term value_of(TileOp op, const Term& a, const Term& b);
  Term linear(const Term& x, double factor, double offset);
  int scalar_id(const Term& term);
  StepProgram program(const std::vector<Term>& outputs) const;
  Tensors operands() const;

  Tensor step_params_, flag_;
  Tensors variables_, operands_;
  std::vector<Term> written_;  // as variables_; constants where nothing is written yet
  std::vector<ScalarInstruction> scalars_;
  std::vector<TileInstruction> code_;  // operands are entries' ids
  std::vector<Entry> entries_;
};

Term operator+(const Term& a, const Term& b);
Term operator-(const Term& a, const Term& b);
Term operator*(const Term& a, const Term& b);
Term operator/(const Term& a, const Term& b);
Term maximum(const Term& a, const Term& b);
Term minimum(const Term& a, const Term& b);
Term greater(const Term& a, const Term& b);  // 1 or 0
Term square(const Term& x);
Term sqrt(const Term& x);
Term abs(const Term& x);
Term sign(const Term& x);
Term power(const Term& base, const Term& exponent);  // of tensors: the base is positive
// `yes` where mask is 1, `no` where it is 0, whatever the other is.
Term select(const Term& mask, const Term& yes, const Term& no);

}  // namespace pl
