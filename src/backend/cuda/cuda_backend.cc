#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <set>

#include "backend/cuda/add_words.h"
#include "backend/cuda/cuda_libraries.h"
#include "backend/cuda/device_holders.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/dnn_handle.h"
#include "backend/cuda/handle_lock.h"
#include "backend/cuda/stay_copies.h"
#include "base/error.h"

namespace pl {
namespace {

// A captured stream as an executable graph.
class CudaRecording final : public Recording {
 public:
  CudaRecording(cudaGraph_t graph, cudaStream_t stream, int device)
      : stream_(stream), device_(device) {
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    cuda_check(status, "cudaGraphInstantiate");
    // Its memory on the device is taken now, not at the first launch.
    try {
      cuda_check(cudaGraphUpload(graph_, stream), "cudaGraphUpload");
      cuda_check(cudaStreamSynchronize(stream), "cudaGraphUpload");
    } catch (...) {
      cudaGraphExecDestroy(graph_);
      throw;
    }
  }
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  void launch() override {
    cuda_check(cudaSetDevice(device_), "cudaSetDevice");
    cuda_check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
  }

 private:
  cudaStream_t stream_;
  int device_;
  cudaGraphExec_t graph_ = nullptr;
};

cudaError_t count_devices(int& count) {
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) count = 0;
  cudaGetLastError();
  return status;
}

// "a machine with cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)"
std::string devices_text(int count, cudaError_t status) {
  if (count == 0)
    return "a machine without one" +
           (status == cudaSuccess
                ? std::string()
                : " (CUDA says: " + std::string(cudaGetErrorString(status)) + ")");
  std::string text;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    const bool known = cudaGetDeviceProperties(&properties, i) == cudaSuccess;
    text += (i == 0 ? "a machine with cuda:" : ", cuda:") + std::to_string(i) + " (" +
            (known ? properties.name : "unknown") + ")";
  }
  return text;
}

}  // namespace

struct CudaBackend::State {
  int index = 0;
  std::unique_ptr<DeviceHolders> holders;
  cudaDeviceProp properties{};
  cudaStream_t stream = nullptr, copies = nullptr;
  cudaEvent_t reached = nullptr;               // by one of the streams, for the other one
  cudaEvent_t begin = nullptr, end = nullptr;  // of time_ms
  cublasLtHandle_t blas = nullptr;
  std::unique_ptr<DnnHandle> dnn;
  HandleLock dnn_lock;  // of its handle
  CudaLibraries libraries;
  std::unique_ptr<StayCopies> stays;
  std::mutex mutex;  // of the handles above
  // Of the stream: what another thread copies from values meanwhile must not become part of a
  // recording.
  std::recursive_mutex recording;
  struct Shared {
    std::mutex making;
    std::weak_ptr<void> made;
  };
  std::mutex shared_mutex;  // of the list
  std::map<std::string, Shared> shared;
  std::mutex loaded_mutex;
  std::set<const void*> loaded;  // kernels
  std::future<void> opening;     // of libraries; waited for first

  ~State() {
    if (opening.valid()) opening.wait();
    stays.reset();
    dnn.reset();
    if (blas) libraries.blas_lt().destroy(blas);
    for (cudaEvent_t event : {begin, end, reached})
      if (event) cudaEventDestroy(event);
    for (cudaStream_t each : {copies, stream})
      if (each) cudaStreamDestroy(each);
  }
};

int cuda_device_count() {
  int count = 0;
  count_devices(count);
  return count;
}

