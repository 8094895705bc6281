#include "backend/cuda/device_holders.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>

#include "backend/cuda/cuda_libraries.h"

namespace pl {
namespace {

// NVML by hand: its header is not part of every toolkit.
struct NvmlProcess {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

unsigned this_process() { return static_cast<unsigned>(::getpid()); }

}  // namespace

Bytes held_by_others(const std::vector<DeviceHolder>& holders, unsigned own) {
  Bytes bytes = 0;
  for (const DeviceHolder& holder : holders)
    if (holder.process != own) bytes += holder.bytes;
  return bytes;
}

unsigned own_process(const std::vector<DeviceHolder>& before,
                     const std::vector<DeviceHolder>& after, unsigned id) {
  std::vector<unsigned> came;
  for (const DeviceHolder& holder : after) {
    if (holder.process == id) return id;
    if (std::none_of(before.begin(), before.end(),
                     [&](const DeviceHolder& known) { return known.process == holder.process; }))
      came.push_back(holder.process);
  }
  return came.size() == 1 ? came[0] : 0;
}

struct DeviceHolders::State {
  void* device = nullptr;  // NVML's; null: there is none
  int (*processes)(void*, unsigned*, NvmlProcess*) = nullptr;
  std::vector<DeviceHolder> before;  // the context
  unsigned own = 0;                  // this process, as it is listed; 0: unknown

  void open(int index) {
    void* library = open_first({"libnvidia-ml.so.1"});
    if (!library) return;
    auto get = [&](const char* name, auto& to) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, name));
      return to != nullptr;
    };
    int (*init)() = nullptr;
    int (*find)(const char*, void**) = nullptr;
    char bus[32] = {};
    void* found = nullptr;
    if (get("nvmlInit_v2", init) && get("nvmlDeviceGetHandleByPciBusId_v2", find) &&
        get("nvmlDeviceGetComputeRunningProcesses_v3", processes) && init() == 0 &&
        cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess && find(bus, &found) == 0)
      device = found;
    cudaGetLastError();  // nobody else is to be told
  }

  std::vector<DeviceHolder> list() const {
    std::vector<DeviceHolder> holders;
    if (!device) return holders;
    constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
    std::vector<NvmlProcess> each(64);
    auto count = static_cast<unsigned>(each.size());
    int status = processes(device, &count, each.data());
    if (status == kTooSmall) {
      each.resize(2 * static_cast<size_t>(count));  // some may begin meanwhile
      count = static_cast<unsigned>(each.size());
      status = processes(device, &count, each.data());
    }
    if (status != 0) return holders;
    for (unsigned i = 0; i < count; ++i)
      if (each[i].bytes != ~0ULL)
        holders.push_back({each[i].pid, static_cast<Bytes>(each[i].bytes)});
    return holders;
  }
};

DeviceHolders::DeviceHolders(int index) : state_(std::make_unique<State>()) {
  state_->open(index);
  state_->before = state_->list();
}
DeviceHolders::~DeviceHolders() = default;

void DeviceHolders::find_own() {
  state_->own = own_process(state_->before, state_->list(), this_process());
}

// Where it is not known which of those listed is this process: what was held before it began.
Bytes DeviceHolders::others() const {
  const State& s = *state_;
  if (s.own != 0) {
    const std::vector<DeviceHolder> now = s.list();
    if (std::any_of(now.begin(), now.end(),
                    [&](const DeviceHolder& holder) { return holder.process == s.own; }))
      return held_by_others(now, s.own);
  }
  return held_by_others(s.before, this_process());
}

std::string DeviceHolders::others_text() const {
  std::string text;
  for (const DeviceHolder& holder : state_->list()) {
    if (holder.process == (state_->own != 0 ? state_->own : this_process())) continue;
    text += (text.empty() ? "" : ", ") + ("process " + std::to_string(holder.process)) + " holds " +
            format_bytes(holder.bytes);
  }
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace pl
