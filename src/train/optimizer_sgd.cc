// Optimisers that go down the gradient, and those that divide it by what they have seen of it.
#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "op/functions.h"
#include "train/optimizers.h"

namespace pl {
namespace {

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const SGDOptions& o)
      : Optimizer("sgd", o.learning_rate, update_options_of(o)),
        momentum_(o.momentum),
        nesterov_(o.nesterov) {
    check_range("SGD momentum", momentum_, 0, 1);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return momentum_ > 0 ? std::vector<Slot>{{"momentum", weight}} : std::vector<Slot>{};
  }
  bool apply_plain(Trained& trained, const Tensor& g, double decay,
                   const Tensor& step_params) const override {
    if (decay != 0) return false;
    if (momentum_ == 0) {
      trained.weight = sgd(trained.weight, g, step_params);
      return true;
    }
    const SgdMomentumResult next =
        sgd_momentum(trained.weight, trained.slots[0], g, step_params, {momentum_, nesterov_});
    trained = {trained.path, next.w, {next.velocity}};
    return true;
  }
  Term step(UpdateCall& call) const override {
    const Term down = call.gradient() * call.formula().rate();
    if (momentum_ == 0) return call.weight() - down;
    const Term m = call.slot(0) * momentum_ - down;
    call.set(0, m);
    return call.weight() + (nesterov_ ? m * momentum_ - down : m);
  }

 private:
  double momentum_;
  bool nesterov_;
};

// Slots: velocity, then momentum and average_gradient where they are asked for.
class RmsPropOptimizer final : public Optimizer {
 public:
  explicit RmsPropOptimizer(const RMSpropOptions& o)
      : Optimizer("rmsprop", o.learning_rate, update_options_of(o)), o_(o) {
    check_range("RMSprop rho", o.rho, 0, 1);
    check_range("RMSprop momentum", o.momentum, 0, 1);
    check_range("RMSprop epsilon", o.epsilon, 0, 1);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    std::vector<Slot> list{{"velocity", weight}};
    if (o_.momentum > 0) list.push_back({"momentum", weight});
    if (o_.centered) list.push_back({"average_gradient", weight});
    return list;
  }
  Term step(UpdateCall& call) const override {
    const Term g = call.gradient();
    const Term v = call.slot(0) * o_.rho + square(g) * (1 - o_.rho);
    call.set(0, v);
    Term under = v;
    if (o_.centered) {
      const size_t at = o_.momentum > 0 ? 2 : 1;
      const Term average = call.slot(at) * o_.rho + g * (1 - o_.rho);
      call.set(at, average);
      under = v - square(average);
    }
    const Term down = g * call.formula().rate() / sqrt(under + o_.epsilon);
    if (!(o_.momentum > 0)) return call.weight() - down;
    const Term m = call.slot(1) * o_.momentum + down;
    call.set(1, m);
    return call.weight() - m;
  }

 private:
  RMSpropOptions o_;
};

class AdagradOptimizer final : public Optimizer {
 public:
  explicit AdagradOptimizer(const AdagradOptions& o)
      : Optimizer("adagrad", o.learning_rate, update_options_of(o)), o_(o) {
    check_range("Adagrad epsilon", o.epsilon, 0, 1);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"accumulator", weight, o_.initial_accumulator_value}};
  }
  Term step(UpdateCall& call) const override {
    const Term g = call.gradient();
    const Term sum = call.slot(0) + square(g);
    call.set(0, sum);
    return call.weight() - g * call.formula().rate() / sqrt(sum + o_.epsilon);
  }

 private:
  AdagradOptions o_;
};

class AdadeltaOptimizer final : public Optimizer {
 public:
  explicit AdadeltaOptimizer(const AdadeltaOptions& o)
      : Optimizer("adadelta", o.learning_rate, update_options_of(o)), o_(o) {
    check_range("Adadelta rho", o.rho, 0, 1);
    check_range("Adadelta epsilon", o.epsilon, 0, 1);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"accumulated_grad", weight}, {"accumulated_delta_var", weight}};
  }
  Term step(UpdateCall& call) const override {
    auto rms = [&](const Term& x) { return sqrt(x + o_.epsilon); };
    const Term g = call.gradient();
    const Term seen = call.slot(0) * o_.rho + square(g) * (1 - o_.rho);
    const Term down = rms(call.slot(1)) * g / rms(seen);
    call.set(0, seen);
    call.set(1, call.slot(1) * o_.rho + square(down) * (1 - o_.rho));
    return call.weight() - down * call.formula().rate();
  }

 private:
  AdadeltaOptions o_;
};

class FtrlOptimizer final : public Optimizer {
 public:
  explicit FtrlOptimizer(const FtrlOptions& o)
      : Optimizer("ftrl", o.learning_rate, update_options_of(o)), o_(o) {
    constexpr double kLargest = 1e30;
    check_range("Ftrl learning_rate_power", o.learning_rate_power, -kLargest, 0);
    check_range("Ftrl initial_accumulator_value", o.initial_accumulator_value, 0, kLargest);
    check_range("Ftrl l1_regularization_strength", o.l1_regularization_strength, 0, kLargest);
    check_range("Ftrl l2_regularization_strength", o.l2_regularization_strength, 0, kLargest);
    check_range("Ftrl l2_shrinkage_regularization_strength", o.l2_shrinkage_regularization_strength,
                0, kLargest);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"accumulator", weight, o_.initial_accumulator_value}, {"linear", weight}};
  }
  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    const Term w = call.weight(), g = call.gradient(), old = call.slot(0);
    const Term sum = old + square(g);
    const Term before = power(old, -o_.learning_rate_power);
    const Term after = power(sum, -o_.learning_rate_power);
    const Term used = g + w * (2 * o_.l2_shrinkage_regularization_strength);
    const Term linear = call.slot(1) + (used - (after - before) / f.rate() * w);
    const Term l2 = 2 * (o_.l2_regularization_strength + o_.beta / (2 * f.rate()));
    const Term quadratic = after / f.rate() + l2;
    const Term clipped =
        minimum(maximum(linear, -o_.l1_regularization_strength), o_.l1_regularization_strength);
    call.set(0, sum);
    call.set(1, linear);
    return (clipped - linear) / quadratic;
  }

 private:
  FtrlOptions o_;
};

