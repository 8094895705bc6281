// What happens to damage that is found while files are opened and indexed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/error.h"

namespace pl {

// stop: it is raised. skip: what is damaged is left out, named and counted.
enum class OnError : uint8_t { stop, skip };

// Elements that cannot be read, by number, and why: each has its place, as one that turns out to be
// damaged when it is read.
class DamagedPlaces {
 public:
  void add(int64_t place, std::string why) { places_.emplace(place, std::move(why)); }
  // Throws DataError for one of them.
  void raise(int64_t place) const {
    if (const auto at = places_.find(place); at != places_.end()) throw DataError(at->second);
  }
  const std::map<int64_t, std::string>& all() const { return places_; }
  int64_t bytes() const {
    int64_t sum = 0;
    for (const auto& [place, why] : places_) sum += 64 + static_cast<int64_t>(why.capacity());
    return sum;
  }

 private:
  std::map<int64_t, std::string> places_;
};

}  // namespace pl
