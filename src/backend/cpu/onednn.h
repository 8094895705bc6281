// oneDNN through its C API, with memory objects and argument arrays stored once. Scratchpads are
// the caller's (planned workspace); nothing here allocates during `execute`.
#pragma once

#include <dnnl.h>

#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "tensor/shape.h"

namespace pl {

// Throws BackendError "[onednn] <what>: <status>" unless the call succeeded.
void onednn_check(dnnl_status_t status, const char* what);

// Owns a C handle.
template <class T, dnnl_status_t (*Destroy)(T)>
class OnednnHandle {
 public:
  OnednnHandle() = default;
  explicit OnednnHandle(T handle) : handle_(handle) {}
  OnednnHandle(OnednnHandle&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  OnednnHandle& operator=(OnednnHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~OnednnHandle() {
    if (handle_) Destroy(handle_);
  }
  T get() const { return handle_; }
  T* out() { return &handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  T handle_ = nullptr;
};

using OnednnDesc = OnednnHandle<dnnl_memory_desc_t, dnnl_memory_desc_destroy>;
using OnednnAttr = OnednnHandle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using OnednnPrimitiveDesc = OnednnHandle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using OnednnPrimitive = OnednnHandle<dnnl_primitive_t, dnnl_primitive_destroy>;
using OnednnMemory = OnednnHandle<dnnl_memory_t, dnnl_memory_destroy>;

// Resident bytes of one primitive with its descriptors: upper bounds of what was measured over some
// hundred shapes each with AVX-512 (AVX2 code is smaller). Reorders took 8 to 24 KiB; convolutions
// have a table in onednn.cc. Matmuls took 110 to 560: the library generates code for each
// combination of rests that the blocking leaves, and twice when it splits K.
inline constexpr Bytes kReorderFootprint = 24 * kKiB;
inline constexpr Bytes kMatmulFootprint = 176 * kKiB;     // M a multiple of 16, N of 64
inline constexpr Bytes kMatmulRestFootprint = 40 * kKiB;  // more, for each that is not
inline constexpr Bytes kMatmulLongFootprint = 48 * kKiB;  // more, when K > 512
inline constexpr Bytes kMatmulLongRestFootprint =
    168 * kKiB;  // instead of the rest's, when K > 512

// A plain (strided) or, with format_any, library-chosen description. dims in oneDNN's order.
OnednnDesc onednn_desc(const std::vector<int64_t>& dims, dnnl_format_tag_t tag,
                       dnnl_data_type_t type = dnnl_f32);
dnnl_data_type_t onednn_type(Dtype dtype);  // float32 or bfloat16
dnnl_cpu_isa_t onednn_isa();                // that the library may use, within PLIMSOLL_SIMD
// Whether the library multiplies this dtype at full speed here. bfloat16 without instructions for
// it is left to float32 kernels (op/widen.h): the library's fallbacks are slow.
bool onednn_multiplies(Dtype dtype);
// False where the library has plain loops alone for what it was asked.
bool onednn_is_fast(const OnednnPrimitiveDesc& desc);
// `part` of the library for Kernel::library; it ends in " bfloat16" for operands like `desc`.
std::string onednn_part(std::string part, const_dnnl_memory_desc_t desc);
OnednnAttr onednn_user_scratchpad();

// The layout in oneDNN's letters, "ABcd16b16a": part of the numerics key.
std::string onednn_layout(const_dnnl_memory_desc_t desc);

// A primitive with its argument list. Usage: build from a primitive descriptor, `bind` the
// arguments in order, then per call `set(i, pointer)` and `execute`.
class OnednnCall {
 public:
  OnednnCall() = default;
  OnednnCall(CpuBackend& backend, OnednnPrimitiveDesc desc);
  explicit operator bool() const { return static_cast<bool>(primitive_); }

  // The description the primitive wants for an argument, e.g. dnnl_query_weights_md. Owned by the
  // call.
  const_dnnl_memory_desc_t query(dnnl_query_t what, int index = 0) const;
  Bytes scratchpad_bytes() const;
  const char* implementation() const;  // "brgemm:avx512_core", part of the numerics key
  Bytes footprint() const;             // upper bound of what the call holds: JIT code, descriptors

  int bind(int argument, const_dnnl_memory_desc_t desc);  // its index for `set`
  void set(int index, void* pointer);
  void execute();

 private:
  CpuBackend* backend_ = nullptr;
  OnednnPrimitiveDesc desc_;
  OnednnPrimitive primitive_;
  std::vector<OnednnMemory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A reorder between two layouts, or an empty call when they are equal.
OnednnCall onednn_reorder(CpuBackend& backend, const_dnnl_memory_desc_t from,
                          const_dnnl_memory_desc_t to);

}  // namespace pl
