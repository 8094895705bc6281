#include "train/function.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <list>

#include "base/error.h"
#include "execute/executor.h"
#include "execute/pool.h"
#include "train/device_footprint.h"
#include "train/function_trace.h"

namespace pl {

// One signature, planned and ready to run in a Runtime.
class FunctionRun {
 public:
  // `space`: the device it runs on; null: the processor.
  FunctionRun(TracedFunction traced, Runtime& runtime, const std::shared_ptr<DeviceSpace>& space,
              const std::string& name)
      : traced_(std::move(traced)),
        runtime_(&runtime),
        space_(space),
        memory_(memory_of(runtime, space)),
        backend_(space ? space->backend() : runtime.backend()),
        name_(name),
        book_(backend_),
        layout_(layout_variables(traced_.graph.variables, backend_.alignment())) {
    for (const FunctionOutput& output : traced_.outputs)
      results_ += align_up(output.meta.bytes(), kPage);
    plan();
  }
  ~FunctionRun() {
    unbind();
    memory_->discharge(charged_);
  }
  FunctionRun(const FunctionRun&) = delete;
  FunctionRun& operator=(const FunctionRun&) = delete;

  const TracedFunction& traced() const { return traced_; }
  bool serves(const FunctionKey& key, Runtime& runtime,
              const std::shared_ptr<DeviceSpace>& space) const {
    return memory_ == memory_of(runtime, space) && traced_.key == key;
  }

  FunctionPlan figures() const {
    const Plan& plan = prepared_.plan;
    return {.arena = transient(),
            .variables = layout_.bytes,
            .nodes = prepared_.graph.nodes.size(),
            .split = prepared_.split,
            .recomputed = plan.recomputed.values,
            .ms = plan.ms,
            .recorded = recorded_ > 0};
  }

  FunctionCore::Results run(const Tensors& arguments) try {
    if (transient() + results_ > memory_->room()) plan();
    runtime_->backend().use();
    // Whatever may be refused comes before the first kernel: nothing is half done.
    Tensors results;
    for (const FunctionOutput& output : traced_.outputs)
      results.push_back(output.from == FunctionOutput::From::argument
                            ? arguments[output.index]
                            : value_on(space_, output.meta));
    const auto arena = std::make_shared<Buffer>(transient(), memory_);
    bind(static_cast<char*>(arena->data()));
    for (size_t i = 0; i < arguments.size(); ++i)
      copy_value(at(executor_->input(i), arguments[i].meta()), arguments[i]);
    for (size_t h = 0; h < traced_.host.size(); ++h)
      fill(traced_.host[h], executor_->input(arguments.size() + h));
    record();
    step();
    for (size_t v = 0; v < written_.size(); ++v)
      if (written_[v]) traced_.variables[v]->wrote();
    for (size_t r = 0; r < results.size(); ++r) copy_result(traced_.outputs[r], results[r]);
    for (const HostInput& input : traced_.host)
      if (input.after) input.after();
    return {std::move(results), traced_.names};
  } catch (const DeviceFault& fault) {
    throw BackendError("[function] " + name_ + ": before or in it: expected kernels that end, " +
                       "received " + fault.what() + kFaultRemedy);
  }

 private:
  static constexpr Bytes kPage = 4 * kKiB;

  static const std::shared_ptr<ValueMemory>& memory_of(Runtime& runtime,
                                                       const std::shared_ptr<DeviceSpace>& space) {
    return space ? runtime.device(space).memory : runtime.values();
  }

  Bytes transient() const { return prepared_.plan.arena - layout_.bytes; }

  // A place in the arena as a value.
  Tensor at(const void* place, const Meta& meta) const {
    return {meta,
            std::make_shared<Buffer>(const_cast<void*>(place), meta.bytes(), memory_, space_)};
  }

  void fill(const HostInput& input, void* place) const {
    if (!space_) return input.fill(place);
    const Tensor staging(input.meta);
    input.fill(staging.data());
    copy_value(at(place, input.meta), staging);
  }

  void copy_result(const FunctionOutput& output, const Tensor& result) const {
    if (output.from == FunctionOutput::From::argument) return;
    copy_value(result, output.from == FunctionOutput::From::kept
                           ? at(executor_->kept(output.index), output.meta)
                           : traced_.variables[output.index]->current());
  }

  Bytes kernel_bytes(const KernelBill& bill) const {
    Bytes bytes = 0;
    for (int id : bill.calls) bytes += book_.call(id).footprint;
    return bytes;
  }
  // What a call takes besides arguments and variables.
  Bytes needs(const Pool& pool, const PoolEntry& entry) const {
    return align_up(entry.arena - layout_.bytes, kPage) + results_ +
           kernel_bytes(pool.of(entry).bill);
  }

