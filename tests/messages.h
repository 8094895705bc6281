// What the engine says about a mistake.
#pragma once

#include <string>

#include "base/error.h"

namespace pl::test {

template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

}  // namespace pl::test
