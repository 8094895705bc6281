// Calls with 16-bit operands through float32 kernels. Bits do not depend on how a call is cut: the
// float32 kernel gives a row or an element the same bits wherever it lies.
#include "op/widen.h"

#include <algorithm>
#include <optional>

#include "backend/cpu/parallel.h"
#include "base/error.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

constexpr Dim kPiece = 6144;          // elements of all operands together: a core's first cache
constexpr Dim kSamples = 768 * 1024;  // of whole samples: what the shared cache holds
constexpr Bytes kLine = 64;

bool narrow(const Meta& meta) {
  return meta.dtype == Dtype::bfloat16 || meta.dtype == Dtype::float16;
}

// The call in float32.
struct WideCall {
  Metas in, out;
  Attrs attrs;
};

Metas widen(Metas metas) {
  for (Meta& meta : metas) meta.dtype = wide(meta.dtype);
  return metas;
}

std::optional<WideCall> wide_call(const Op& op, const Metas& in, const Attrs& attrs) {
  WideCall call{widen(in), {}, attrs};
  if (attrs.has("dtype") && (attrs.text("dtype") == name_of(Dtype::bfloat16) ||
                             attrs.text("dtype") == name_of(Dtype::float16)))
    call.attrs.set("dtype", std::string(name_of(Dtype::float32)));
  try {
    call.out = op.infer(call.in, call.attrs);
  } catch (const UserError&) {
    return std::nullopt;
  }
  return call;
}

// Where the float32 copy of an operand lies in the workspace; -1: it needs none.
struct Place {
  Bytes at = -1;
  Dim elements = 0;
  Dtype dtype = Dtype::bfloat16;  // of the operand, if it needs one
};

// Places for what is narrow, from `end` on. An output that may take an input's place does.
void lay_out(const Op& op, const Metas& in, const Metas& out, const Metas& wide_in,
             const Metas& wide_out, std::vector<Place>& ins, std::vector<Place>& outs, Bytes& end) {
  auto add = [&](const Metas& metas, const Metas& wide_metas, size_t i, Place& place) {
    place.elements = wide_metas[i].elements();
    place.dtype = metas[i].dtype;
    if (!narrow(metas[i]) || place.at >= 0) return;
    place.at = end;
    end = align_up(end + wide_metas[i].bytes(), kLine);
  };
  ins.resize(in.size());
  outs.resize(out.size());
  for (size_t i = 0; i < in.size(); ++i) add(in, wide_in, i, ins[i]);
  for (const InOut& pair : op.in_place) {
    const auto i = static_cast<size_t>(pair.in), o = static_cast<size_t>(pair.out);
    if (i >= in.size() || o >= out.size() || ins[i].at < 0 || !narrow(out[o])) continue;
    const bool free = std::none_of(outs.begin(), outs.end(),
                                   [&](const Place& place) { return place.at == ins[i].at; });
    if (free && outs[o].at < 0 && wide_in[i] == wide_out[o]) outs[o].at = ins[i].at;
  }
  for (size_t o = 0; o < out.size(); ++o) add(out, wide_out, o, outs[o]);
}

void widen_all(int threads, const Place& place, const void* from, float* to, Dim count) {
  parallel_ranges(
      threads, count, count,
      [&](Dim begin, Dim end) {
        widen_range(place.dtype, static_cast<const uint16_t*>(from) + begin, to + begin,
                    end - begin);
      },
      kLine);
}

void narrow_all(int threads, const Place& place, const float* from, void* to, Dim count) {
  parallel_ranges(
      threads, count, count,
      [&](Dim begin, Dim end) {
        narrow_range(place.dtype, from + begin, static_cast<uint16_t*>(to) + begin, end - begin);
      },
      kLine);
}

