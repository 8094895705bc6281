// Devices by name, as pl::device and compile() know them. One of a name is open at a time, shared
// by all who use it, so that what they ask of it is done in one order; the last one closes it.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "tensor/device_space.h"

namespace pl {

// "cpu", "cuda", "cuda:1", or as TensorFlow writes them: "/CPU:0", "GPU:0", "/device:GPU:0". Throws
// UserError for others. `option`: how the caller calls it, in that error.
Device device_from_name(const std::string& name, const char* option = "device");
std::string name_of(const Device& device);  // "cpu", "cuda:0"

// Null: the processor. Throws UserError where this machine has no such device.
std::shared_ptr<DeviceSpace> open_device(const Device& device, bool deterministic = true);

// Lets others find an open backend under a device's name for as long as the answer lives: tests of
// what is built on it.
std::shared_ptr<DeviceSpace> share_device(const Device& device, std::shared_ptr<Backend> backend,
                                          bool deterministic = true);

}  // namespace pl
