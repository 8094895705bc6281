// What a tape holds, and the three ways to let go of it: gradient(), reset() and the end of its
// scope. Everything is freed at once, page by page, for other values.
#include "plimsoll.h"

#include <cstdio>

namespace {

using namespace pl;

// Eight activations of 1 MiB each, all of which the gradient needs.
Tensor deep(const Variable& w, const Tensor& x) {
  Tensor h = x;
  for (int i = 0; i < 8; ++i) h = tanh(matmul(h, w));
  return reduce_mean(square(h));
}

void report(const Runtime& runtime, const char* when) {
  std::printf("%-38s %9s held\n", when, format_bytes(runtime.memory().used).c_str());
}

}  // namespace

int main() {
  try {
    Runtime runtime({.memory = "64MiB", .threads = 1});
    const Variable w(fill({256, 256}, 0.01), {.name = "w"});
    const Tensor x = fill({1024, 256}, 1.0);
    report(runtime, "before");
    {
      GradientTape tape;
      const Tensor loss = deep(w, x);
      report(runtime, "recorded");
      w.assign_sub(scale(tape.gradient(loss, {w})[0], 0.1));
      report(runtime, "after gradient(), tape still in scope");
    }
    {
      GradientTape tape({.persistent = true});
      const Tensor loss = deep(w, x), same = square(loss);
      tape.gradient(loss, {w});
      tape.gradient(same, {w});
      report(runtime, "persistent, after two gradients");
      tape.reset();
      report(runtime, "after reset()");
    }
    {
      GradientTape tape;
      deep(w, x);
      report(runtime, "recorded, never asked");
    }
    report(runtime, "out of scope");
  } catch (const Error& error) {
    std::fprintf(stderr, "tape_release: %s\n", error.what());
    return error.exit_code();
  }
}
