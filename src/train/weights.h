// Weights between a session's arena and safetensors files, without a copy in between.
#pragma once

#include <string>

#include "data/safetensors.h"
#include "train/session.h"

namespace pl {

// Throws DataError unless the file holds every parameter of the layout with its shape and dtype,
// and nothing else. Called before memory is reserved.
void check_weights(const SafetensorsFile& file, const VariableLayout& layout);
void load_weights(const SafetensorsFile& file, Session& session);
void save_weights(const std::string& path, const Session& session);

}  // namespace pl
