// What compile()'s options say of each output. Internal to model*.cc.
#pragma once

#include <string>
#include <vector>

#include "train/model.h"
#include "train/step_trace.h"

namespace pl {

// `outputs`: their names. `custom`: there may be no loss. Throws UserError.
std::vector<Head> make_heads(const CompileOptions& options, const std::vector<std::string>& outputs,
                             bool custom);

}  // namespace pl
