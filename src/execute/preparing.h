// Preparing: kernels that are made on several threads while somebody else goes on, who waits for
// the one that he needs next.
#pragma once

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "op/op.h"

namespace pl {

class Preparing {
 public:
  struct Call {
    std::string name;
    const Op* op;
    Metas in, out;
    Attrs attrs;
    std::optional<Alignments> slices;
  };
  // In this order.
  Preparing(Backend& backend, std::vector<Call> calls, size_t threads);
  ~Preparing();  // what was not begun by then is left
  Preparing(const Preparing&) = delete;
  Preparing& operator=(const Preparing&) = delete;

  // Waits for the call's kernel, and gives it away. Null where it was not listed, or failed:
  // whoever needs it prepares it himself, and hears why.
  std::unique_ptr<Kernel> take(const std::string& name);
  std::unique_ptr<Kernel> take_ready(const std::string& name);  // null too where it is not made yet
  // Waits for all that was not given away.
  std::map<std::string, std::unique_ptr<Kernel>> take_all();

 private:
  void work();

  Backend& backend_;
  std::vector<Call> calls_;
  std::map<std::string, size_t> places_;
  std::mutex mutex_;  // of what follows
  std::condition_variable made_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<bool> done_;
  size_t next_ = 0;
  std::vector<std::future<void>> threads_;
};

}  // namespace pl
