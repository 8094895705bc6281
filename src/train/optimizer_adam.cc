// Adam and its kin: moments of the gradient.
#include <algorithm>
#include <cctype>
#include <regex>

#include "base/error.h"
#include "op/functions.h"
#include "train/optimizers.h"

namespace pl {
namespace {

struct Betas {
  double beta_1, beta_2, epsilon;
};

template <class Options>
Betas betas_of(const char* name, const Options& o) {
  check_range((std::string(name) + " beta_1").c_str(), o.beta_1, 0, 1);
  check_range((std::string(name) + " beta_2").c_str(), o.beta_2, 0, 1);
  check_range((std::string(name) + " epsilon").c_str(), o.epsilon, 0, 1);
  return {o.beta_1, o.beta_2, o.epsilon};
}

// Both moments moved towards the gradient; slots 0 and 1.
struct Moments {
  Term m, v;
};
Moments next_moments(const Term& m, const Term& v, const Term& g, const Betas& b) {
  return {m + (g - m) * (1 - b.beta_1), v + (square(g) - v) * (1 - b.beta_2)};
}

class AdamOptimizer final : public Optimizer {
 public:
  template <class Options>
  AdamOptimizer(const char* name, const Options& o)
      : Optimizer(name, o.learning_rate, update_options_of(o)),
        betas_(betas_of(name, o)),
        amsgrad_(o.amsgrad) {}

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    std::vector<Slot> list{{"momentum", weight}, {"velocity", weight}};
    if (amsgrad_) list.push_back({"velocity_hat", weight});
    return list;
  }

  bool apply_plain(Trained& trained, const Tensor& g, double decay,
                   const Tensor& step_params) const override {
    if (amsgrad_) return false;
    const AdamResult next = adam(trained.weight, trained.slots[0], trained.slots[1], g, step_params,
                                 {betas_.beta_1, betas_.beta_2, betas_.epsilon, decay});
    trained = {trained.path, next.w, {next.m, next.v}};
    return true;
  }

  Term step(UpdateCall& call) const override {
    auto [m, v] = next_moments(call.slot(0), call.slot(1), call.gradient(), betas_);
    call.set(0, m);
    call.set(1, v);
    if (amsgrad_) {
      v = maximum(call.slot(2), v);
      call.set(2, v);
    }
    return call.weight() - m * adam_rate(call.formula(), betas_) / (sqrt(v) + betas_.epsilon);
  }

 public:
  // The rate with the corrections of both moments.
  static Term adam_rate(Formula& f, const Betas& b) {
    return f.rate() * sqrt(1 - power(f.number(b.beta_2), f.step())) /
           (1 - power(f.number(b.beta_1), f.step()));
  }

 private:
  Betas betas_;
  bool amsgrad_;
};

class AdamaxOptimizer final : public Optimizer {
 public:
  explicit AdamaxOptimizer(const AdamaxOptions& o)
      : Optimizer("adamax", o.learning_rate, update_options_of(o)), betas_(betas_of("Adamax", o)) {}

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"momentum", weight}, {"norm", weight}};
  }
  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    const Term g = call.gradient();
    const Term m = call.slot(0) + (g - call.slot(0)) * (1 - betas_.beta_1);
    const Term u = maximum(call.slot(1) * betas_.beta_2, abs(g));
    call.set(0, m);
    call.set(1, u);
    return call.weight() -
           m * f.rate() / ((u + betas_.epsilon) * (1 - power(f.number(betas_.beta_1), f.step())));
  }

 private:
  Betas betas_;
};

// Shared: the product of all momenta so far.
class NadamOptimizer final : public Optimizer {
 public:
  explicit NadamOptimizer(const NadamOptions& o)
      : Optimizer("nadam", o.learning_rate, update_options_of(o)), betas_(betas_of("Nadam", o)) {}

  std::vector<Slot> shared_slots(Dtype dtype) const override {
    return {{"u_product", {dtype, Shape{}}, 1.0}};
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"momentum", weight}, {"velocity", weight}};
  }
  void begin(Tensors& shared, const Tensor& step_params, const Tensor& finite) const override {
    Formula f(step_params);
    const Term product = f.variable(shared[0]);
    if (finite.defined()) f.guard(finite);
    f.write(product, product * betas_.beta_1 * (1 - 0.5 * power(f.number(0.96), f.step())));
    shared[0] = f.update()[0];
  }
  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    const Term beta_1 = f.number(betas_.beta_1), beta_2 = f.number(betas_.beta_2);
    auto momentum = [&](const Term& t) { return beta_1 * (1 - 0.5 * power(f.number(0.96), t)); };
    const Term now = momentum(f.step()), next = momentum(f.step() + 1);
    const Term product = f.operand(call.shared(0)), g = call.gradient();
    const Term m = call.slot(0) + (g - call.slot(0)) * (1 - beta_1);
    const Term v = call.slot(1) + (square(g) - call.slot(1)) * (1 - beta_2);
    call.set(0, m);
    call.set(1, v);
    const Term m_hat = m * next / (1 - product * next) + g * (1 - now) / (1 - product);
    const Term v_hat = v / (1 - power(beta_2, f.step()));
    return call.weight() - m_hat * f.rate() / (sqrt(v_hat) + betas_.epsilon);
  }

 private:
  Betas betas_;
};

