#include "base/error.h"

namespace pl {
namespace {

thread_local const char* current_word = nullptr;

// "[stage] ..." as "[word] ...", where a word is in scope that the message does not name yet.
std::string under_word(const std::string& message) {
  if (!current_word || !message.starts_with('[')) return message;
  const std::string word = "[" + std::string(current_word) + "]";
  const size_t end = message.find(']');
  if (end == std::string::npos || message.find(word) != std::string::npos) return message;
  return word + message.substr(end + 1);
}

}  // namespace

WordScope::WordScope(const char* word) : outermost_(!current_word) {
  if (outermost_) current_word = word;
}
WordScope::~WordScope() {
  if (outermost_) current_word = nullptr;
}

UserError::UserError(const std::string& message) : Error(under_word(message), 2) {}

void check(bool holds, const char* what, std::source_location where) {
  if (holds) return;
  throw InternalError("[internal] " + std::string(where.file_name()) + ":" +
                      std::to_string(where.line()) + ": " + what +
                      "; this is a defect of the engine, please report it");
}

}  // namespace pl
