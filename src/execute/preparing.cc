#include "execute/preparing.h"

#include "backend/device_work.h"
#include "base/error.h"

namespace pl {

Preparing::Preparing(Backend& backend, std::vector<Call> calls, size_t threads)
    : backend_(backend),
      calls_(std::move(calls)),
      kernels_(calls_.size()),
      done_(calls_.size(), false) {
  for (size_t i = 0; i < calls_.size(); ++i) places_.emplace(calls_[i].name, i);
  for (size_t t = 0; t < threads; ++t)
    threads_.push_back(std::async(std::launch::async, [this] { work(); }));
}

Preparing::~Preparing() {
  const std::lock_guard lock(mutex_);
  next_ = calls_.size();
}

void Preparing::work() {
  if (const DeviceWork* device = device_work(backend_)) device->use();
  for (;;) {
    size_t mine = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ >= calls_.size()) return;
      mine = next_++;
    }
    const Call& call = calls_[mine];
    std::unique_ptr<Kernel> kernel;
    try {
      kernel = prepare(*call.op, {backend_, call.in, call.out, call.attrs,
                                  call.slices ? &*call.slices : nullptr});
    } catch (const std::exception&) {  // told to whoever prepares it again
    }
    const std::lock_guard lock(mutex_);
    kernels_[mine] = std::move(kernel);
    done_[mine] = true;
    made_.notify_all();
  }
}

std::unique_ptr<Kernel> Preparing::take(const std::string& name) {
  const auto at = places_.find(name);
  if (at == places_.end()) return nullptr;
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return done_[at->second]; });
  return std::move(kernels_[at->second]);
}

std::unique_ptr<Kernel> Preparing::take_ready(const std::string& name) {
  const auto at = places_.find(name);
  if (at == places_.end()) return nullptr;
  const std::lock_guard lock(mutex_);
  return std::move(kernels_[at->second]);
}

std::map<std::string, std::unique_ptr<Kernel>> Preparing::take_all() {
  std::map<std::string, std::unique_ptr<Kernel>> all;
  for (const Call& call : calls_)
    if (std::unique_ptr<Kernel> kernel = take(call.name)) all[call.name] = std::move(kernel);
  return all;
}

}  // namespace pl
