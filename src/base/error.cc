#include "base/error.h"

namespace pl {

void check(bool holds, const char* what, std::source_location where) {
  if (holds) return;
  throw InternalError("[internal] " + std::string(where.file_name()) + ":" +
                      std::to_string(where.line()) + ": " + what +
                      "; this is a defect of the engine, please report it");
}

}  // namespace pl