class LionOptimizer final : public Optimizer {
 public:
  explicit LionOptimizer(const LionOptions& o)
      : Optimizer("lion", o.learning_rate, update_options_of(o)), o_(o) {
    if (!(o.beta_1 > 0 && o.beta_1 <= 1))
      throw UserError("[compile] Lion beta_1: expected a number above 0, up to 1, received " +
                      number_text(o.beta_1));
    check_range("Lion beta_2", o.beta_2, 0, 1);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"momentum", weight}};
  }
  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    const Term g = call.gradient(), m = call.slot(0);
    auto blend = [&](double beta) {
      const Term keep = f.number(beta);
      return m * keep + g * (1 - keep);
    };
    const Term next = call.weight() - sign(blend(o_.beta_1)) * f.rate();
    call.set(0, blend(o_.beta_2));
    return next;
  }

 private:
  LionOptions o_;
};

// Squares of the gradient by the means of their rows and columns. Slots of a matrix (..., R, C):
// r (..., R), c (..., C), velocity; of a vector: velocity.
class AdafactorOptimizer final : public Optimizer {
 public:
  explicit AdafactorOptimizer(const AdafactorOptions& o)
      : Optimizer("adafactor", o.learning_rate, update_options_of(o)), o_(o) {}

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    if (weight.shape.rank() < 2) return {{"velocity", weight}};
    std::vector<Dim> rows = weight.shape.dims(), columns = rows;
    rows.pop_back();
    columns.erase(columns.end() - 2);
    return {{"r", {weight.dtype, Shape(rows)}},
            {"c", {weight.dtype, Shape(columns)}},
            {"velocity", weight}};
  }

  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    const bool matrix = call.meta().shape.rank() >= 2;
    const size_t last = matrix ? 2 : 0;
    // (..., R, 1) and (..., 1, C): their product is the velocity's root. Of the velocity itself the
    // root would be zero where a row and a column of the gradient are, which makes Keras's weights
    // NaN.
    Tensor rows, columns;
    if (matrix) factor(call, &rows, &columns);
    auto velocity_root = [&](Formula& formula, const Term& g, const auto& old) {
      if (matrix) return formula.operand(rows) * formula.operand(columns);
      const Term beta = keep(formula);
      return sqrt(old() * beta + (square(g) + o_.epsilon_1) * (1 - beta));
    };
    const Tensors sums = call.sums([&](UpdateCall::Sums& terms) {
      const Term g = terms.gradient();
      return std::vector{terms.weight(),
                         g / velocity_root(terms.formula, g, [&] { return terms.slot(last); })};
    });
    const double share = 1 / static_cast<double>(call.meta().elements());
    const Dtype dtype = sums[0].dtype();
    const Tensor size = maximum(sqrt(scale(sums[0], share)), fill(Shape{}, o_.epsilon_2, dtype));
    const Tensor over =
        maximum(scale(sqrt(scale(sums[1], share)), 1 / o_.clip_threshold), fill(Shape{}, 1, dtype));
    const Term g = call.gradient();
    const Term root = velocity_root(f, g, [&] { return call.slot(last); });
    call.set(last, square(root));
    const Term rate = minimum(f.rate(), 1 / sqrt(f.step()));
    return call.weight() - g / root / f.operand(over) * (f.operand(size) * rate);
  }

 private:
  Term keep(Formula& f) const { return 1 - power(f.step(), o_.beta_2_decay); }

  // Updates r and c.
  void factor(UpdateCall& call, Tensor* rows, Tensor* columns) const {
    const Tensor squares = scale(square(call.gradient_tensor()), 1, o_.epsilon_1);
    auto mean = [&](size_t slot, int64_t axis) {
      const Tensor means = reduce_mean(squares, {axis});
      return call.update_slot(slot, [&](Formula& f, const Term& old) {
        const Term beta = keep(f);
        return old * beta + f.operand(means) * (1 - beta);
      });
    };
    const Tensor r = mean(0, -1), c = mean(1, -2);
    std::vector<Dim> shape = call.meta().shape.dims();
    const Dim width = shape.back();
    shape.back() = 1;
    *rows = reshape(sqrt(divide(r, reduce_mean(r, {-1}, true))), shape);
    shape.back() = width;
    shape[shape.size() - 2] = 1;
    *columns = reshape(sqrt(c), shape);
  }

  AdafactorOptions o_;
};

}  // namespace

OptimizerRef SGD(SGDOptions o) { return std::make_shared<SgdOptimizer>(o); }
OptimizerRef RMSprop(RMSpropOptions o) { return std::make_shared<RmsPropOptimizer>(o); }
OptimizerRef Adagrad(AdagradOptions o) { return std::make_shared<AdagradOptimizer>(o); }
OptimizerRef Adadelta(AdadeltaOptions o) { return std::make_shared<AdadeltaOptimizer>(o); }
OptimizerRef Ftrl(FtrlOptions o) { return std::make_shared<FtrlOptimizer>(o); }
OptimizerRef Lion(LionOptions o) { return std::make_shared<LionOptimizer>(o); }
OptimizerRef Adafactor(AdafactorOptions o) { return std::make_shared<AdafactorOptimizer>(o); }

}  // namespace pl
