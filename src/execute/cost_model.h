// The time of a call from its op's Cost: a roofline over a few rates of the machine. The rates are
// nominal, those of a typical server, or measured (calibrate.h).
#pragma once

#include <vector>

#include "op/op.h"
#include "plan/problem.h"

namespace pl {

inline constexpr double kPsPerMs = 1e9;  // files have picoseconds

// What a team of threads reaches. Between two points a rate is interpolated over the logarithm of
// the size; beyond the ends it stays.
struct Rates {
  struct Point {
    double size;        // of one call: FLOPs, or bytes read and written
    double per_second;  // FLOPs or bytes
    bool operator==(const Point&) const = default;
  };
  std::vector<Point> matmul;    // sizes ascending; never empty
  std::vector<Point> memory;    // likewise: in a core's cache, in the shared one, beyond it
  double call_ms = 0;           // of any call
  double team_ms = 0;           // more, of a call that is worth all threads
  double narrow = 1;            // times faster that a library multiplies 16-bit operands
  double narrow_attention = 1;  // the same of attention
  bool operator==(const Rates&) const = default;
};

// The same on every machine, so that what is decided with them is too.
Rates nominal_rates(int threads);
Rates nominal_rates(const Backend& backend);

double roofline_ms(const Rates& rates, const Op& op, const Cost& cost);

// Of optimiser state in host memory, which a device's kernels read and write once in a step.
double host_ms(Bytes bytes);
// Of values that leave for pinned host memory and come back, `room` bytes of it.
Problem::Copies device_copies(Bytes room);

// With nominal rates. The search makes its candidates with this: the pool, and with it the least
// memory, never change when a cost table learns.
double nominal_ms(const Op& op, const Cost& cost, int threads);
double nominal_ms(const Op& op, const Cost& cost, const Backend& backend);

}  // namespace pl
