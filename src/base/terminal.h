// Where text for people goes, and whether it may be coloured.
#pragma once

#include <cstdio>

namespace pl {

// Text for people goes to stdout on a terminal, else to stderr, so that stdout stays free for JSON.
std::FILE* human_stream();
bool is_terminal(std::FILE* stream);
bool wants_color(std::FILE* stream);  // a terminal, and NO_COLOR is not set

}  // namespace pl
