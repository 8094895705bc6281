// The built-in models, in one list.
#pragma once

#include <string>
#include <vector>

#include "model/network.h"

namespace pl {

struct BuiltinModel {
  const char* name;
  const char* summary;
  Shape input;      // of one sample, the default
  int64_t classes;  // labels are in [0, classes); of a model of tokens, its vocabulary
  Network (*build)(const Shape& input, int64_t classes);
  bool logits = false;  // it ends without a softmax
};

const std::vector<BuiltinModel>& builtin_models();
const BuiltinModel& find_builtin(
    const std::string& name);  // throws UserError listing what there is

}  // namespace pl