CudaBackend::CudaBackend(int index, CudaOptions options)
    : Backend({DeviceKind::cuda, index}, 1, kAlignment),
      options_(options),
      state_(std::make_shared<State>()) {
  State& s = *state_;
  // While the driver starts and the context is made.
  s.opening = std::async(std::launch::async, [&s] { s.libraries.open_ahead(); });
  int count = 0;
  const cudaError_t status = count_devices(count);
  if (index < 0 || index >= count)
    throw UserError("[backend] --device cuda:" + std::to_string(index) + ": expected a GPU, " +
                    "received " + devices_text(count, status) +
                    (count == 0 ? "; use --device cpu" : "; use one of these, or --device cpu"));
  s.index = index;
  s.holders = std::make_unique<DeviceHolders>(index);
  cuda_check(cudaSetDevice(index), "cudaSetDevice");
  cuda_check(cudaGetDeviceProperties(&s.properties, index), "cudaGetDeviceProperties");
  for (cudaStream_t* each : {&s.stream, &s.copies})
    cuda_check(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking), "cudaStreamCreate");
  cuda_check(cudaEventCreateWithFlags(&s.reached, cudaEventDisableTiming), "cudaEventCreate");
  s.stays = std::make_unique<StayCopies>(s.stream);
  s.holders->find_own();
  if (!cuda::has_code_for_device())
    throw BackendError(
        "[backend] --device cuda:" + std::to_string(index) +
        ": expected a GPU that this program was built for, received " + s.properties.name +
        ", sm_" + std::to_string(compute_capability()) +
        "; build with -DPLIMSOLL_CUDA_ARCHITECTURES=" + std::to_string(compute_capability()));
}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::machine() const {
  int driver = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return std::string(state_->properties.name) + ", " +
         std::to_string(state_->properties.multiProcessorCount) + " multiprocessors, sm_" +
         std::to_string(compute_capability()) + ", driver " + std::to_string(driver) + ", " +
         state_->libraries.versions() + (deterministic() ? ", deterministic" : "");
}

std::string CudaBackend::numerics() const {
  return "sm_" + std::to_string(compute_capability()) + ", " + std::to_string(multiprocessors()) +
         " multiprocessors, " + (deterministic() ? "deterministic" : "not deterministic");
}

void CudaBackend::copy_in(void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  use();
  const std::lock_guard lock(state_->recording);
  cuda_check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, state_->stream),
      "copy to the device");
}

void CudaBackend::copy_out(void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  use();
  const std::lock_guard lock(state_->recording);
  cuda_check(
      // Variables may lie in pinned memory of the host.
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, state_->stream),
      "copy to the host");
}

void CudaBackend::copy(void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  use();
  const std::lock_guard lock(state_->recording);
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                             state_->stream),
             "copy on the device");
}

void CudaBackend::zero(void* at, Bytes bytes) {
  if (bytes == 0) return;
  use();
  cuda_check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), state_->stream), "cudaMemset");
}

void CudaBackend::add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add) {
  use();
  check(add.size() <= 8, "a few words");
  cuda::add_words(state_->stream, to, from, add);
  cuda_check(cudaGetLastError(), "add_words");
}

void CudaBackend::synchronize() {
  use();
  const std::lock_guard lock(state_->recording);
  cuda_check(cudaStreamSynchronize(state_->stream), "synchronize");
}

std::unique_ptr<DeviceMemory> CudaBackend::reserve(Bytes bytes) {
  use();
  auto memory = std::make_unique<CudaMemory>(*state_->holders, bytes);
  zero(memory->data(), bytes);
  return memory;
}

std::unique_ptr<DeviceMemory> CudaBackend::reserve_staging(Bytes bytes) {
  use();
  return std::make_unique<PinnedMemory>(bytes);
}

std::unique_ptr<Recording> CudaBackend::record(const std::function<void()>& work) {
  use();
  const std::lock_guard lock(state_->recording);
  cuda_check(cudaStreamBeginCapture(state_->stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(state_->stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(state_->stream, &graph), "cudaStreamEndCapture");
  return std::make_unique<CudaRecording>(graph, state_->stream, state_->index);
}

CudaBackend::CudaBackend(const CudaBackend& same, CudaOptions options)
    : Backend(same.device(), same.threads(), kAlignment), options_(options), state_(same.state_) {}

std::unique_ptr<Backend> CudaBackend::choosing(bool deterministic) {
  CudaOptions options = options_;
  options.deterministic = deterministic;
  return std::unique_ptr<Backend>(new CudaBackend(*this, options));
}

double CudaBackend::time_ms(const std::function<void()>& work) {
  use();
  State& s = *state_;
  for (cudaEvent_t* event : {&s.begin, &s.end})
    if (!*event) cuda_check(cudaEventCreate(event), "cudaEventCreate");
  cuda_check(cudaEventRecord(s.begin, s.stream), "cudaEventRecord");
  work();
  cuda_check(cudaEventRecord(s.end, s.stream), "cudaEventRecord");
  cuda_check(cudaEventSynchronize(s.end), "synchronize");
  float ms = 0;
  cuda_check(cudaEventElapsedTime(&ms, s.begin, s.end), "cudaEventElapsedTime");
  return ms;
}

void CudaBackend::copy_beside(void* to, const void* from, Bytes bytes) {
  if (bytes == 0) return;
  use();
  cuda_check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, state_->copies),
      "copy beside kernels");
}

