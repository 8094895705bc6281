// The engine's errors: a small typed set. Each carries the exit code that the command line ends
// with. Messages read "[stage] layer path: expected ..., received ...; remedy".
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace pl {

class Error : public std::runtime_error {
 public:
  Error(const std::string& message, int exit_code)
      : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The word that a user called. While it is in scope, a UserError of this thread names it in place
// of the stage inside it that refuses; of several the outermost counts.
class WordScope {
 public:
  explicit WordScope(const char* word);
  ~WordScope();
  WordScope(const WordScope&) = delete;
  WordScope& operator=(const WordScope&) = delete;

 private:
  bool outermost_;
};

// Wrong shape, dtype, option or name: the caller can mend it.
class UserError : public Error {
 public:
  explicit UserError(const std::string& message);
};

// A file or data set that is missing, truncated, hostile or of the wrong kind.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(message, 2) {}
};

// No plan fits the budget, or the system cannot give what the plan needs. Raised before step 1.
class DoesNotFit : public Error {
 public:
  explicit DoesNotFit(const std::string& message) : Error(message, 3) {}
};

// A library or the operating system failed, or training produced a non-finite number.
class BackendError : public Error {
 public:
  explicit BackendError(const std::string& message) : Error(message, 1) {}
};

// Behind a message about a thread that the system did not make.
inline constexpr const char* kThreadRemedy =
    "; lower --threads, or raise the limit on threads (ulimit -u, the control group's pids.max)";

// Our own mistake.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(message, 1) {}
};

// Throws InternalError with the place when `holds` is false. For our own invariants only, never for
// input.
void check(bool holds, const char* what,
           std::source_location where = std::source_location::current());

}  // namespace pl
