// Castagnoli's CRC-32, as TFRecord, TensorBoard and many storage formats use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace pl {

// Of `bytes` behind others whose CRC is `before`.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

// As a TFRecord stores it: a CRC of data that hold CRCs is a poor check without the mask.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace pl
