#include "op/observer.h"

#include <algorithm>

namespace pl {
namespace {
thread_local std::vector<OpObserver*> observers;
}

std::span<OpObserver* const> observing() { return observers; }
void begin_observing(OpObserver& observer) { observers.push_back(&observer); }
void end_observing(OpObserver& observer) { std::erase(observers, &observer); }

}  // namespace pl
