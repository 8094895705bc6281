// A network used as a layer of another: its layers become the other's, under its name.
#pragma once

#include "model/network.h"

namespace pl {

// For shapes of one sample of its inputs: one that waits for them is built by the call.
using NetworkFor = std::function<const Network&(const std::vector<Shape>& in)>;

// `name`: empty, and it is named as layers are. `training`: the mode that it runs in whatever the
// outer model does.
LayerRef nested_layer(const std::string& name, const char* kind, NetworkFor network,
                      std::optional<bool> training = {});

}  // namespace pl
