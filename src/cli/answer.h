// What `plan` and `train` say of a plan: its report and, with --what-if, the plans beside it.
#pragma once

#include <optional>

#include "base/json.h"
#include "cli/run_setup.h"
#include "train/what_if.h"

namespace pl {

class PlanAnswer {
 public:
  // Plans what --what-if asks for.
  PlanAnswer(const RunOptions& options, const RunSetup& setup);
  Json json() const;
  std::string text(bool color) const;

 private:
  const PlanReport& report_;
  std::optional<WhatIfReport> others_;
};

}  // namespace pl
