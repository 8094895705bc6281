// A device for tests: the host's kernels on memory that nobody but its kernels and copies may
// touch. Whoever mistakes an address of it for the host's gets a fault.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/device_work.h"
#include "backend/several_kernel.h"
#include "base/error.h"
#include "op/device_kernels.h"

namespace pl::test {

// The memory of all fake devices, which is open while one of these lives.
class FakeMemoryOpen {
 public:
  FakeMemoryOpen() {
    if (depth()++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~FakeMemoryOpen() {
    if (--depth() == 0) protect(PROT_NONE);
  }
  FakeMemoryOpen(const FakeMemoryOpen&) = delete;
  FakeMemoryOpen& operator=(const FakeMemoryOpen&) = delete;
  static std::map<void*, size_t>& pieces() {
    static std::map<void*, size_t> all;
    return all;
  }
  static int& depth() {
    static int count = 0;
    return count;
  }

 private:
  static void protect(int how) {
    for (const auto& [data, bytes] : pieces()) ::mprotect(data, bytes, how);
  }
};

class FakeMemory final : public DeviceMemory {
 public:
  explicit FakeMemory(Bytes bytes) : size_(static_cast<size_t>(align_up(bytes + 1, 4096))) {
    bytes_ = bytes;
    data_ = static_cast<char*>(
        ::mmap(nullptr, size_, FakeMemoryOpen::depth() > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    FakeMemoryOpen::pieces()[data_] = size_;
  }
  ~FakeMemory() override {
    FakeMemoryOpen::pieces().erase(data_);
    ::munmap(data_, size_);
  }

 private:
  size_t size_;
};

// What a device was asked to do, and does when it is told to.
class FakeRecording final : public Recording {
 public:
  explicit FakeRecording(std::vector<std::function<void()>> work) : work_(std::move(work)) {}
  void launch() override {
    for (const auto& each : work_) each();
  }

 private:
  std::vector<std::function<void()>> work_;
};

class FakeDevice;

// The host's kernel. It holds whoever runs it to what was said of addresses when it was prepared.
class FakeKernel final : public Kernel {
 public:
  FakeKernel(std::unique_ptr<Kernel> kernel, const PrepareCall& call);
  void run(void* const* in, void* const* out, void* workspace) override;

 private:
  std::unique_ptr<Kernel> kernel_;
  FakeDevice& device_;
  std::vector<Bytes> in_, out_;  // alignments
};

// An update, which runs with others of its op: the last one first, so that those which may not
// show.
class FakeUpdate final : public SeveralKernel {
 public:
  FakeUpdate(const Op& op, std::unique_ptr<Kernel> kernel, int& together)
      : op_(op), kernel_(std::move(kernel)), together_(together) {
    static_cast<Kernel&>(*this) = *kernel_;
  }
  void run(void* const* in, void* const* out, void* workspace) override {
    kernel_->run(in, out, workspace);
  }
  bool joins(const Kernel& other) const override {
    const auto* update = dynamic_cast<const FakeUpdate*>(&other);
    return update && &update->op_ == &op_;
  }
  void run_several(std::span<const KernelCall> calls) override {
    for (size_t i = calls.size(); i-- > 0;)
      calls[i].kernel->run(calls[i].in, calls[i].out, nullptr);
    together_ += static_cast<int>(calls.size());
  }

 private:
  const Op& op_;
  std::unique_ptr<Kernel> kernel_;
  int& together_;
};

class FakeDevice final : public Backend, public DeviceWork {
 public:
  static constexpr Bytes kTotal = 4 * kGiB, kContext = 100 * kMiB;

  // `kind`: whose passes steps go through.
  explicit FakeDevice(DeviceKind kind = DeviceKind::cpu) : Backend({kind, 0}, 1, 256) {
    add(std::make_index_sequence<kMostOps>());
    check(catalogue().size() <= kMostOps, "room for every op");
    kernels_.list = list_;
  }
  std::string machine() const override { return words; }
  bool on_host() const override { return false; }
  const DeviceKernels* kernels() const override { return &kernels_; }
  Bytes granule() const override { return 4 * kKiB; }
  Bytes held() const override {
    Bytes sum = kContext + grown;
    for (const auto& [data, bytes] : FakeMemoryOpen::pieces()) sum += static_cast<Bytes>(bytes);
    return sum;
  }
  Bytes free() const override { return kTotal - held() - others; }
  std::string holders() const override {
    return others > 0 ? " (process 7 holds " + format_bytes(others) + ")" : "";
  }
  std::string numerics() const override { return bits; }
  Bytes others = 0;                // held by somebody else
  Bytes grows = 0, grown = 0;      // what nobody planned: with the next reservation, and since then
  std::string bits = "fake bits";  // what decides them
  void copy(void* to, const void* from, Bytes bytes) override {
    ask("copy", [=, this] {
      const FakeMemoryOpen open;
      Backend::copy(to, from, bytes);
    });
  }
  void zero(void* at, Bytes bytes) override {
    ask("zero", [=, this] {
      const FakeMemoryOpen open;
      Backend::zero(at, bytes);
    });
  }
  void add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add) override {
    ask("add_words", [=, this, words = std::vector<int64_t>(add.begin(), add.end())] {
      const FakeMemoryOpen open;
      Backend::add_words(to, from, words);
    });
  }
  void synchronize() override { tell("synchronize"); }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    if (!records) return nullptr;
    std::vector<std::function<void()>> list;
    recording_ = &list;
    try {
      work();
    } catch (...) {
      recording_ = nullptr;
      throw;
    }
    recording_ = nullptr;
    return std::make_unique<FakeRecording>(std::move(list));
  }
  std::unique_ptr<Backend> choosing(bool deterministic) override {
    ++chosen;
    auto other = std::make_unique<FakeDevice>(device().kind);
    other->deterministic = deterministic;
    return other;
  }
  // As a GPU's driver has it: a call is refused with the fault of work before it.
  template <class F>
  void ask(const char* what, F work) {
    if (recording_) {
      recording_->emplace_back(std::move(work));
      return;
    }
    tell(what);
    work();
  }
  void tell(const char* what) const {
    if (faulty_) throw DeviceFault("[cuda] " + std::string(what) + ": cudaErrorIllegalAddress");
  }
  void mend() {
    faulty_ = false;
    fault_in = -1;
  }
  // Runs a kernel; the one that is to fail does not.
  void run_kernel(const std::function<void()>& work) {
    ++ran;
    if (fault_in >= 0 && fault_in-- == 0) faulty_ = true;
    if (faulty_) return;
    work();
  }
  std::unique_ptr<DeviceMemory> reserve(Bytes bytes) override {
    tell("reserve");
    if (bytes > free() || (refusals > 0 && refusals-- > 0))
      throw DoesNotFit("[memory] expected " + format_bytes(bytes) + ", received none");
    grown += std::exchange(grows, 0);
    return std::make_unique<FakeMemory>(bytes);
  }
  double most_timing_ms() const override { return 1e9; }  // slow as it is
  double time_ms(const std::function<void()>& work) override {
    work();
    return ++runs;
  }
  size_t preparing_threads() const override { return threads; }
  bool shares(const Kernel& kernel) const override { return kernel.workspace_bytes > 0; }
  std::shared_ptr<void> alone_with(const Kernel&) override {
    ++alone;
    return {this, [](void* device) { --static_cast<FakeDevice*>(device)->alone; }};
  }
  void copy_beside(void* to, const void* from, Bytes bytes) override {
    copy(to, from, bytes);
    ++ahead;
  }
  void wait_for_copies() override {}
  void copies_wait() override {}
  void synchronize_copies() override {}
  // Copies of stays happen as late as they may, so that bytes which are used again too early show.
  void send_away(size_t stay, void* host, const void* from, Bytes bytes) override {
    leaving_[stay] = {host, from, bytes};
    ++sent;
  }
  void bring_back(size_t stay, void* to, const void* host, Bytes bytes) override {
    coming_[stay] = {to, host, bytes};
    spoil(to, bytes);  // from now on, nobody else's
  }
  void wait_away(size_t stay) override { finish(leaving_, stay); }
  void wait_back(size_t stay) override { finish(coming_, stay); }
  void join_stays() override {
    for (auto* list : {&leaving_, &coming_})
      while (!list->empty()) finish(*list, list->begin()->first);
  }
  int runs = 0, ahead = 0, sent = 0, alone = 0;
  int together = 0;    // updates that ran with others
  size_t threads = 1;  // that may prepare kernels
  int refusals = 0;    // of reservations, from now on
  std::string words;   // of the machine
  bool records = false;
  int fault_in = -1;   // kernels that run before one fails, which shows in a later call; -1: none
  int misaligned = 0;  // calls so far whose kernels were told that a slice may lie anywhere
  bool deterministic = true;
  int chosen = 0;  // times that somebody wanted other kernels
  int ran = 0;     // kernels

 private:
  static constexpr size_t kMostOps = 256;
  struct Copy {
    void* to;
    const void* from;
    Bytes bytes;
  };
  void finish(std::map<size_t, Copy>& list, size_t stay) {
    const auto at = list.find(stay);
    if (at == list.end()) return;
    copy(at->second.to, at->second.from, at->second.bytes);
    list.erase(at);
  }
  static void spoil(void* at, Bytes bytes) {
    const FakeMemoryOpen open;
    std::memset(at, 0xFF, static_cast<size_t>(bytes));
  }
  std::map<size_t, Copy> leaving_, coming_;
  std::vector<std::function<void()>>* recording_ = nullptr;
  bool faulty_ = false;

  static CpuBackend& host() {
    static CpuBackend backend(1);
    return backend;
  }
  template <size_t Op>
  static std::unique_ptr<Kernel> prepare_op(const PrepareCall& call) {
    static std::mutex one_at_a_time;  // the host's kernels are prepared by one thread
    const std::lock_guard lock(one_at_a_time);
    const pl::Op& op = *catalogue()[Op];
    auto kernel =
        std::make_unique<FakeKernel>(prepare(op, {host(), call.in, call.out, call.attrs}), call);
    if (!op.effects.writes_state || kernel->workspace_bytes > 0) return kernel;
    return std::make_unique<FakeUpdate>(op, std::move(kernel),
                                        static_cast<FakeDevice&>(call.backend).together);
  }
  template <size_t... Ops>
  void add(std::index_sequence<Ops...>) {
    constexpr std::array<std::unique_ptr<Kernel> (*)(const PrepareCall&), kMostOps> functions{
        &FakeDevice::prepare_op<Ops>...};
    for (size_t i = 0; i < catalogue().size(); ++i)
      list_.push_back({catalogue()[i], {"host", DeviceKind::cpu, functions[i]}});
  }

  std::vector<DeviceKernel> list_;
  DeviceKernels kernels_;
};

inline FakeKernel::FakeKernel(std::unique_ptr<Kernel> kernel, const PrepareCall& call)
    : kernel_(std::move(kernel)), device_(static_cast<FakeDevice&>(call.backend)) {
  static_cast<Kernel&>(*this) = *kernel_;
  for (size_t i = 0; i < call.in.size(); ++i) in_.push_back(call.in_alignment(i));
  for (size_t o = 0; o < call.out.size(); ++o) out_.push_back(call.out_alignment(o));
  device_.misaligned += call.alignment() < kFullAlignment;
}

inline void FakeKernel::run(void* const* in, void* const* out, void* workspace) {
  auto held_to = [](const std::vector<Bytes>& alignments, void* const* at) {
    std::vector<void*> pointers(at, at + alignments.size());
    for (size_t i = 0; i < pointers.size(); ++i)
      check(reinterpret_cast<uintptr_t>(pointers[i]) % static_cast<uintptr_t>(alignments[i]) == 0,
            "an operand lies where its kernel was told");
    return pointers;
  };
  device_.ask("launch", [this, from = held_to(in_, in), to = held_to(out_, out), workspace] {
    device_.run_kernel([&] {
      const FakeMemoryOpen open;
      kernel_->run(from.data(), to.data(), workspace);
    });
  });
}

}  // namespace pl::test
