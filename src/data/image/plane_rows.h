// The inner loops of resizing planes. Samples are int16: (byte - 128) * 256.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pl {

// Output rows are made so many at a time.
inline constexpr size_t kPlaneRows = 16;
// Widths of rows of samples are multiples of this, so that vectors never pass their end.
inline constexpr size_t kPlaneLanes = 16;

// One output row: the input rows it is made of and their weights, in 2^-15.
struct MixedRow {
  const int16_t* const* rows;
  const int16_t* weights;
  int32_t count;
};

// Columns of kPlaneRows samples, one for each sample across, and what each output takes of them.
struct MixedColumns {
  const int16_t* columns;
  struct Span {
    int32_t first, count, at;
  };
  const Span* spans;  // of each output
  const int16_t* weights;
};

// to (count) = samples of bytes (count); both may be written and read up to kPlaneLanes further.
void widen_row(const uint8_t* bytes, size_t count, int16_t* to);
// columns (width, kPlaneRows) of kPlaneRows mixed rows (width).
void mix_rows(const MixedRow* rows, size_t width, int16_t* columns);
// to (rows, outputs, 3): RGB of Y, Cb and Cr, or of Y alone, across; rows <= kPlaneRows.
void squeeze_columns(const MixedColumns* planes, bool grey, size_t outputs, size_t rows,
                     uint8_t* to);

}  // namespace pl
