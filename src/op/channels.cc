#include "op/channels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace pl::cpu {

ChannelForm channel_form(const PrepareCall& call) {
  constexpr Dim kLanes = 16, kShortest = 64, kLongest = 1024, kMostTasks = 32;
  constexpr Dim kChunk = 8192, kLeastRows = 16;  // elements, rows
  const Dim channels = call.in[0].shape.back(), pixels = call.in[0].elements() / channels;
  Dim fold = kLanes / std::gcd(kLanes, channels);
  while (fold * channels < kShortest) fold *= 2;
  if (fold * channels > kLongest) fold = 1;
  const Dim period = fold * channels, rows = pixels / fold;
  const Dim chunk_rows = std::max(kLeastRows, kChunk / period);
  const Dim chunks = (rows + chunk_rows - 1) / chunk_rows;
  return {.pixels = pixels,
          .channels = channels,
          .fold = fold,
          .period = period,
          .rows = rows,
          .tail = (pixels - rows * fold) * channels,
          .chunk_rows = chunk_rows,
          .chunks = chunks,
          .tasks = std::clamp<Dim>(chunks, 1, kMostTasks),
          .threads = call.backend.threads()};
}

double clip_of(const Attrs& attrs) {
  return attrs.real("most", std::numeric_limits<double>::quiet_NaN());
}

void repeat(const ChannelForm& form, const float* values, float* row) {
  for (Dim k = 0; k < form.fold; ++k)
    std::memcpy(row + k * form.channels, values,
                static_cast<size_t>(form.channels) * sizeof(float));
}

void find_factors(const ChannelForm& form, const float* variance, const float* gamma,
                  double epsilon, float* row) {
  const float more = static_cast<float>(epsilon);
  for (Dim c = 0; c < form.channels; ++c)
    row[c] = gamma[c] * (1.0f / std::sqrt(variance[c] + more));
  for (Dim k = 1; k < form.fold; ++k)
    std::memcpy(row + k * form.channels, row, static_cast<size_t>(form.channels) * sizeof(float));
}

}  // namespace pl::cpu
