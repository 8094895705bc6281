#include "op/progression.h"

#include "op/infer.h"

namespace pl {
namespace progression_op {
namespace {

// No inputs. Attributes: count, dtype, start, step, factor; end, where the last element is given.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("progression", 0, 0, in, attrs);
  const Dtype dtype = dtype_attr("progression", attrs);
  if (!is_number(dtype) && dtype != Dtype::uint8 && dtype != Dtype::boolean)
    reject("progression", "a dtype among floats, int32, int64, uint8 and bool", in, attrs);
  if (attrs.integer("count") < 0) reject("progression", "a count that is not negative", in, attrs);
  return checked("progression", {{dtype, {attrs.integer("count")}}});
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 3); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, int64_t count, const char* dtype, double start, double step) {
    return Sample{name,
                  {},
                  {{"count", count},
                   {"dtype", std::string(dtype)},
                   {"start", start},
                   {"step", step},
                   {"factor", 2.0},
                   {"end", 7.0}},
                  1e-6};
  };
  return {sample("reals", 7, "float32", -1, 0.5),    sample("integers", 5, "int32", -1, 0.375),
          sample("long_integers", 3, "int64", 1, 2), sample("bytes", 4, "uint8", 0, 30),
          sample("bools", 3, "bool", 0, 1),          sample("empty", 0, "float32", 0, 1)};
}

constexpr Variant kVariants[] = {
    {"reference", DeviceKind::cpu, cpu::progression_reference},
};

}  // namespace
}  // namespace progression_op

const Op kProgression{
    .name = "progression",
    .summary = "numbers with equal steps between them",
    .infer = progression_op::infer,
    .rows = rows_none,
    .variants = progression_op::kVariants,
    .cost = progression_op::cost,
    .samples = progression_op::samples,
};

ProgressionForm progression_form(const Attrs& attrs) {
  return {attrs.real("start", 0), attrs.real("step", 1), attrs.real("factor", 1), attrs.has("end"),
          attrs.real("end", 0)};
}

Tensor progression(Dim count, const ProgressionForm& form, Dtype dtype) {
  Attrs attrs{{"count", count}, {"dtype", std::string(name_of(dtype))}};
  attrs.set("start", form.start);
  attrs.set("step", form.step);
  attrs.set("factor", form.factor);
  if (form.ends) attrs.set("end", form.end);
  return apply(kProgression, {}, std::move(attrs))[0];
}

}  // namespace pl
