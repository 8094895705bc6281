// Pool: every choice that was scored and that no other beats in both bytes and time.
#pragma once

#include "plan/search/flat.h"

namespace pl {

struct Choice {
  std::vector<Drop> drops;  // sorted by_place, unique
  Score score;
};

class Pool {
 public:
  // Keeps a copy if nothing in the pool is as good in both; drops what it beats.
  bool offer(const Choice& choice);
  const std::vector<Choice>& entries() const { return entries_; }  // peak descending, ms ascending
  size_t entered() const { return entered_; }  // how often offer() answered true

 private:
  size_t entered_ = 0;
  std::vector<Choice> entries_;
};

}  // namespace pl
