// Where the tests find what was built and what is stored. The paths are known to one source file
// alone, so that the others compile to the same bytes in every folder.

#pragma once

#include <string>

namespace pl::test {

std::string source_dir();                      // the root of the source tree
std::string golden(const std::string& name);   // tests/golden/NAME
std::string binary();                          // the command-line program
std::string tool(const std::string& name);     // one of tests/tools
std::string example(const std::string& name);  // one of examples

}  // namespace pl::test