// Adam's direction, by the norm of the weight over its own.
class LambOptimizer final : public Optimizer {
 public:
  explicit LambOptimizer(const LambOptions& o)
      : Optimizer("lamb", o.learning_rate, update_options_of(o)), betas_(betas_of("Lamb", o)) {}

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta& weight) const override {
    return {{"momentum", weight}, {"velocity", weight}};
  }
  Term step(UpdateCall& call) const override {
    const Tensors sums = call.sums([&](UpdateCall::Sums& terms) {
      const Moments next = next_moments(terms.slot(0), terms.slot(1), terms.gradient(), betas_);
      return std::vector{terms.weight(), direction(terms.formula, next)};
    });
    const Dtype dtype = sums[0].dtype();
    const Tensor zero = fill(Shape{}, 0, dtype);
    const Tensor both = multiply(greater_mask(sums[0], zero), greater_mask(sums[1], zero));
    const Tensor ratio =
        add(relu_gradient(both, divide(sqrt(sums[0]), sqrt(sums[1]))), scale(both, -1, 1));
    const Moments next = next_moments(call.slot(0), call.slot(1), call.gradient(), betas_);
    call.set(0, next.m);
    call.set(1, next.v);
    Formula& f = call.formula();
    return call.weight() - direction(f, next) * (f.operand(ratio) * f.rate());
  }

 private:
  Term direction(Formula& f, const Moments& next) const {
    return next.m / (1 - power(f.number(betas_.beta_1), f.step())) /
           (sqrt(next.v / (1 - power(f.number(betas_.beta_2), f.step()))) + betas_.epsilon);
  }
  Betas betas_;
};

// Matrices: their momentum, made nearly orthogonal by Newton and Schulz's iteration.
class MuonOptimizer final : public Optimizer {
 public:
  explicit MuonOptimizer(MuonOptions o)
      : Optimizer("muon", o.learning_rate, update_options_of(o)), o_(std::move(o)) {
    check_range("Muon momentum", o_.momentum, 0, 1);
    check_range("Muon adam_beta_1", o_.adam_beta_1, 0, 1);
    check_range("Muon adam_beta_2", o_.adam_beta_2, 0, 1);
    check_range("Muon ns_steps", o_.ns_steps, 0, 100);
  }

 protected:
  std::vector<Slot> own_slots(const std::string& path, const Meta& weight) const override {
    std::vector<Slot> list{{"momentum", weight}};
    if (is_adams(path, weight)) list.push_back({"velocity", weight});
    return list;
  }
  std::optional<double> decay_of(const std::string& path, const Meta& weight) const override {
    return is_adams(path, weight) ? o_.adam_weight_decay : o_.weight_decay;
  }
  Term step(UpdateCall& call) const override {
    Formula& f = call.formula();
    if (is_adams(call.path(), call.meta())) {
      const Betas betas{o_.adam_beta_1, o_.adam_beta_2, o_.epsilon};
      const auto [m, v] = next_moments(call.slot(0), call.slot(1), call.gradient(), betas);
      call.set(0, m);
      call.set(1, v);
      return call.weight() -
             m * (AdamOptimizer::adam_rate(f, betas) * o_.adam_lr_ratio) / (sqrt(v) + o_.epsilon);
    }
    const Tensor g = call.gradient_tensor();
    const Tensor m = call.update_slot(0, [&](Formula& slot, const Term& old) {
      return old + (slot.operand(g) + old * (o_.momentum - 1));
    });
    const Tensor x =
        orthogonal(o_.nesterov ? add(g, scale(m, o_.momentum)) : m, call.step_params());
    const Term change = f.operand(x) * f.rate();
    if (!o_.rms_rate) return call.weight() - change;
    const Dim larger = std::max(call.meta().shape[0], call.meta().shape[1]);
    return call.weight() - change * sqrt(f.number(static_cast<double>(larger))) * *o_.rms_rate;
  }

 private:
  bool is_adams(const std::string& path, const Meta& weight) const;
  Tensor orthogonal(Tensor x, const Tensor& step_params) const;

  MuonOptions o_;
};

bool MuonOptimizer::is_adams(const std::string& path, const Meta& weight) const {
  if (weight.shape.rank() != 2) return true;
  std::string lower = path;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (o_.exclude_embeddings && lower.find("embedding") != std::string::npos) return true;
  for (const std::string& layer : o_.exclude_layers)
    if (std::regex_search(path, std::regex(layer))) return true;
  return false;
}

// x (R, C) with its singular values near 1.
Tensor MuonOptimizer::orthogonal(Tensor x, const Tensor& step_params) const {
  const bool tall = x.shape()[0] > x.shape()[1];
  if (tall) x = transpose(x);
  Formula f(step_params);
  const Tensor norm = sqrt(f.sums_of_squares({f.operand(x)})[0]);
  x = divide(x, scale(norm, 1, 1e-7));
  for (int i = 0; i < o_.ns_steps; ++i) {
    const Tensor a = matmul(x, x, {.transpose_b = true});
    const Tensor b = add(scale(a, o_.muon_b), scale(matmul(a, a), o_.muon_c));
    x = add(scale(x, o_.muon_a), matmul(b, x));
  }
  return tall ? transpose(x) : x;
}

}  // namespace

OptimizerRef Adam(AdamOptions o) { return std::make_shared<AdamOptimizer>("adam", o); }
OptimizerRef AdamW(AdamWOptions o) {
  if (!o.weight_decay)
    throw UserError("[compile] AdamW weight_decay: expected a number, received none");
  return std::make_shared<AdamOptimizer>("adamw", o);
}
OptimizerRef Adamax(AdamaxOptions o) { return std::make_shared<AdamaxOptimizer>(o); }
OptimizerRef Nadam(NadamOptions o) { return std::make_shared<NadamOptimizer>(o); }
OptimizerRef Lamb(LambOptions o) { return std::make_shared<LambOptimizer>(o); }
OptimizerRef Muon(MuonOptions o) { return std::make_shared<MuonOptimizer>(std::move(o)); }

}  // namespace pl
