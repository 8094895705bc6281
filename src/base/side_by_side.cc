#include "base/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace pl {

void side_by_side(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto some = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::future<void>> others;  // each waits for its thread when it goes
  for (size_t t = 1; t < std::min(threads, count); ++t)
    others.push_back(std::async(std::launch::async, some));
  some();
  for (std::future<void>& other : others) other.get();
}

}  // namespace pl
