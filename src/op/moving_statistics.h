// moving_statistics: the moving averages of batch normalisation, updated once in a training step.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kMovingStatistics;

struct MovingStatistics {
  Tensor mean, variance;  // their next versions
};
// moving * momentum + batch * (1 - momentum), for both; all of one shape.
MovingStatistics moving_statistics(const Tensor& moving_mean, const Tensor& moving_variance,
                                   const Tensor& mean, const Tensor& variance, double momentum);

namespace cpu {
std::unique_ptr<Kernel> moving_statistics_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
