// The same work on many things, several at a time.
#pragma once

#include <cstddef>
#include <functional>

namespace pl {

// work(0) to work(count - 1), each once, on up to so many threads, this one among them; on this one
// alone in that order. Throws what the first of the threads threw, when all are done.
void side_by_side(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace pl
