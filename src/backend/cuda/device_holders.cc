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

// As NVML names a part of a GPU (MIG) that CUDA shows as a device: MIG-8 hex digits-4-4-4-12.
std::string part_name(const cudaUUID_t& id) {
  std::string name = "MIG-";
  for (int i = 0; i < 16; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    name += kDigits[byte / 16];
    name += kDigits[byte % 16];
  }
  return name;
}

}  // namespace

Bytes held_by_others(const std::vector<DeviceHolder>& holders, unsigned own) {
  Bytes bytes = 0;
  for (const DeviceHolder& holder : holders)
    if (holder.process != own) bytes += holder.bytes;
  return bytes;
}

unsigned grown_by(const std::vector<DeviceHolder>& before, const std::vector<DeviceHolder>& after,
                  Bytes bytes) {
  std::vector<unsigned> grown;
  for (const DeviceHolder& now : after)
    for (const DeviceHolder& then : before)
      if (now.process == then.process && now.bytes - then.bytes >= bytes)
        grown.push_back(now.process);
  return grown.size() == 1 ? grown[0] : 0;
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
  std::string why;         // there is none
  using Processes = int (*)(void*, unsigned*, NvmlProcess*);
  Processes processes = nullptr, drawing = nullptr;  // that compute, that show pictures
  std::vector<DeviceHolder> before;                  // the context
  unsigned own = 0;                                  // this process, as it is listed; 0: unknown

  void open(int index) {
    void* library = open_first({"libnvidia-ml.so.1"});
    why = library ? "NVML does not know this device" : "libnvidia-ml.so.1 was not found";
    if (!library) return;
    auto get = [&](const char* name, auto& to) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, name));
      return to != nullptr;
    };
    int (*init)() = nullptr;
    int (*find)(const char*, void**) = nullptr;
    int (*find_part)(const char*, void**) = nullptr;
    char bus[32] = {};
    void* found = nullptr;
    cudaDeviceProp properties{};
    if (get("nvmlInit_v2", init) && get("nvmlDeviceGetHandleByPciBusId_v2", find) &&
        get("nvmlDeviceGetComputeRunningProcesses_v3", processes) && init() == 0 &&
        cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess &&
        cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      const bool part = get("nvmlDeviceGetHandleByUUID", find_part) &&
                        find_part(part_name(properties.uuid).c_str(), &found) == 0;
      if (part || find(bus, &found) == 0) device = found;
      get("nvmlDeviceGetGraphicsRunningProcesses_v3", drawing);
    }
    cudaGetLastError();  // nobody else is to be told
  }

  std::vector<DeviceHolder> list() const {
    std::vector<DeviceHolder> holders;
    if (device) add(processes, holders);
    if (device && drawing) add(drawing, holders);
    return holders;
  }

 private:
  // A process that does both is in both lists, with all that it holds.
  void add(Processes ask, std::vector<DeviceHolder>& holders) const {
    constexpr int kTooSmall = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
    std::vector<NvmlProcess> each(64);
    auto count = static_cast<unsigned>(each.size());
    int status = ask(device, &count, each.data());
    if (status == kTooSmall) {
      each.resize(2 * static_cast<size_t>(count));  // some may begin meanwhile
      count = static_cast<unsigned>(each.size());
      status = ask(device, &count, each.data());
    }
    if (status != 0) return;
    for (unsigned i = 0; i < count; ++i)
      if (each[i].bytes != ~0ULL &&
          std::none_of(holders.begin(), holders.end(),
                       [&](const DeviceHolder& known) { return known.process == each[i].pid; }))
        holders.push_back({each[i].pid, static_cast<Bytes>(each[i].bytes)});
  }
};

DeviceHolders::DeviceHolders(int index) : state_(std::make_unique<State>()) {
  state_->open(index);
  state_->before = state_->list();
}
DeviceHolders::~DeviceHolders() = default;

// In a container, a process that had a context before is none that came: what it takes now shows
// which it is.
void DeviceHolders::find_own() {
  State& s = *state_;
  const std::vector<DeviceHolder> now = s.list();
  s.own = own_process(s.before, now, this_process());
  if (s.own != 0 || now.empty()) return;
  constexpr Bytes kProbe = 32 * kMiB;
  void* probe = nullptr;
  if (cudaMalloc(&probe, static_cast<size_t>(kProbe)) == cudaSuccess) {
    s.own = grown_by(now, s.list(), kProbe);
    cudaFree(probe);
  }
  cudaGetLastError();
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
  if (!state_->device) return " (" + state_->why + ": what others hold counts as this process's)";
  std::string text;
  for (const DeviceHolder& holder : state_->list()) {
    if (holder.process == (state_->own != 0 ? state_->own : this_process())) continue;
    text += (text.empty() ? "" : ", ") + ("process " + std::to_string(holder.process)) + " holds " +
            format_bytes(holder.bytes);
  }
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace pl
