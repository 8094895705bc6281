#include "op/formula.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pl {

Term Formula::add(Kind kind, size_t at) {
  entries_.push_back({kind, static_cast<int>(at)});
  return Term(this, static_cast<int>(entries_.size()) - 1);
}

Term Formula::variable(const Tensor& tensor) {
  variables_.push_back(tensor);
  written_.emplace_back(0.0);
  return add(Kind::variable, variables_.size() - 1);
}

Term Formula::operand(const Tensor& tensor) {
  operands_.push_back(tensor);
  return add(Kind::operand, operands_.size() - 1);
}

// Equal numbers are one.
Term Formula::scalar(const ScalarInstruction& made) {
  const auto same = std::find(scalars_.begin(), scalars_.end(), made);
  const auto at = static_cast<size_t>(same - scalars_.begin());
  if (same == scalars_.end()) scalars_.push_back(made);
  for (size_t e = 0; e < entries_.size(); ++e)
    if (entries_[e].kind == Kind::scalar && entries_[e].at == static_cast<int>(at))
      return Term(this, static_cast<int>(e));
  return add(Kind::scalar, at);
}

Term Formula::rate() { return scalar({.op = ScalarOp::rate}); }
Term Formula::step() { return scalar({.op = ScalarOp::step}); }
Term Formula::number(double constant) { return scalar({.op = ScalarOp::constant, .x = constant}); }
Term Formula::every(int64_t steps) {
  return scalar(
      {.op = ScalarOp::multiple, .a = scalar_id(step()), .x = static_cast<double>(steps)});
}

int Formula::scalar_id(const Term& term) {
  const Term made = term.formula_ ? term : number(term.constant_);
  return entries_[static_cast<size_t>(made.id_)].at;
}

Term Formula::scalar_of(ScalarOp op, const Term& a, const Term& b) {
  const int first = scalar_id(a);
  return scalar({.op = op, .a = first, .b = operands_of(op) == 2 ? scalar_id(b) : -1});
}

Term Formula::value(const TileInstruction& made) {
  code_.push_back(made);
  return add(Kind::value, code_.size() - 1);
}

Term Formula::value_of(TileOp op, const Term& a, const Term& b) {
  const Term first = a.formula_ ? a : number(a.constant_);
  const Term second = b.formula_ ? b : number(b.constant_);
  return value({.op = op, .a = first.id_, .b = operands_of(op) == 2 ? second.id_ : -1});
}

Term Formula::linear(const Term& x, double factor, double offset) {
  return value({.op = TileOp::scale, .a = x.id_, .x = factor, .y = offset});
}

void Formula::write(const Term& variable, const Term& value) {
  check(kind(variable) == Kind::variable, "what is written is a variable");
  const bool computed = value.formula_ && kind(value) == Kind::value;
  // A number or an operand becomes a value of the program.
  written_[static_cast<size_t>(entries_[static_cast<size_t>(variable.id_)].at)] =
      computed ? value : value_of(TileOp::maximum, value, value);
}

void Formula::guard(const Tensor& flag) { flag_ = flag; }

Tensors Formula::operands() const {
  Tensors list = variables_;
  list.insert(list.end(), operands_.begin(), operands_.end());
  return list;
}

// Numbers the terms as a StepProgram does: variables, operands, the scalars that are read, values.
StepProgram Formula::program(const std::vector<Term>& outputs) const {
  StepProgram made{.tensors = static_cast<int>(variables_.size() + operands_.size()),
                   .scalars = scalars_};
  auto use = [&](int id) {
    if (id < 0 || entries_[static_cast<size_t>(id)].kind != Kind::scalar) return;
    const int64_t at = entries_[static_cast<size_t>(id)].at;
    if (std::find(made.uses.begin(), made.uses.end(), at) == made.uses.end())
      made.uses.push_back(at);
  };
  for (const TileInstruction& line : code_) {
    use(line.a);
    use(line.b);
  }
  made.tile.operands = made.tensors + static_cast<int>(made.uses.size());
  auto number_of = [&](int id) {
    if (id < 0) return -1;
    const auto& [kind, at] = entries_[static_cast<size_t>(id)];
    switch (kind) {
      case Kind::variable:
        return at;
      case Kind::operand:
        return static_cast<int>(variables_.size()) + at;
      case Kind::scalar:
        return made.tensors + static_cast<int>(std::find(made.uses.begin(), made.uses.end(), at) -
                                               made.uses.begin());
      case Kind::value:
        return made.tile.operands + at;
    }
    return -1;
  };
  for (TileInstruction line : code_) {
    line.a = number_of(line.a);
    line.b = number_of(line.b);
    made.tile.code.push_back(line);
  }
  for (const Term& term : outputs) made.outputs.push_back(number_of(term.id_));
  if (made.uses.empty()) made.scalars.clear();
  return made;
}

