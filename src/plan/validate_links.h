// The validator's reading of how a loop and its body are linked: the body sees what lies outside
// exactly where the loop has it, and the trips' parts of a value make up the whole.
#pragma once

#include <functional>
#include <string>

#include "plan/plan.h"

namespace pl {

// `step` runs a loop of `graph` with the plan `body`. `require` throws where something does not
// hold.
void validate_links(const Graph& graph, const Step& step, const Plan& body,
                    const std::function<void(bool holds, const std::string& what)>& require);

}  // namespace pl
