// Tests on a device that is not the host, under the name kName. Its kernels are the processor's,
// and so are the bits.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "backend/devices.h"
#include "plimsoll.h"
#include "tests/fake_device.h"

namespace pl::test {

inline constexpr const char* kName = "cuda:40";

class OnDevice : public ::testing::Test {
 protected:
  OnDevice()
      : space_(Devices::current()->share(device_from_name(kName), std::make_shared<FakeDevice>())) {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  }
  Bytes held() const { return space_->backend().held(); }
  std::shared_ptr<DeviceSpace> space_;
};

inline Tensor spread_labels(Dim count, int64_t below) {
  Tensor y({Dtype::int32, {count}});
  for (int64_t i = 0; i < count; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7919 % below);
  return y;
}

}  // namespace pl::test