  // The fastest plan within the memory that is left.
  void plan() {
    unbind();
    prepared_ = {};
    memory_->discharge(std::exchange(charged_, 0));
    const Bytes room = memory_->room();
    Pool pool = make_pool(traced_.graph, book_, memo_, layout_, only_unlimited());
    if (needs(pool, pool.entries.front()) > room)
      pool = make_pool(traced_.graph, book_, memo_, layout_, {});
    const PoolEntry* best = nullptr;
    Bytes least = std::numeric_limits<Bytes>::max();
    for (const PoolEntry& entry : pool.entries) {
      const Bytes bytes = needs(pool, entry);
      least = std::min(least, bytes);
      if (bytes <= room && (!best || entry.ms < best->ms)) best = &entry;
    }
    if (!best) refuse(least);
    prepared_ = build(traced_.graph, *best, book_, layout_);
    prepared_.kernels = book_.kernels(prepared_.graph);
    const Bytes kernels = kernel_bytes(pool.of(*best).bill);
    if (memory_->charge(kernels)) charged_ = kernels;
    written_.clear();
    for (const GraphVariable& variable : prepared_.graph.variables)
      written_.push_back(variable.first != variable.last);
  }

  [[noreturn]] void refuse(Bytes least) const {
    const MemoryFigures figures = memory_->figures();
    throw DoesNotFit(
        "[function] " + name_ + ": expected " + format_bytes(least) +
        " at least, to run it in, within memory = " + format_bytes(figures.limit.value_or(0)) +
        ", of which " + format_bytes(figures.used) + " are held by " +
        std::to_string(figures.values) +
        " values and kernels; let go of some, make the batch smaller, or raise memory");
  }

  void step() {
    executor_->waited();  // for its last call, or nobody knows
    try {
      executor_->step();
    } catch (const BackendError& error) {
      throw BackendError("[function] " + name_ + ": " + error.what());
    }
  }

  // Pointers, unless they are the last call's.
  void bind(char* arena) {
    std::vector<void*> places;
    for (size_t v = 0; v < traced_.variables.size(); ++v) {
      VariableState& variable = *traced_.variables[v];
      const Tensor value = written_[v] ? variable.writable() : variable.current();
      if (value.buffer()->space() != space_)
        throw UserError("[function] " + name_ + ": " + variable.name + ": expected a variable on " +
                        name_of(space_) + ", where the function runs, received one on " +
                        name_of(value.buffer()->space()) +
                        "; make the variables and call the function in one pl::device scope");
      places.push_back(value.place());
    }
    if (executor_ && arena == arena_ && places == places_) {
      ++calls_;
      return;
    }
    unbind();
    arena_ = arena;
    places_ = std::move(places);
    executor_ = std::make_unique<Executor>(prepared_.graph, prepared_.plan, prepared_.kernels,
                                           ArenaView{nullptr, arena_, places_}, &backend_);
    executor_->share();
  }
  void unbind() {
    executor_.reset();
    memory_->discharge(std::exchange(recorded_, 0));
    calls_ = 0;
  }

  // On a device: the second call at the same places records what the first one has loaded, and is
  // launched as a whole, like all that follow. Without room for it calls go on kernel by kernel.
  void record() {
    if (!space_ || calls_ != 1) return;
    const Bytes bytes = recording_bytes(executor_->timed_steps());
    if (!memory_->charge(bytes)) return;
    recorded_ = bytes;
    bool recorded = false;
    try {
      recorded = executor_->record();
    } catch (const BackendError&) {
    }
    if (!recorded) memory_->discharge(std::exchange(recorded_, 0));
  }
  static std::string name_of(const std::shared_ptr<DeviceSpace>& space) {
    return space ? space->name() : "cpu";
  }

  TracedFunction traced_;
  Runtime* runtime_;
  std::shared_ptr<DeviceSpace> space_;
  std::shared_ptr<ValueMemory> memory_;
  Backend& backend_;
  std::string name_;
  KernelBook book_;
  SearchMemo memo_;
  VariableLayout layout_;
  Bytes results_ = 0, charged_ = 0;
  Prepared prepared_;
  std::vector<bool> written_;
  std::unique_ptr<Executor> executor_;
  int64_t calls_ = 0;   // before this one, with the pointers of this one
  Bytes recorded_ = 0;  // of the device, for the recording
  char* arena_ = nullptr;
  std::vector<void*> places_;
};

class FunctionTraces {
 public:
  explicit FunctionTraces(FunctionOptions options) : options_(std::move(options)) {
    if (options_.signatures < 1)
      throw UserError("[function] signatures: expected at least one, received 0");
  }

