// Keras's table of layers, with what the plan says each takes of memory.
#pragma once

#include <string>

#include "execute/prepared.h"
#include "train/budget.h"
#include "train/step_trace.h"

namespace pl {

// Without a plan (null: not compiled) the table ends with the parameters. The plan's first
// signature is a training step.
std::string summarize(const std::string& name, const Network& network, const Compiled* compiled,
                      const SessionPlan* plan, const PlanReport& report);

// Bytes of activations that a layer (by its path; "input" and "loss" included) holds from the
// forward pass until the backward pass, by path.
std::vector<std::pair<std::string, Bytes>> kept_for_backward(const Prepared& prepared);

}  // namespace pl
