// What the host knows of a batch beside its samples, and what a step tells it.
#pragma once

#include "train/session.h"

namespace pl {

// Writes the step's HostFacts from the targets and weights that were just read; `first` is the
// input of the first one.
void write_facts(Session& session, size_t signature, size_t first);

// The numbers of a kept value, float32 or float64, as doubles.
class KeptNumbers {
 public:
  KeptNumbers(const Session& session, size_t signature, size_t i);
  class Iterator {
   public:
    Iterator(const KeptNumbers& numbers, int64_t at) : numbers_(numbers), at_(at) {}
    double operator*() const { return numbers_[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const KeptNumbers& numbers_;
    int64_t at_;
  };
  double operator[](int64_t i) const {
    return wide_ ? static_cast<const double*>(data_)[i]
                 : static_cast<double>(static_cast<const float*>(data_)[i]);
  }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, count_}; }

 private:
  const void* data_;
  bool wide_;
  int64_t count_;
};

}  // namespace pl
