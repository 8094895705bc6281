// What a plan says, for people (a table) and for programs (the JSON object of `plimsoll plan`).
#pragma once

#include <string>

#include "base/json.h"
#include "train/budget.h"

namespace pl {

Json to_json(const PlanReport& report);
std::string to_text(const PlanReport& report, bool color = false);

}  // namespace pl
