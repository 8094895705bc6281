#include "op/accumulate.h"

#include <algorithm>

#include "op/infer.h"

namespace pl {
namespace accumulate_op {
namespace {

// Inputs: sum, term. Output: sum + term, the sum's next version.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("accumulate", 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("accumulate", "a sum and a term of one shape, float32 or float64", in, attrs);
  return checked("accumulate", {in[0]});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 1); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape) {
    return Sample{name, {{{Dtype::float32, shape}}, {{Dtype::float32, shape}}}, {}, 1e-7};
  };
  return {sample("scalar", {}), sample("matrix", {5, 7}), sample("empty", {0, 3}),
          sample("many", {33, 1031})};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::accumulate_reference}};
constexpr InOut kNextVersion[] = {{0, 0}};

}  // namespace
}  // namespace accumulate_op

const Op kAccumulate{
    .name = "accumulate",
    .summary = "adds a term to a running sum",
    .infer = accumulate_op::infer,
    .next_version = accumulate_op::kNextVersion,
    .rows = rows_none,
    .effects = {.writes_state = true},
    .variants = accumulate_op::kVariants,
    .cost = accumulate_op::cost,
    .samples = accumulate_op::samples,
};

Tensor accumulate(const Tensor& sum, const Tensor& term) {
  return apply(kAccumulate, {sum, term})[0];
}

namespace accumulate_op {
namespace {

// Terms lie in workspace, in front of what the op's own kernel needs.
class AddedBehind final : public Kernel {
 public:
  AddedBehind(const AddingOp& of, const PrepareCall& call)
      : first_(of.first), sums_(of.sums), out_(call.out.size()) {
    const Metas in(call.in.begin() + sums_, call.in.end());
    op_ = prepare(of.op, {call.backend, in, call.out, call.attrs});
    footprint = static_cast<Bytes>(sizeof *this) + op_->footprint;
    Bytes inner = op_->workspace_bytes;
    for (int s = 0; s < sums_; ++s) {
      const Meta& sum = call.in[static_cast<size_t>(s)];
      const Metas terms{sum, sum}, next{sum};
      adds_.push_back(prepare(kAccumulate, {call.backend, terms, next, Attrs()}));
      terms_at_.push_back(inner_at_);
      inner_at_ += align_up(sum.bytes(), call.backend.alignment());
      inner = std::max(inner, adds_.back()->workspace_bytes);
      footprint += adds_.back()->footprint;
    }
    workspace_bytes = inner_at_ + inner;
    key = op_->key;
    library = op_->library;
    transient = op_->transient;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    char* space = static_cast<char*>(workspace);
    std::copy_n(out, out_.size(), out_.begin());
    for (size_t s = 0; s < terms_at_.size(); ++s)
      out_[static_cast<size_t>(first_) + s] = space + terms_at_[s];
    op_->run(in + sums_, out_.data(), space + inner_at_);
    for (size_t s = 0; s < terms_at_.size(); ++s) {
      void* const terms[] = {in[s], space + terms_at_[s]};
      adds_[s]->run(terms, out + first_ + s, space + inner_at_);
    }
  }

 private:
  int first_, sums_;
  std::unique_ptr<Kernel> op_;
  std::vector<std::unique_ptr<Kernel>> adds_;
  std::vector<Bytes> terms_at_;
  std::vector<void*> out_;  // of a run
  Bytes inner_at_ = 0;
};

}  // namespace
}  // namespace accumulate_op

Metas AddingOp::infer(const Metas& in, const Attrs& attrs) const {
  const auto count = static_cast<size_t>(sums), at = static_cast<size_t>(first);
  if (in.size() <= count) reject(name, "running sums first", in, attrs);
  Metas out = op.infer({in.begin() + sums, in.end()}, attrs);
  bool fits = out.size() == at + count;
  for (size_t s = 0; fits && s < count; ++s)
    fits = in[s] == out[at + s] && is_real(in[s].dtype) && size_of(in[s].dtype) >= 4;
  if (!fits)
    reject(name, "first the running sums, float32 or float64, that look like what is summed", in,
           attrs);
  return out;
}

Cost AddingOp::cost(const Metas& in, const Metas& out, const Attrs& attrs) const {
  Cost result = op.cost({in.begin() + sums, in.end()}, out, attrs);
  for (int s = 0; s < sums; ++s)
    result.bytes += static_cast<double>(in[static_cast<size_t>(s)].bytes());
  return result;
}

std::vector<Sample> AddingOp::samples() const {
  std::vector<Sample> list;
  for (Sample& sample : op.samples()) {
    Metas in;
    for (const SampleInput& operand : sample.in) in.push_back(operand.meta);
    const Metas out = op.infer(in, sample.attrs);
    if (static_cast<int>(out.size()) != first + sums || !is_real(out.back().dtype)) continue;
    for (int s = 0; s < sums; ++s)
      sample.in.insert(sample.in.begin() + s, {out[static_cast<size_t>(first + s)]});
    list.push_back(std::move(sample));
  }
  return list;
}

std::unique_ptr<Kernel> AddingOp::composed(const PrepareCall& call) const {
  return std::make_unique<accumulate_op::AddedBehind>(*this, call);
}

}  // namespace pl
