#include "base/number_text.h"

#include <cstdio>

namespace pl {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace pl
