// Weights between a model's variables and safetensors files, without a copy in between.
#pragma once

#include <string>

#include "data/safetensors.h"
#include "train/variables.h"

namespace pl {

// Throws DataError unless the file holds every parameter of the layout with its shape and dtype,
// and nothing else, unless `others` says that there may be. Called before memory is reserved.
void check_weights(const SafetensorsFile& file, const VariableLayout& layout, bool others = false);
void load_weights(const SafetensorsFile& file, Variables& variables);
// Of the layout's variables, or its parameters alone, as the file has them: Variables::hash() of a
// session that has loaded it. The file has been checked to hold them.
uint64_t hash_of(const SafetensorsFile& file, const VariableLayout& layout, bool weights_only);
void save_weights(const std::string& path, const Variables& variables);

}  // namespace pl
