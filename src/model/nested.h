// A network used as a layer of another: its layers become the other's, under its name.
#pragma once

#include "model/network.h"

namespace pl {

// `values`: where its weights exist already, or null. `training`: the mode that it runs in whatever
// the outer model does.
LayerRef nested_layer(const std::string& name, const char* kind, Network network,
                      std::shared_ptr<const WeightValues> values,
                      std::optional<bool> training = {});

}  // namespace pl
