// Ctrl-C (SIGINT) and SIGTERM as a wish to stop soon: while an object lives, the first one is noted
// and work can end at a good place; a second Ctrl-C leaves at once with exit code 130.
#pragma once

#include <string>

#include "base/error.h"

namespace pl {

// Work ended early and in good order. Exit code 128 + the signal's number.
class Interrupted : public Error {
 public:
  Interrupted(const std::string& message, int signal) : Error(message, 128 + signal) {}
};

class StopSignals {
 public:
  // Signals that somebody else handles or ignores are left to them.
  StopSignals();
  ~StopSignals();  // as it was before; what was noted is forgotten
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that was received since the oldest living object was made; 0: none.
  static int received();
  static const char* name(int signal);  // "SIGINT"
};

}  // namespace pl
