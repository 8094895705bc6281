// What library code sees of the function being traced: numbers that the host puts in before every
// call, such as a step's parameters.
#pragma once

#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace pl {

struct HostInput {
  const void* key;  // one input for each in a trace
  std::string name;
  Meta meta;
  std::function<void(void* to)> fill;     // before a call
  std::function<void()> after = nullptr;  // when it succeeded
};

class FunctionTrace {
 public:
  virtual Tensor host_input(const HostInput& input) = 0;
  static FunctionTrace* current();  // null outside of traces

 protected:
  FunctionTrace();
  ~FunctionTrace();

 private:
  FunctionTrace* previous_;
};

}  // namespace pl
