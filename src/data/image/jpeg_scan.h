// The scan of a plain (baseline) JPEG read for the mean of each block alone, which is the picture
// at an eighth of its size. All other coefficients are only passed over, several at a time, which
// is several times as fast as decoding them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace pl {

// A Huffman table as files have it: how many codes of each length, and their symbols in order.
struct HuffmanCodes {
  std::array<uint8_t, 17> counts{};  // [0] is not used
  std::array<uint8_t, 256> symbols{};
};

struct ScanComponent {
  int64_t across = 1, down = 1;  // blocks in one unit
  HuffmanCodes dc, ac;
  int32_t step = 1;  // of the mean, in the file's quantisation
};

struct ScanShape {
  int64_t units_across = 0, units_down = 0;
  int64_t restart_interval = 0;  // units; 0: none
  std::vector<ScanComponent> components;
};

// More of the file: up to `room` bytes, which came; 0 at its end.
using ScanInput = std::function<size_t(uint8_t* to, size_t room)>;
// Rows of one component's means, (rows, stride), for each row of units from the top; component by
// component. 16 bytes behind them can be read.
using ScanRows =
    std::function<void(size_t component, const uint8_t* samples, int64_t rows, int64_t stride)>;

struct ScanDamage {
  const char* what;
};
// `begin`: what was already read of the file behind the scan's header. Throws ScanDamage.
void scan_means(const ScanShape& shape, std::span<const uint8_t> begin, const ScanInput& more,
                const ScanRows& rows);
Bytes scan_means_bytes(const ScanShape& shape);  // that it holds at most

}  // namespace pl
