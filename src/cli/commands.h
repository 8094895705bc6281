// The commands. Each returns the process's exit code or throws pl::Error.
#pragma once

#include "cli/options.h"

namespace pl {

int run_plan(const RunOptions& options);
int run_plan_graph(const RunOptions& options);  // plan --graph FILE
int run_train(const RunOptions& options);
int run_models(const ModelsOptions& options);
int run_bench(const BenchOptions& options);
int run_data(const DataOptions& options);
int run_calibrate(const CalibrateOptions& options);

// Parses, dispatches, and turns every error into a message on stderr and an exit code.
int run_command(const std::vector<std::string>& arguments);

}  // namespace pl