// A wait is for the event as it was recorded last: one event serves all.
void CudaBackend::wait_for_copies() {
  use();
  cuda_check(cudaEventRecord(state_->reached, state_->copies), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(state_->stream, state_->reached, 0), "cudaStreamWaitEvent");
}

void CudaBackend::copies_wait() {
  use();
  cuda_check(cudaEventRecord(state_->reached, state_->stream), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(state_->copies, state_->reached, 0), "cudaStreamWaitEvent");
}

void CudaBackend::synchronize_copies() {
  use();
  cuda_check(cudaStreamSynchronize(state_->copies), "synchronize copies");
}

void CudaBackend::send_away(size_t stay, void* host, const void* from, Bytes bytes) {
  use();
  state_->stays->send(stay, host, from, bytes);
}
void CudaBackend::bring_back(size_t stay, void* to, const void* host, Bytes bytes) {
  use();
  state_->stays->bring(stay, to, host, bytes);
}
void CudaBackend::wait_away(size_t stay) {
  use();
  state_->stays->wait_away(stay);
}
void CudaBackend::wait_back(size_t stay) {
  use();
  state_->stays->wait_back(stay);
}
void CudaBackend::join_stays() {
  use();
  state_->stays->join();
}

void CudaBackend::use() const { cuda_check(cudaSetDevice(state_->index), "cudaSetDevice"); }

CUstream_st* CudaBackend::stream() const {
  use();
  return state_->stream;
}
int CudaBackend::multiprocessors() const { return state_->properties.multiProcessorCount; }
int CudaBackend::compute_capability() const {
  return 10 * state_->properties.major + state_->properties.minor;
}

void* CudaBackend::blas_lt() const {
  State& s = *state_;
  use();
  const BlasLtApi& api = s.libraries.blas_lt();
  const std::lock_guard lock(s.mutex);
  if (!s.blas) cublas_check(api.create(&s.blas), "cublasLtCreate");
  return s.blas;
}

void* CudaBackend::dnn() const {
  State& s = *state_;
  use();
  void* library = s.libraries.dnn();
  const std::lock_guard lock(s.mutex);
  if (!s.dnn) s.dnn = std::make_unique<DnnHandle>(library, s.stream);
  return s.dnn->get();
}

HandleLock& CudaBackend::dnn_lock() const { return state_->dnn_lock; }

// A kernel names the library whose handle it runs with; that of cuBLASLt is for all threads.
bool CudaBackend::shares(const Kernel& kernel) const { return kernel.library == "cudnn"; }

std::shared_ptr<void> CudaBackend::alone_with(const Kernel& kernel) {
  if (!shares(kernel)) return nullptr;
  HandleLock& lock = state_->dnn_lock;
  lock.lock_first();
  return {&lock, [](void* held) { static_cast<HandleLock*>(held)->unlock(); }};
}

CudaLibraries& CudaBackend::libraries() const { return state_->libraries; }

void CudaBackend::load(const void* kernel) const {
  const std::lock_guard lock(state_->loaded_mutex);
  if (!state_->loaded.insert(kernel).second) return;
  use();
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) cudaGetLastError();
}

std::shared_ptr<void> CudaBackend::shared(
    const std::string& name, const std::function<std::shared_ptr<void>()>& make) const {
  State::Shared* place = nullptr;
  {
    const std::lock_guard lock(state_->shared_mutex);
    place = &state_->shared[name];
  }
  const std::lock_guard making(place->making);
  std::shared_ptr<void> found = place->made.lock();
  if (!found) place->made = found = make();
  return found;
}

Bytes CudaBackend::total() const {
  use();
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<Bytes>(total);
}

Bytes CudaBackend::free() const {
  use();
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<Bytes>(free);
}

Bytes CudaBackend::held() const {
  return std::max<Bytes>(0, total() - free() - state_->holders->others());
}

std::string CudaBackend::holders() const { return state_->holders->others_text(); }

}  // namespace pl