Tensors Formula::update() {
  for (const Term& term : written_) check(term.formula_, "every variable of a formula is written");
  Attrs attrs = attrs_of(program(written_));
  Tensors in = operands();
  if (flag_.defined()) {
    attrs.set("guarded", int64_t{1});
    in.push_back(flag_);
  }
  in.push_back(step_params_);
  return pl::apply(kUpdate, std::move(in), std::move(attrs));
}

Tensors Formula::sums_of_squares(const std::vector<Term>& terms) {
  Tensors in = operands();
  in.push_back(step_params_);
  return pl::apply(kSumSquares, std::move(in), attrs_of(program(terms)));
}

Term combine(TileOp tile, ScalarOp scalar, const Term& a, const Term& b) {
  Formula* formula = a.formula_ ? a.formula_ : b.formula_;
  check(formula, "a term of a formula");
  if (formula->is_scalar(a) && formula->is_scalar(b)) return formula->scalar_of(scalar, a, b);
  // A constant factor or offset is part of the instruction.
  if (!b.formula_) {
    if (tile == TileOp::multiply) return formula->linear(a, b.constant_, 0);
    if (tile == TileOp::add) return formula->linear(a, 1, b.constant_);
    if (tile == TileOp::subtract) return formula->linear(a, 1, -b.constant_);
  }
  if (!a.formula_) {
    if (tile == TileOp::multiply) return formula->linear(b, a.constant_, 0);
    if (tile == TileOp::add) return formula->linear(b, 1, a.constant_);
    if (tile == TileOp::subtract) return formula->linear(b, -1, a.constant_);
  }
  return formula->value_of(tile, a, b);
}

Term apply(TileOp op, const Term& x) {
  check(x.formula_ && !x.formula_->is_scalar(x), "a term with elements");
  return x.formula_->value_of(op, x, x);
}

Term operator+(const Term& a, const Term& b) { return combine(TileOp::add, ScalarOp::add, a, b); }
Term operator-(const Term& a, const Term& b) {
  return combine(TileOp::subtract, ScalarOp::subtract, a, b);
}
Term operator*(const Term& a, const Term& b) {
  return combine(TileOp::multiply, ScalarOp::multiply, a, b);
}
Term operator/(const Term& a, const Term& b) {
  return combine(TileOp::divide, ScalarOp::divide, a, b);
}
Term maximum(const Term& a, const Term& b) {
  return combine(TileOp::maximum, ScalarOp::maximum, a, b);
}
Term minimum(const Term& a, const Term& b) {
  return combine(TileOp::minimum, ScalarOp::minimum, a, b);
}
Term greater(const Term& a, const Term& b) {
  return combine(TileOp::greater_mask, ScalarOp::greater, a, b);
}
Term square(const Term& x) { return apply(TileOp::square, x); }
Term abs(const Term& x) { return apply(TileOp::abs, x); }
Term sign(const Term& x) { return apply(TileOp::sign, x); }

Term sqrt(const Term& x) {
  if (!x.formula_) return std::sqrt(x.constant_);
  return x.formula_->is_scalar(x) ? x.formula_->scalar_of(ScalarOp::sqrt, x, x)
                                  : apply(TileOp::sqrt, x);
}

Term power(const Term& base, const Term& exponent) {
  Formula* formula = base.formula_ ? base.formula_ : exponent.formula_;
  check(formula, "a term of a formula");
  if (formula->is_scalar(base) && formula->is_scalar(exponent))
    return formula->scalar_of(ScalarOp::power, base, exponent);
  if (!exponent.formula_ && exponent.constant_ == 0.5) return sqrt(base);
  return apply(TileOp::exp, apply(TileOp::log, base) * exponent);
}

Term select(const Term& mask, const Term& yes, const Term& no) {
  return combine(TileOp::relu_gradient, ScalarOp::multiply, mask, yes) +
         combine(TileOp::relu_gradient, ScalarOp::multiply, 1 - mask, no);
}

}  // namespace pl
