#include "op/reduce_form.h"

namespace pl::cpu {
namespace {

// Neighbouring axes that meet the same fate are one.
ReduceForm merged_form(const PrepareCall& call) {
  ReduceForm form;
  const Shape& x = call.in[0].shape;
  const auto& axes = call.attrs.list("axes");
  ReduceAxes merged;
  std::vector<bool> reduced;  // of `merged`, from the innermost on
  Dim stride = 1;
  for (int axis = x.rank() - 1; axis >= 0; stride *= x[axis--]) {
    if (x[axis] == 1) continue;
    const bool meets = std::binary_search(axes.begin(), axes.end(), axis);
    if (!reduced.empty() && reduced.back() == meets) {
      merged.sizes.front() *= x[axis];
    } else {
      merged.add_in_front(x[axis], stride);
      reduced.push_back(meets);
    }
  }
  if (reduced.empty()) return form;
  form.runs = reduced[0];
  form.inner = merged.sizes.back();
  for (size_t i = 1; i < reduced.size(); ++i) {
    const size_t d = reduced.size() - 1 - i;
    (reduced[i] ? form.rows : form.kept).add_in_front(merged.sizes[d], merged.strides[d]);
  }
  return form;
}

// The columns of a piece, so that every thread gets one. Each column is summed by itself: bits do
// not depend on it.
void cut(ReduceForm& f, int threads) {
  constexpr Dim kRun = ReduceForm::kRun, kLeast = 64;
  auto parts = [](Dim count, Dim size) { return std::max<Dim>(1, (count + size - 1) / size); };
  if (f.runs) {
    f.in_row = parts(f.inner, kRun);
    f.group = std::max<Dim>(1, kRun / std::max<Dim>(1, f.inner));
    f.pieces = f.in_row > 1 ? f.rows.count * f.in_row : parts(f.rows.count, f.group);
    return;
  }
  f.group = kRun;
  f.pieces = parts(f.rows.count, kRun);
  const bool enough = f.kept.count * f.pieces >= threads;
  const Dim wanted = enough ? f.inner : parts(f.inner, threads);
  f.columns = std::clamp(parts(wanted, kLeast) * kLeast, kLeast, ReduceForm::kColumns);
  f.blocks = (f.inner + f.columns - 1) / f.columns;
}

}  // namespace

ReduceForm reduce_form(const PrepareCall& call) {
  ReduceForm form = merged_form(call);
  cut(form, call.backend.threads());
  return form;
}

}  // namespace pl::cpu
