#include "tests/places.h"

namespace pl::test {

std::string source_dir() { return PLIMSOLL_SOURCE_DIR; }

std::string golden(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

std::string binary() { return PLIMSOLL_BINARY; }

std::string tool(const std::string& name) { return std::string(PLIMSOLL_TEST_TOOLS) + "/" + name; }

std::string example(const std::string& name) { return std::string(PLIMSOLL_EXAMPLES) + "/" + name; }

}  // namespace pl::test
