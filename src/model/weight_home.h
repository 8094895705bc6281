// WeightHome: the one variable that a weight of a layer is, however many models the layer is part
// of. It says who has the bytes now (docs/decisions/0021-shared-weights.md).
#pragma once

#include "model/layer.h"
#include "trace/variable.h"

namespace pl {

class WeightHome final : public WeightValues {
 public:
  WeightHome();
  // Throws UserError on weights of another dtype.
  const void* find(const Layer& layer, size_t index, Dtype dtype) const override;
  bool exists() const { return variable->keeper != nullptr; }
  // The bytes, which are the same there, are at another place from now on, in memory that `keeper`
  // keeps. Whoever read the variable before keeps what was read.
  // `space`: whose memory that is, where it is a device's.
  void move(std::shared_ptr<const void> keeper, std::function<void*()> place,
            std::shared_ptr<DeviceSpace> space = nullptr) const;
  void detach_readers() const;  // before its bytes change behind its back

  const std::shared_ptr<VariableState> variable;
};

// Layer::build, and a home for each of its weights.
Shape build_layer(Layer& layer, const std::vector<Shape>& in);

}  // namespace pl
