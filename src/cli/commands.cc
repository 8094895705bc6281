#include "cli/commands.h"

#include <cstdio>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/processor.h"

namespace pl {

namespace {

int dispatch(const CommandLine& line) {
  if (line.command == "plan") return run_plan(line.run);
  if (line.command == "train") return run_train(line.run);
  if (line.command == "models") return run_models(line.models);
  if (line.command == "bench") return run_bench(line.bench);
  if (line.command == "data") return run_data(line.data);
  if (line.command == "calibrate") return run_calibrate(line.calibrate);
  return 0;
}

// A thread that cannot be made is no defect.
int with_threads(const CommandLine& line) {
  try {
    return dispatch(line);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    throw BackendError(std::string("[threads] expected a further thread, the system made none") +
                       kThreadRemedy);
  }
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  try {
    limit_simd();  // a wrong word in the environment is refused by every command
    const int code = with_threads(parse_command_line(arguments));
    // An answer that nobody received is not an answer.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw BackendError("[output] stdout: the answer could not be written");
    return code;
  } catch (const Error& error) {
    std::fprintf(stderr, "plimsoll: %s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::fprintf(
        stderr,
        "plimsoll: [memory] the system refused memory outside the plan; free some and try again\n");
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plimsoll: [internal] %s; this is a defect, please report it\n",
                 error.what());
    return 1;
  }
}

}  // namespace pl
