// Lanes: which steps of a plan may run side by side. A plan is an order of steps over bytes that are
// used again and again; a step must come behind whoever wrote the bytes that it reads, and behind
// all who used the bytes that it writes. Nothing else binds it, so that while a step is recorded
// work that fills a device badly runs beside other work.
#pragma once

#include <map>
#include <vector>

#include "backend/device_work.h"

namespace pl {

class Lanes {
 public:
  explicit Lanes(DeviceWork& device);

  // A step: what it reads and writes, then take() puts the device on its lane and behind what it
  // depends on; end() when its work was asked for.
  void begin();
  void reads(const void* at, Bytes bytes);
  void writes(const void* at, Bytes bytes);
  void take();
  void end();

 private:
  using Place = const char*;
  // A run of bytes that the same steps used last.
  struct Segment {
    Place end;
    int writer = -1;           // step; -1: none yet
    std::vector<int> readers;  // since
  };
  struct Span {
    Place begin, end;
  };
  struct Step {
    int lane = 0, mark = 0;
    std::vector<int> behind;  // per lane: the last step there that this one comes behind; -1: none
  };

  std::map<Place, Segment>::iterator cut(Place at);
  template <class Body>
  void each_segment(const Span& span, const Body& body);
  int choose_lane(const std::vector<int>& latest) const;

  DeviceWork& device_;
  std::map<Place, Segment> segments_;
  std::vector<Step> steps_;
  std::vector<int> last_;  // per lane: its last step; -1: none
  std::vector<Span> reads_, writes_;
};

}  // namespace pl
