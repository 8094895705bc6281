#include "base/stop_signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace pl {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};

// A handler sees nothing but what is global. Objects may nest; the outermost installs.
std::atomic<int> noted{0};
std::atomic<int> living{0};
std::array<struct sigaction, kSignals.size()> before;
std::array<bool, kSignals.size()> taken{};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  int none = 0;
  if (noted.compare_exchange_strong(none, signal)) return;
  if (signal == SIGINT) ::_exit(128 + SIGINT);
}

}  // namespace

StopSignals::StopSignals() {
  if (living.fetch_add(1) > 0) return;
  noted.store(0);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    taken[i] = ::sigaction(kSignals[i], nullptr, &before[i]) == 0 &&
               !(before[i].sa_flags & SA_SIGINFO) && before[i].sa_handler == SIG_DFL;
    if (!taken[i]) continue;
    struct sigaction action {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  if (living.fetch_sub(1) > 1) return;
  for (size_t i = 0; i < kSignals.size(); ++i)
    if (taken[i]) ::sigaction(kSignals[i], &before[i], nullptr);
  noted.store(0);
}

int StopSignals::received() { return noted.load(std::memory_order_relaxed); }

const char* StopSignals::name(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace pl