// The whole call at once.
class Whole final : public Kernel {
 public:
  Whole(const Op& op, const PrepareCall& call, const WideCall& wide, std::unique_ptr<Kernel> inner)
      : inner_(std::move(inner)), threads_(call.backend.threads()) {
    workspace_bytes = align_up(inner_->workspace_bytes, kLine);
    lay_out(op, call.in, call.out, wide.in, wide.out, in_, out_, workspace_bytes);
    ins_.resize(in_.size());
    outs_.resize(out_.size());
    key = inner_->key;
    library = inner_->library;
    transient = inner_->transient;
    footprint = static_cast<Bytes>(sizeof *this) + inner_->footprint +
                static_cast<Bytes>((in_.size() + out_.size()) * (sizeof(Place) + sizeof(void*)));
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    char* base = static_cast<char*>(workspace);
    for (size_t i = 0; i < in_.size(); ++i) {
      ins_[i] = in_[i].at < 0 ? in[i] : base + in_[i].at;
      if (in_[i].at >= 0)
        widen_all(threads_, in_[i], in[i], static_cast<float*>(ins_[i]), in_[i].elements);
    }
    for (size_t o = 0; o < out_.size(); ++o) outs_[o] = out_[o].at < 0 ? out[o] : base + out_[o].at;
    inner_->run(ins_.data(), outs_.data(), workspace);
    for (size_t o = 0; o < out_.size(); ++o)
      if (out_[o].at >= 0)
        narrow_all(threads_, out_[o], static_cast<const float*>(outs_[o]), out[o],
                   out_[o].elements);
  }

 private:
  std::unique_ptr<Kernel> inner_;
  int threads_;
  std::vector<Place> in_, out_;
  std::vector<void*> ins_, outs_;  // for inner_
};

// How a call is cut: rows, and elements of each operand and output in one row (0: it belongs to
// all rows).
struct Cutting {
  Dim rows = 0;
  std::vector<Dim> in, out;
  bool by_samples = false;  // rows are samples, dimension 0; else elements or vectors
  int rank = 0;             // of tensors of vectors; 0: elements
};

std::optional<Cutting> elements_of(const PrepareCall& call) {
  const Shape& x = call.in[0].shape;
  for (const Metas& metas : {call.in, call.out})
    for (const Meta& meta : metas)
      if (meta.shape != x) return std::nullopt;
  return Cutting{.rows = x.elements(),
                 .in = std::vector<Dim>(call.in.size(), 1),
                 .out = std::vector<Dim>(call.out.size(), 1)};
}

std::optional<Cutting> vectors_of(const PrepareCall& call) {
  const Shape& x = call.in[0].shape;
  if (x.rank() < 2) return std::nullopt;
  const Shape outer(std::vector<Dim>(x.begin(), x.end() - 1));
  if (outer == Shape{x.back()}) return std::nullopt;  // which of them a vector means is not clear
  Cutting cut{.rows = outer.elements(), .in = {}, .out = {}, .rank = x.rank()};
  bool good = true;
  auto elements = [&](const Meta& meta) -> Dim {
    if (meta.shape == x) return x.back();
    if (meta.shape == outer) return 1;
    good = good && !narrow(meta);
    return 0;
  };
  for (const Meta& meta : call.in) cut.in.push_back(elements(meta));
  for (const Meta& meta : call.out) cut.out.push_back(elements(meta));
  for (Dim each : cut.out) good = good && each > 0;
  return good ? std::optional(cut) : std::nullopt;
}

// Where the op maps rows to rows, along dimension 0.
std::optional<Cutting> samples_of(const Op& op, const PrepareCall& call) {
  if (op.effects.random || op.effects.writes_state || call.attrs.has("rows")) return std::nullopt;
  const Dim rows = call.out[0].shape.rank() > 0 ? call.out[0].shape[0] : 0;
  if (rows < 2) return std::nullopt;
  auto each = [&](const Meta& meta) {
    return meta.shape.rank() > 0 && meta.shape[0] == rows ? meta.elements() / rows : 0;
  };
  Cutting cut{.rows = rows, .in = {}, .out = {}, .by_samples = true};
  RowMask mask = 0;
  for (size_t i = 0; i < call.in.size(); ++i) {
    cut.in.push_back(each(call.in[i]));
    if (cut.in[i] > 0) mask |= RowMask{1} << i;
  }
  for (size_t o = 0; o < call.out.size(); ++o) {
    cut.out.push_back(each(call.out[o]));
    if (cut.out[o] == 0 || output_rows(op, call.attrs, mask, static_cast<int>(o)) != Rows::maps)
      return std::nullopt;
  }
  return cut;
}

