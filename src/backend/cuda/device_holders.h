// What processes hold of one GPU's memory, as the driver's NVML lists them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace pl {

struct DeviceHolder {
  unsigned process = 0;
  Bytes bytes = 0;
};

Bytes held_by_others(const std::vector<DeviceHolder>& holders, unsigned own);
// Process `id` among those that are listed: in a container it may have another number there, and is
// then the one that came with its context. 0: unknown.
unsigned own_process(const std::vector<DeviceHolder>& before,
                     const std::vector<DeviceHolder>& after, unsigned id);

// The one process that holds so many bytes more. 0: none, or several.
unsigned grown_by(const std::vector<DeviceHolder>& before, const std::vector<DeviceHolder>& after,
                  Bytes bytes);

class DeviceHolders {
 public:
  // Before this process has a context on CUDA device `index`. NVML is opened here and asked for
  // figures from then on; where it is missing nobody else holds anything.
  explicit DeviceHolders(int index);
  ~DeviceHolders();
  void find_own();       // it has one now
  Bytes others() const;  // held by others, who come and go while this process lives
  // " (process 7 holds 2.0 GiB)", or that nobody can be asked; empty: nobody.
  std::string others_text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pl
