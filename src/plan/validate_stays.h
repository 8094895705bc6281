// The validator's reading of stays in host memory: which bytes of the arena copies still read or
// already write while steps run, and what lies where on the host. Shares no code with the planner.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace pl {

class StaysReplay {
 public:
  using Fail =
      std::function<void(bool holds, const std::string& what)>;  // throws where it does not
  StaysReplay(const Graph& graph, const Plan& plan, Fail require);

  // That steps and places are such as can be. `inside`: host memory that bodies of loops have.
  void check_shape(Bytes inside) const;

  // What a copy does to the arena just before a step runs.
  struct Event {
    enum class What : uint8_t { arriving, arrived } what;
    const HostStay* stay;
  };
  std::vector<Event> before(int step);  // copies of values that leave have ended where they should
  // A copy out begins behind the step: the value must be there.
  std::vector<const HostStay*> behind(int step) const;
  void sent(const HostStay& stay);

  // Bytes that a step writes: none of them may be on their way.
  void written(ByteOffset begin, ByteOffset end) const;
  bool on_the_way() const { return !moving_.empty(); }

 private:
  Bytes bytes_of(const HostStay& stay) const;

  struct Moving {
    const HostStay* stay;
    bool out;
  };
  const Graph& graph_;
  const Plan& plan_;
  Fail require_;
  std::vector<Moving> moving_;
  std::vector<const HostStay*> on_host_;  // whole, or on the way there
};

}  // namespace pl
