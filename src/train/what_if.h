// What training would take if a layer were another: each answer is a plan, none is an estimate.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace pl {

struct Compiled;
class Network;
struct SessionPlan;

struct WhatIfCase {
  std::string layer, kind;  // "conv2d", "Conv2D"
  std::string change;       // "activation", "dtype", "size"
  std::string to;           // "computed again", "bfloat16", "16 of 32"
  // Nothing: the layer cannot be changed like that, or others do not fit to it then.
  std::optional<Bytes> arena, process;
  double ms = 0;
};

struct WhatIfReport {
  Bytes arena = 0, process = 0;  // as it is
  double ms = 0;
  int64_t batch = 0;
  std::vector<WhatIfCase> cases;  // layers in the order of their calls, changes as asked for
};

using WhatIfPlanner = std::function<SessionPlan(const Network&, const Compiled&)>;

// Throws UserError for changes other than "activation", "dtype" and "size".
WhatIfReport what_if(const Network& network, const Compiled& compiled,
                     const std::vector<std::string>& changes, const WhatIfPlanner& plan);

// A table: the arena with each change, less the arena as it is.
std::string to_text(const WhatIfReport& report);

}  // namespace pl
