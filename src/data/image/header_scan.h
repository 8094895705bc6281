// What decoding a training run's images takes, from their headers. Internal to the sources of
// images.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "data/image/image.h"

namespace pl {

inline constexpr int64_t kScanned = 20'000;  // images; more would take seconds

// The most that decoding one of `count` images takes, so that the bill is what is used and damage
// shows before the first step: `damaged` is told. `one(i)`: of image i, called `name(i)`; throws
// DataError. Of more than kScanned a bound serves.
inline Bytes scan_headers(int64_t count, const std::function<Bytes(int64_t)>& one,
                          const std::function<std::string(int64_t)>& name,
                          const std::function<void(int64_t, const DataError&)>& damaged) {
  constexpr Bytes kBound = 4 * kMiB;
  // Progressive JPEGs and interlaced PNGs are held whole: a plan has no room for any that a header
  // may speak of.
  constexpr Bytes kMost = 256 * kMiB;
  if (count > kScanned) return kBound;
  Bytes scratch = 0;
  for (int64_t i = 0; i < count; ++i) {
    try {
      const Bytes needed = one(i);
      if (needed > kMost)
        throw DataError("[image] " + name(i) + ": expected an image that can be decoded in " +
                        format_bytes(kMost) + ", received one that takes " + format_bytes(needed) +
                        "; save it without interlacing, or as a JPEG that is not progressive");
      scratch = std::max(scratch, needed);
    } catch (const DataError& error) {
      damaged(i, error);
    }
  }
  return scratch;
}

// The same of files, where those that are damaged do not count; 0: they are too many.
Bytes most_scratch(const ImageList& list, ImageSize size);

}  // namespace pl