  FunctionCore::Results call(const FunctionKey& key, const Tensors& tensors,
                             const FunctionCore::Body& body) {
    Runtime* runtime = &Runtime::here();
    if (!observing().empty() && std::any_of(observing().begin(), observing().end(),
                                            [](const OpObserver* o) { return o->recording(); }))
      throw UserError("[function] " + options_.name +
                      ": expected no GradientTape that records around it, since none sees into a "
                      "traced function; put the tape inside, or pause it with stop_recording()");
    // By scope or arguments; variables alone are seen too late.
    const std::shared_ptr<DeviceSpace> space = device_of(tensors);
    auto at = std::find_if(runs_.begin(), runs_.end(),
                           [&](const auto& run) { return run->serves(key, *runtime, space); });
    if (at == runs_.end()) {
      make(key, body, *runtime, space);
      at = runs_.begin();
    }
    runs_.splice(runs_.begin(), runs_, at);
    return runs_.front()->run(tensors);
  }

  int64_t traces() const { return traces_; }
  FunctionPlan plan() const { return runs_.empty() ? FunctionPlan{} : runs_.front()->figures(); }

 private:
  void make(const FunctionKey& key, const FunctionCore::Body& body, Runtime& runtime,
            const std::shared_ptr<DeviceSpace>& space) {
    if (!runs_.empty()) warn(key, runs_.front()->traced().key);
    while (runs_.size() >= options_.signatures) runs_.pop_back();
    try {
      const DeviceKind kind = space ? space->backend().device().kind : DeviceKind::cpu;
      runs_.push_front(std::make_unique<FunctionRun>(trace_function(key, body, kind), runtime,
                                                     space, options_.name));
    } catch (const UserError& error) {
      throw UserError("[function] " + options_.name + ": " + error.what());
    }
    ++traces_;
  }

  // Which argument makes this another signature than the last call's.
  std::string cause(const FunctionKey& now, const FunctionKey& before) const {
    if (now.metas.size() != before.metas.size())
      return std::to_string(before.metas.size()) + " tensors became " +
             std::to_string(now.metas.size());
    for (size_t i = 0; i < now.metas.size(); ++i)
      if (now.metas[i] != before.metas[i])
        return "tensor argument " + std::to_string(i) + " was " + before.metas[i].text() +
               " and is now " + now.metas[i].text();
    for (size_t i = 0; i < std::min(now.constants.size(), before.constants.size()); ++i)
      if (now.constants[i] != before.constants[i])
        return "constant argument " + std::to_string(i) + " was " + before.constants[i] +
               " and is now " + now.constants[i];
    return "it is called in another Runtime, or on another device";
  }

  void warn(const FunctionKey& now, const FunctionKey& before) const {
    const std::string text = "[function] " + options_.name + ": traced again (" +
                             std::to_string(traces_ + 1) + " times so far): " + cause(now, before);
    if (options_.on_retrace)
      options_.on_retrace(text);
    else
      std::fprintf(stderr, "%s\n", text.c_str());
  }

  FunctionOptions options_;
  std::list<std::unique_ptr<FunctionRun>> runs_;  // the one called last is first
  int64_t traces_ = 0;
};

FunctionCore::FunctionCore(FunctionOptions options)
    : traces_(std::make_unique<FunctionTraces>(std::move(options))) {}
FunctionCore::FunctionCore(FunctionCore&&) noexcept = default;
FunctionCore& FunctionCore::operator=(FunctionCore&&) noexcept = default;
FunctionCore::~FunctionCore() = default;

FunctionCore::Results FunctionCore::call(const Tensors& tensors,
                                         const std::vector<std::string>& constants,
                                         const Body& body) {
  FunctionKey key{{}, constants};
  for (const Tensor& tensor : tensors) {
    if (!tensor.buffer()) tensor.data();  // a symbol or an empty tensor is refused
    key.metas.push_back(tensor.meta());
  }
  return traces_->call(key, tensors, body);
}

int64_t FunctionCore::traces() const { return traces_->traces(); }
FunctionPlan FunctionCore::plan() const { return traces_->plan(); }
bool FunctionCore::inside_trace() { return FunctionTrace::current() != nullptr; }

std::string FunctionCore::real_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

}  // namespace pl