Dim row_elements(const Cutting& cut) {
  Dim sum = 0;
  for (const auto* list : {&cut.in, &cut.out})
    for (Dim each : *list) sum += each;
  return std::max<Dim>(1, sum);
}

// Metas of a piece of `rows` rows.
Metas piece_of(const Metas& metas, const std::vector<Dim>& each, const Cutting& cut, Dim rows) {
  Metas result = metas;
  for (size_t i = 0; i < result.size(); ++i) {
    Shape& shape = result[i].shape;
    if (each[i] == 0) continue;
    if (cut.by_samples)
      shape[0] = rows;
    else
      shape = cut.rank > 0 && shape.rank() == cut.rank ? Shape{rows, each[i]} : Shape{rows};
  }
  return result;
}

// Kernels of small pieces run inside a parallel loop. They are loops of ours, never a library's,
// so that any backend of the device serves.
class OneThread final : public Backend {
 public:
  explicit OneThread(const Backend& whole) : Backend(whole.device(), 1, whole.alignment()) {}
};

// Piece by piece: small ones side by side, each thread with a space of its own in the workspace;
// samples one after another, each piece by all threads.
class Pieces final : public Kernel {
 public:
  Pieces(Cutting cut, const PrepareCall& call)
      : cut_(std::move(cut)), threads_(call.backend.threads()) {
    const Dim most = cut_.by_samples ? kSamples : kPiece;
    piece_ = std::clamp<Dim>(most / row_elements(cut_), 1, cut_.rows);
    for (const Meta& meta : call.in) in_size_.push_back(size_of(meta.dtype));
    for (const Meta& meta : call.out) out_size_.push_back(size_of(meta.dtype));
  }

  // False where a piece has no such kernel.
  bool prepare_pieces(const Op& op, const PrepareCall& call) {
    OneThread one(call.backend);
    Backend& backend = cut_.by_samples ? call.backend : one;
    for (Dim rows : {piece_, cut_.rows % piece_}) {
      if (rows == 0) break;
      const auto wide = wide_call(op, piece_of(call.in, cut_.in, cut_, rows), call.attrs);
      if (!wide || wide->out != widen(piece_of(call.out, cut_.out, cut_, rows))) return false;
      kernels_.push_back(prepare(op, {backend, wide->in, wide->out, wide->attrs}));
      const Kernel& kernel = *kernels_.back();
      if (!cut_.by_samples && kernel.workspace_bytes > 0) return false;
      footprint += kernel.footprint;
      transient = std::max(transient, kernel.transient);
      inner_ = std::max(inner_, align_up(kernel.workspace_bytes, kLine));
      key += (key.empty() ? "" : "+") + kernel.key;
      library = kernel.library;
      if (kernels_.size() == 1)
        lay_out(op, call.in, call.out, wide->in, wide->out, in_, out_, space_);
    }
    workspace_bytes = inner_ + (cut_.by_samples ? 1 : threads_) * space_;
    footprint += static_cast<Bytes>(sizeof *this) +
                 static_cast<Bytes>((in_.size() + out_.size()) * (sizeof(Place) + sizeof(Dim)));
    return in_.size() <= kMostOperands && out_.size() <= kMostOperands;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const Dim pieces = (cut_.rows + piece_ - 1) / piece_;
    char* spaces = static_cast<char*>(workspace) + inner_;
    auto run_range = [&](Dim begin, Dim end, char* own) {
      for (Dim p = begin; p < end; ++p)
        run_piece(p * piece_, std::min(piece_, cut_.rows - p * piece_), in, out, own, workspace);
    };
    if (!cut_.by_samples) {
      parallel_ranges(threads_, pieces, cut_.rows * row_elements(cut_), [&](Dim begin, Dim end) {
        run_range(begin, end, spaces + omp_get_thread_num() * space_);
      });
      return;
    }
    for (size_t i = 0; i < in_.size(); ++i)  // what belongs to all rows, once
      if (in_[i].at >= 0 && cut_.in[i] == 0)
        widen_all(threads_, in_[i], in[i], reinterpret_cast<float*>(spaces + in_[i].at),
                  in_[i].elements);
    run_range(0, pieces, spaces);
  }

