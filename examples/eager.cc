// Ops on values, a gradient, a second one, and what all of it holds: at most 64 MiB.
#include "plimsoll.h"

#include <cstdio>

int main() {
  using namespace pl;
  try {
    Runtime runtime({.memory = "64MiB"});
    const Variable x(fill({3}, 2.0), {.name = "x"});
    GradientTape outer;
    GradientTape inner;
    const Tensor y = reduce_sum(multiply(x, square(x)));  // x cubed
    const Tensor dy = inner.gradient(y, {x})[0];          // 3 * x * x
    const Tensor ddy = outer.gradient(dy, {x})[0];        // 6 * x
    std::printf("y %g, dy/dx %g, d2y/dx2 %g\n", y.data_as<float>()[0], dy.data_as<float>()[0],
                ddy.data_as<float>()[0]);

    x.assign_sub(scale(dy, 0.1));
    std::printf("x is %g now; %s of %s held\n", x.value().data_as<float>()[0],
                format_bytes(runtime.memory().used).c_str(),
                format_bytes(*runtime.memory().limit).c_str());
    const Tensor too_large = fill({64, 1024, 1024}, 0.0);
  } catch (const DoesNotFit& error) {
    std::printf("%s\n", error.what());  // nothing was lost
  }
}
