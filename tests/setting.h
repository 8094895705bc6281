#pragma once

#include <cstdlib>
#include <string>

namespace pl::test {

// Sets a variable of the environment for the commands of one test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old, was_set_ = true;
    ::setenv(name, value, 1);
  }
  ~Setting() {
    if (was_set_)
      ::setenv(name_, old_.c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::string old_;
  bool was_set_ = false;
};

}  // namespace pl::test