 private:
  static constexpr size_t kMostOperands = 16;

  void run_piece(Dim first, Dim rows, void* const* in, void* const* out, char* own,
                 void* workspace) const {
    const int threads = cut_.by_samples ? threads_ : 1;
    void *ins[kMostOperands], *outs[kMostOperands];
    for (size_t i = 0; i < in_.size(); ++i) {
      char* from = static_cast<char*>(in[i]) + first * cut_.in[i] * in_size_[i];
      ins[i] = in_[i].at < 0 ? from : own + in_[i].at;
      if (in_[i].at >= 0 && cut_.in[i] > 0)
        widen_all(threads, in_[i], from, static_cast<float*>(ins[i]), rows * cut_.in[i]);
    }
    auto place_of = [&](size_t o) {
      return static_cast<char*>(out[o]) + first * cut_.out[o] * out_size_[o];
    };
    for (size_t o = 0; o < out_.size(); ++o)
      outs[o] = out_[o].at < 0 ? place_of(o) : own + out_[o].at;
    kernels_[rows == piece_ ? 0 : kernels_.size() - 1]->run(ins, outs, workspace);
    for (size_t o = 0; o < out_.size(); ++o)
      if (out_[o].at >= 0)
        narrow_all(threads, out_[o], static_cast<const float*>(outs[o]), place_of(o),
                   rows * cut_.out[o]);
  }

  Cutting cut_;
  Dim piece_ = 1;  // rows
  int threads_;
  std::vector<std::unique_ptr<Kernel>> kernels_;  // of a whole piece, and of the last
  std::vector<Place> in_, out_;                   // within a space
  std::vector<Dim> in_size_, out_size_;           // bytes of an element
  Bytes inner_ = 0, space_ = 0;
};

std::unique_ptr<Kernel> in_pieces(const Op& op, const PrepareCall& call) {
  if (call.in.empty() || call.out.empty() || call.in[0].elements() == 0) return nullptr;
  for (auto cut : {op.cut == Cut::elements ? elements_of(call) : std::nullopt,
                   op.cut == Cut::rows ? vectors_of(call) : std::nullopt, samples_of(op, call)}) {
    if (!cut) continue;
    auto pieces = std::make_unique<Pieces>(std::move(*cut), call);
    if (pieces->prepare_pieces(op, call)) return pieces;
  }
  return nullptr;
}

}  // namespace

void widen_range(Dtype dtype, const void* from, float* to, Dim count) {
  if (dtype == Dtype::bfloat16)
    convert_range(static_cast<const Bfloat16*>(from), to, count);
  else
    convert_range(static_cast<const Float16*>(from), to, count);
}

void narrow_range(Dtype dtype, const float* from, void* to, Dim count) {
  if (dtype == Dtype::bfloat16)
    convert_range(from, static_cast<Bfloat16*>(to), count);
  else
    convert_range(from, static_cast<Float16*>(to), count);
}

std::unique_ptr<Kernel> widened(const Op& op, const PrepareCall& call) {
  if (std::none_of(call.in.begin(), call.in.end(), narrow) &&
      std::none_of(call.out.begin(), call.out.end(), narrow))
    return nullptr;
  if (auto kernel = in_pieces(op, call)) return kernel;
  const auto wide = wide_call(op, call.in, call.attrs);
  if (!wide || wide->out != widen(call.out)) return nullptr;
  auto inner = prepare(op, {call.backend, wide->in, wide->out, wide->attrs});
  return std::make_unique<Whole>(op, call, *wide, std::move(inner));
}

}  // namespace pl::cpu
