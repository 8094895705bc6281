#include "backend/cpu/onednn.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/processor.h"

namespace pl {

void onednn_check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  constexpr const char* names[] = {"success",       "out of memory",     "invalid arguments",
                                   "unimplemented", "last impl reached", "runtime error",
                                   "not required"};
  const auto index = static_cast<size_t>(status);
  if (status == dnnl_out_of_memory)
    throw DoesNotFit("[onednn] " + std::string(what) +
                     ": the system refused memory; raise the limit " +
                     "(ulimit -v, -d) or free some");
  throw BackendError("[onednn] " + std::string(what) + ": " +
                     (index < std::size(names) ? names[index] : "unknown status"));
}

OnednnDesc onednn_desc(const std::vector<int64_t>& dims, dnnl_format_tag_t tag,
                       dnnl_data_type_t type) {
  OnednnDesc desc;
  dnnl_dims_t raw = {};
  for (size_t i = 0; i < dims.size(); ++i) raw[i] = dims[i];
  onednn_check(
      dnnl_memory_desc_create_with_tag(desc.out(), static_cast<int>(dims.size()), raw, type, tag),
      "describe a tensor");
  return desc;
}

dnnl_data_type_t onednn_type(Dtype dtype) {
  check(dtype == Dtype::float32 || dtype == Dtype::bfloat16, "a dtype that oneDNN computes with");
  return dtype == Dtype::bfloat16 ? dnnl_bf16 : dnnl_f32;
}

namespace {

// The library takes a limit once, and none after it has looked at the processor.
dnnl_cpu_isa_t limited_isa() {
  constexpr dnnl_cpu_isa_t kLevels[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                        dnnl_cpu_isa_avx512_core, dnnl_cpu_isa_avx512_core_bf16,
                                        dnnl_cpu_isa_avx512_core_amx};
  if (const std::optional<SimdLevel> limit = simd_limit())
    onednn_check(dnnl_set_max_cpu_isa(kLevels[static_cast<size_t>(*limit)]),
                 "hide instructions, since something used it before");
  return dnnl_get_effective_cpu_isa();
}

}  // namespace

dnnl_cpu_isa_t onednn_isa() {
  static const dnnl_cpu_isa_t isa = limited_isa();
  return isa;
}

bool onednn_multiplies(Dtype dtype) {
  const auto isa = static_cast<int>(onednn_isa());
  constexpr auto kNeeded = static_cast<int>(dnnl_cpu_isa_avx512_core_bf16);
  return dtype == Dtype::float32 || (dtype == Dtype::bfloat16 && (isa & kNeeded) == kNeeded);
}

bool onednn_is_fast(const OnednnPrimitiveDesc& desc) {
  const char* name = "";
  dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, &name);
  return !std::string_view(name).starts_with("ref");
}

std::string onednn_part(std::string part, const_dnnl_memory_desc_t desc) {
  dnnl_data_type_t type = dnnl_data_type_undef;
  onednn_check(dnnl_memory_desc_query(desc, dnnl_query_data_type, &type), "ask for a dtype");
  return type == dnnl_bf16 ? part + " bfloat16" : part;
}

OnednnAttr onednn_user_scratchpad() {
  OnednnAttr attr;
  onednn_check(dnnl_primitive_attr_create(attr.out()), "create attributes");
  onednn_check(dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user),
               "set the scratchpad mode");
  return attr;
}

std::string onednn_layout(const_dnnl_memory_desc_t desc) {
  int rank = 0, blocks = 0;
  dnnl_dims_t *strides = nullptr, *sizes = nullptr, *axes = nullptr;
  auto ask = [&](dnnl_query_t what, void* answer) {
    onednn_check(dnnl_memory_desc_query(desc, what, answer), "ask for a layout");
  };
  ask(dnnl_query_ndims_s32, &rank);
  ask(dnnl_query_strides, &strides);
  ask(dnnl_query_inner_nblks_s32, &blocks);
  ask(dnnl_query_inner_blks, &sizes);
  ask(dnnl_query_inner_idxs, &axes);
  // Outer axes from the largest stride to the smallest, those that are blocked in capitals.
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return (*strides)[a] > (*strides)[b]; });
  std::string out, inner;
  std::vector<bool> blocked(order.size(), false);
  for (int i = 0; i < blocks; ++i) {
    const auto axis = (*axes)[i];
    blocked[static_cast<size_t>(axis)] = true;
    inner += std::to_string((*sizes)[i]) + static_cast<char>('a' + axis);
  }
  for (int axis : order)
    out += static_cast<char>((blocked[static_cast<size_t>(axis)] ? 'A' : 'a') + axis);
  return out + inner;
}

OnednnCall::OnednnCall(CpuBackend& backend, OnednnPrimitiveDesc desc)
    : backend_(&backend), desc_(std::move(desc)) {
  onednn_check(dnnl_primitive_create(primitive_.out(), desc_.get()), "create a primitive");
}

const_dnnl_memory_desc_t OnednnCall::query(dnnl_query_t what, int index) const {
  return dnnl_primitive_desc_query_md(desc_.get(), what, index);
}

