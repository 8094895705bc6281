// CudaBackend in a build without CUDA: it reports itself absent.
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace pl {
namespace {

[[noreturn]] void absent() { throw InternalError("[cuda] this build has no CUDA"); }

}  // namespace

struct CudaBackend::State {};

CudaBackend::CudaBackend(int index, CudaOptions options)
    : Backend({DeviceKind::cuda, index}, 1, kAlignment), options_(options) {
  throw UserError(
      "[backend] --device cuda: expected a build with CUDA, received one without; build with "
      "-DPLIMSOLL_CUDA=ON, or use --device cpu");
}
CudaBackend::~CudaBackend() = default;

int cuda_devices() { return 0; }
Bytes cuda_host_bytes() { return 0; }

std::string CudaBackend::machine() const { absent(); }
void CudaBackend::copy_in(void*, const void*, Bytes) { absent(); }
void CudaBackend::copy_out(void*, const void*, Bytes) { absent(); }
void CudaBackend::copy(void*, const void*, Bytes) { absent(); }
void CudaBackend::zero(void*, Bytes) { absent(); }
void CudaBackend::add_words(int64_t*, const int64_t*, std::span<const int64_t>) { absent(); }
void CudaBackend::synchronize() { absent(); }
std::unique_ptr<DeviceMemory> CudaBackend::reserve(Bytes) { absent(); }
std::unique_ptr<DeviceMemory> CudaBackend::reserve_staging(Bytes) { absent(); }
std::unique_ptr<Recording> CudaBackend::record(const std::function<void()>&) { absent(); }
void CudaBackend::use_lane(int) { absent(); }
int CudaBackend::mark() { absent(); }
void CudaBackend::wait(int) { absent(); }
double CudaBackend::time_ms(const std::function<void()>&) { absent(); }
CUstream_st* CudaBackend::stream() const { absent(); }
int CudaBackend::multiprocessors() const { absent(); }
int CudaBackend::compute_capability() const { absent(); }
void* CudaBackend::blas_lt() const { absent(); }
void* CudaBackend::dnn() const { absent(); }
CudaLibraries& CudaBackend::libraries() const { absent(); }
std::shared_ptr<void> CudaBackend::shared(const std::string&,
                                          const std::function<std::shared_ptr<void>()>&) const {
  absent();
}
Bytes CudaBackend::total() const { absent(); }
Bytes CudaBackend::free() const { absent(); }
Bytes CudaBackend::held() const { absent(); }

}  // namespace pl
