// What callbacks that watch a figure share: whether a value is better than another, by Keras's
// rules. Internal to callbacks_*.cc.
#pragma once

#include <optional>
#include <string>

#include "train/callback.h"

namespace pl {

class Monitor {
 public:
  Monitor(const char* callback, std::string monitor, const std::string& mode, double min_delta);

  const std::string& name() const { return monitor_; }
  // The watched figure; absent with a warning on stderr, once.
  std::optional<double> value(const Logs& logs);
  // Against none, everything is better.
  bool better(double value, const std::optional<double>& than) const;

 private:
  const char* callback_;
  std::string monitor_;
  double min_delta_;
  bool greater_ = false, warned_ = false;
};

Json optional_json(const std::optional<double>& value);
std::optional<double> optional_from(const Json& json, const std::string& what);

}  // namespace pl