Bytes OnednnCall::scratchpad_bytes() const {
  const auto desc = query(dnnl_query_scratchpad_md);
  return desc ? static_cast<Bytes>(dnnl_memory_desc_get_size(desc)) : 0;
}

const char* OnednnCall::implementation() const {
  const char* name = "";
  dnnl_primitive_desc_query(desc_.get(), dnnl_query_impl_info_str, 0, &name);
  return name;
}

namespace {

// A convolution of that direction: with a kernel of 1x1, a larger one, one for each channel.
struct ConvolutionFootprint {
  dnnl_prop_kind_t direction;
  Bytes point, window, depthwise;
};
constexpr ConvolutionFootprint kConvolutionFootprints[] = {
    {dnnl_forward_training, 28 * kKiB, 152 * kKiB, 24 * kKiB},
    {dnnl_backward_data, 104 * kKiB, 184 * kKiB, 76 * kKiB},
    {dnnl_backward_weights, 124 * kKiB, 96 * kKiB, 80 * kKiB},
};

// src (M, K), dst (M, N).
Bytes matmul_footprint(const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst) {
  dnnl_dims_t *a = nullptr, *c = nullptr;
  onednn_check(dnnl_memory_desc_query(src, dnnl_query_dims, &a), "ask for dimensions");
  onednn_check(dnnl_memory_desc_query(dst, dnnl_query_dims, &c), "ask for dimensions");
  const int64_t m = (*c)[0], n = (*c)[1], k = (*a)[1];
  const int rests = (m % 16 != 0) + (n % 64 != 0);
  if (k <= 512) return kMatmulFootprint + rests * kMatmulRestFootprint;
  return kMatmulFootprint + kMatmulLongFootprint + rests * kMatmulLongRestFootprint;
}

// Weights (O, I, KH, KW), or (G, O, I, KH, KW) of a grouped convolution.
Bytes convolution_footprint(dnnl_prop_kind_t direction, const_dnnl_memory_desc_t weights) {
  int rank = 0;
  dnnl_dims_t* dims = nullptr;
  onednn_check(dnnl_memory_desc_query(weights, dnnl_query_ndims_s32, &rank), "ask for a rank");
  onednn_check(dnnl_memory_desc_query(weights, dnnl_query_dims, &dims), "ask for dimensions");
  const bool point = (*dims)[rank - 1] == 1 && (*dims)[rank - 2] == 1;
  const bool depthwise = rank == 5 && (*dims)[1] == 1 && (*dims)[2] == 1;
  for (const ConvolutionFootprint& row : kConvolutionFootprints)
    if (row.direction == direction)
      return depthwise ? row.depthwise : point ? row.point : row.window;
  return kConvolutionFootprints[0].window;
}

}  // namespace

Bytes OnednnCall::footprint() const {
  if (!primitive_) return 0;
  dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
  onednn_check(dnnl_primitive_desc_query(desc_.get(), dnnl_query_primitive_kind, 0, &kind),
               "ask for a primitive's kind");
  switch (kind) {
    case dnnl_reorder:
      return kReorderFootprint;
    case dnnl_matmul:
      return matmul_footprint(query(dnnl_query_src_md), query(dnnl_query_dst_md));
    default: {
      dnnl_prop_kind_t direction = dnnl_prop_kind_undef;
      onednn_check(dnnl_primitive_desc_query(desc_.get(), dnnl_query_prop_kind, 0, &direction),
                   "ask for a direction");
      return convolution_footprint(
          direction, query(direction == dnnl_backward_weights ? dnnl_query_diff_weights_md
                                                              : dnnl_query_weights_md));
    }
  }
}

int OnednnCall::bind(int argument, const_dnnl_memory_desc_t desc) {
  OnednnMemory memory;
  onednn_check(dnnl_memory_create(memory.out(), desc, backend_->engine(), DNNL_MEMORY_NONE),
               "bind an argument");
  arguments_.push_back({argument, memory.get()});
  memories_.push_back(std::move(memory));
  return static_cast<int>(arguments_.size()) - 1;
}

void OnednnCall::set(int index, void* pointer) {
  onednn_check(dnnl_memory_set_data_handle(memories_[static_cast<size_t>(index)].get(), pointer),
               "set an argument");
}

void OnednnCall::execute() {
  onednn_check(dnnl_primitive_execute(primitive_.get(), backend_->stream(),
                                      static_cast<int>(arguments_.size()), arguments_.data()),
               "run a primitive");
}

OnednnCall onednn_reorder(CpuBackend& backend, const_dnnl_memory_desc_t from,
                          const_dnnl_memory_desc_t to) {
  if (dnnl_memory_desc_equal(from, to)) return {};
  OnednnAttr attr = onednn_user_scratchpad();
  OnednnPrimitiveDesc desc;
  onednn_check(dnnl_reorder_primitive_desc_create(desc.out(), from, backend.engine(), to,
                                                  backend.engine(), attr.get()),
               "create a reorder");
  return OnednnCall(backend, std::move(desc));
}

}  // namespace pl
