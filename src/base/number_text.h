// Numbers in messages: short, and never as a row of digits that nobody reads.
#pragma once

#include <string>

namespace pl {

std::string number_text(double value);  // "0.1", "1e+30", "nan": six digits at most

}  // namespace pl
