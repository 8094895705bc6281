// Op: everything the engine knows about one operation, as a const record. The catalogue lists all
// of them; tests, benchmarks, planner and docs iterate over it. Adding an op = one stem of files
// and one catalogue line (docs/add-an-op.md).
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/attrs.h"
#include "tensor/tensor.h"

namespace pl {

// How an op treats the samples of a batch (dimension 0 of the inputs that carry rows). Decides
// whether the batch may be split.
enum class Rows : uint8_t {
  none,   // no input carries rows: the outputs do not either
  maps,   // row i of every output depends on row i of the inputs only
  sums,   // the outputs are sums over rows: splitting adds them up
  mixes,  // rows interact: the batch must stay whole
};
using RowMask = uint64_t;  // bit i: input i carries rows

// Output `out` relates to the storage of input `in`.
struct InOut {
  int in, out;
};

struct Effects {
  bool random = false;  // reads the step's seed; counter-based, so a second run gives equal bits
  bool writes_state = false;  // writes the next version of a variable: never run twice
};

struct Cost {
  double flops = 0;
  double bytes = 0;     // read and written
  bool narrow = false;  // of 16-bit operands, which a library may multiply faster
};

// What `gradient` gets. It calls public op functions, so that one piece of code serves traced
// autodiff and eager tapes. A tensor of `dout` is undefined where no gradient flows.
struct GradientCall {
  const Attrs& attrs;
  std::span<const Tensor> in, out, dout;
  uint64_t wanted = ~uint64_t{0};  // bit i: the gradient of input i is asked for
  uint64_t widened = 0;  // bit i: input i is a weight rounded to 16 bits, whose gradient is summed
                         // in float32 and should come so
  bool wants(int i) const { return (wanted >> i) & 1; }
  Dtype dtype_of(int i) const {
    const Dtype own = in[static_cast<size_t>(i)].dtype();
    return (widened >> i) & 1 ? wide(own) : own;
  }
};

// What the addresses of operands are multiples of. Slices that a loop's trips take may begin
// wherever their dtype allows; what a plan places is aligned in full.
inline constexpr Bytes kFullAlignment = 16;
struct Alignments {
  std::vector<Bytes> in, out;
  Bytes least() const {
    Bytes bytes = kFullAlignment;
    for (const auto* list : {&in, &out})
      for (Bytes one : *list) bytes = std::min(bytes, one);
    return bytes;
  }
};

struct PrepareCall {
  Backend& backend;
  const Metas& in;
  const Metas& out;
  const Attrs& attrs;
  const Alignments* slices = nullptr;  // null: all are aligned in full

  Bytes alignment() const { return slices ? slices->least() : kFullAlignment; }  // of all
  Bytes in_alignment(size_t i) const { return slices ? slices->in[i] : kFullAlignment; }
  Bytes out_alignment(size_t o) const { return slices ? slices->out[o] : kFullAlignment; }
};

// One implementation. `prepare` answers null when it does not support the call; the list in the
// record runs fastest first, and the last one, a plain loop, supports everything that `infer` lets
// through.
struct Variant {
  const char* name;  // "onednn", "simd", "reference"
  DeviceKind device;
  std::unique_ptr<Kernel> (*prepare)(const PrepareCall&);
};

// How a sample's input is filled.
enum class Fill : uint8_t {
  normal,
  positive,
  labels,
  one_hot,
  probabilities,
  bytes,
  step_params,
  zeros
};

struct SampleInput {
  Meta meta;
  Fill fill = Fill::normal;
};

// A call of the op for conformance tests and benchmarks. dtype float32 inputs are also run in
// float64.
struct Sample {
  std::string name;  // unique within the op: "3x3_stride2"
  std::vector<SampleInput> in;
  Attrs attrs;
  double tolerance =
      1e-5;  // of float32 against the float64 reference, relative to the largest element
  bool benchmark = false;  // large: timed by `plimsoll bench`, not stored as an answer
};

// How a call may be worked off in pieces, each through a kernel for fewer elements.
enum class Cut : uint8_t {
  none,
  elements,  // operands and outputs of one shape, element by element; else none
  rows,      // operands and outputs are like in[0] (..., D), or have one number for each of its
             // rows, or belong to all rows; a row of the outputs depends on that row alone
};

struct Op {
  const char* name;
  const char* summary;                                 // one line for the docs table
  Metas (*infer)(const Metas& in, const Attrs&);       // throws UserError
  Tensors (*gradient)(const GradientCall&) = nullptr;  // one tensor per input; null: no gradient
  std::span<const InOut> alias = {};  // the output *is* the input's bytes (reshape)
  std::span<const InOut> in_place =
      {};  // the output may take the input's place if that one dies here
  std::span<const InOut> next_version =
      {};  // the output is the next version of that input variable
  Rows (*rows)(const Attrs&, RowMask in) = nullptr;
  // For ops whose outputs differ in it, the answer for output `out`; null: `rows` holds for all.
  // `rows` then says mixes, unless no input carries rows.
  Rows (*rows_of)(const Attrs&, RowMask in, int out) = nullptr;
  // The output is a sum of operands, or of an operand and a sum over the rows of others: where
  // these are themselves summed over samples, the parts of a split batch add up to the whole.
  bool additive = false;
  Effects effects = {};
  Cut cut = Cut::none;
  // In mixed precision: the operands (as bits) that stay float32 where in[0] has 16 bits, such as
  // statistics; null: all are rounded.
  RowMask (*wide_operands)(const Attrs&, size_t operands) = nullptr;
  std::span<const Variant> variants = {};
  Cost (*cost)(const Metas& in, const Metas& out, const Attrs&) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
};

// How output `out` of the op treats rows.
inline Rows output_rows(const Op& op, const Attrs& attrs, RowMask in, int out) {
  return op.rows_of ? op.rows_of(attrs, in, out) : op.rows(attrs, in);
}

// All ops, in the order of catalogue.cc.
std::span<const Op* const> catalogue();
const Op* find_op(std::string_view name);  // null when unknown
const Op& get_op(std::string_view name);   // throws InternalError when unknown

// The one entry of every public op function: records a node when an operand is a symbol (or,
// without operands, when a Recorder is in scope), and runs at once otherwise.
Tensors apply(const Op& op, Tensors in, Attrs attrs = {});

// Throws DoesNotFit where an op with these operands would run at once and has no room for values
// like these.
void expect_room(const Metas& values, const Tensors& operands);

// The first variant for the backend's device that supports the call. `only` (tests) picks one by
// name.
std::unique_ptr<Kernel> prepare(const Op& op, const PrepareCall& call, const char* only = nullptr);

// Row rules that most ops share.
Rows rows_map(const Attrs&, RowMask in);   // maps, or none without rows
Rows rows_sum(const Attrs&, RowMask in);   // sums, or none without rows
Rows rows_none(const Attrs&, RowMask in);  // for creation ops and updates

// Cost of an op that reads its inputs and writes its outputs once, `flops_per_element` each.
Cost pointwise_cost(const Metas& in, const Metas& out, double flops_per_element = 1);

}  // namespace pl
