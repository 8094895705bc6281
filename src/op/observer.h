// OpObserver: sees every op that is applied on its thread, on values and on symbols. What gradient
// tapes are made of.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace pl {

class OpObserver {
 public:
  virtual void on_apply(const Op& op, const Tensors& in, const Attrs& attrs,
                        const Tensors& out) = 0;
  // A variable, known by its address, was read as `value`.
  virtual void on_read(const void* variable, const Tensor& value, bool trainable) = 0;
  virtual bool recording() const = 0;
  // The first operand of the op by which `value` was made, if it was this one and it remembers.
  virtual Tensor operand_of(const Tensor& /*value*/, std::string_view /*op*/) const { return {}; }

 protected:
  ~OpObserver() = default;
};

// Those of this thread, in the order in which they began. An observer may end before one that
// began later.
std::span<OpObserver* const> observing();
void begin_observing(OpObserver& observer);
void end_observing(OpObserver& observer);  // nothing happens to one that does not observe

}  // namespace pl
