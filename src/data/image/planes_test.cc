// Resizing planes: against sums in double precision, and vectors against single numbers.
#include "data/image/planes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/image/plane_rows-inl.h"

namespace pl::planes_test {
namespace {

uint8_t pixel(size_t plane, int64_t y, int64_t x) {
  const auto key = static_cast<uint32_t>(y * 7919 + x * 31 + static_cast<int64_t>(plane) * 101);
  return static_cast<uint8_t>((key * 2654435761u) >> 23);
}

// What an output takes of `n` samples, of which `extent` are in the picture.
std::vector<double> weights(int64_t o, int64_t n, double extent, int64_t m, bool antialias) {
  const double scale = extent / static_cast<double>(m);
  const double reach = antialias ? std::max(1.0, scale) : 1.0;
  std::vector<double> list(static_cast<size_t>(n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += list[static_cast<size_t>(i)] = std::max(
        0.0, 1 - std::abs(static_cast<double>(i) + 0.5 - (static_cast<double>(o) + 0.5) * scale) /
                     reach);
  for (double& weight : list) weight /= sum;
  return list;
}

double resized(size_t plane, const PlaneShape& shape, ImageSize out, int64_t y, int64_t x,
               bool antialias) {
  const auto down = weights(y, shape.height, shape.rows, out.height, antialias);
  const auto across = weights(x, shape.width, shape.columns, out.width, antialias);
  double sum = 0;
  for (int64_t i = 0; i < shape.height; ++i)
    for (int64_t j = 0; j < shape.width; ++j)
      sum += down[static_cast<size_t>(i)] * across[static_cast<size_t>(j)] * pixel(plane, i, j);
  return sum;
}

std::vector<uint8_t> run(const std::vector<PlaneShape>& shapes, ImageSize out, bool antialias) {
  std::vector<uint8_t> to(static_cast<size_t>(out.height * out.width * 3) + 8, 77);
  PlaneResizer resizer(shapes, out, antialias, to.data());
  for (int64_t turn = 0; turn * shapes[0].at_once < shapes[0].height; ++turn) {
    for (size_t p = 0; p < shapes.size(); ++p)
      for (int64_t r = 0; r < shapes[p].at_once; ++r) {
        std::vector<uint8_t> row(static_cast<size_t>(shapes[p].width) + 32);
        for (int64_t x = 0; x < shapes[p].width; ++x)
          row[static_cast<size_t>(x)] = pixel(p, turn * shapes[p].at_once + r, x);
        resizer.add_row(p, row.data());
      }
    resizer.advance();
  }
  EXPECT_EQ(resizer.rows_done(), out.height);
  for (size_t i = to.size() - 8; i < to.size(); ++i) EXPECT_EQ(to[i], 77) << "behind the picture";
  to.resize(to.size() - 8);
  return to;
}

TEST(Planes, AreTheWeightedSumsThenColoured) {
  const PlaneShape luma{75, 101, 75, 101, 16}, half{38, 51, 37.5, 50.5, 8};
  for (const bool antialias : {true, false})
    for (const ImageSize out : {ImageSize{33, 47}, {16, 8}, {1, 1}, {17, 100}, {74, 24}}) {
      const std::vector<PlaneShape> shapes{luma, half, half};
      const std::vector<uint8_t> got = run(shapes, out, antialias);
      double worst = 0;
      for (int64_t y = 0; y < out.height; y += 3)
        for (int64_t x = 0; x < out.width; x += 5) {
          const double l = resized(0, shapes[0], out, y, x, antialias),
                       cb = resized(1, shapes[1], out, y, x, antialias) - 128,
                       cr = resized(2, shapes[2], out, y, x, antialias) - 128;
          const double wanted[3] = {l + 1.402 * cr, l - 0.344136 * cb - 0.714136 * cr,
                                    l + 1.772 * cb};
          for (int c = 0; c < 3; ++c)
            worst =
                std::max(worst, std::abs(std::clamp(wanted[c], 0.0, 255.0) -
                                         got[static_cast<size_t>((y * out.width + x) * 3 + c)]));
        }
      EXPECT_LE(worst, 0.6) << out.height << " x " << out.width;
    }
}

TEST(Planes, GreyIsOnePlane) {
  const std::vector<uint8_t> got = run({{40, 30, 40, 30, 8}}, {20, 10}, true);
  for (size_t i = 0; i < got.size(); i += 3)
    ASSERT_TRUE(got[i] == got[i + 1] && got[i] == got[i + 2]);
  EXPECT_NEAR(got[0], resized(0, {40, 30, 40, 30, 8}, {20, 10}, 0, 0, true), 0.6);
}

// Extremes of all samples, where saturation must be that of colours.
TEST(Planes, VectorsGiveTheBytesOfSingleNumbers) {
  constexpr size_t kWidth = 2 * kPlaneLanes, kOutputs = 13;
  const int values[] = {-32768, -20000, -256, 0, 3, 12345, 32512};
  std::vector<int16_t> rows[3];
  uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 16; };
  for (auto& row : rows)
    for (size_t x = 0; x < kWidth; ++x) row.push_back(static_cast<int16_t>(values[next() % 7]));
  const int16_t* all[3] = {rows[0].data(), rows[1].data(), rows[2].data()};
  const int16_t thirds[] = {10922, 10923, 10923}, one[] = {32767}, uneven[] = {32000, 768};
  std::vector<MixedRow> mixed;
  for (size_t r = 0; r < kPlaneRows; ++r)
    mixed.push_back(r % 3 == 0   ? MixedRow{all, thirds, 3}
                    : r % 3 == 1 ? MixedRow{all + r % 2, uneven, 2}
                                 : MixedRow{all + r % 3, one, 1});
  std::vector<int16_t> columns(kWidth * kPlaneRows), plain(columns.size());
  mix_rows(mixed.data(), kWidth, columns.data());
  planes::plain::mix_rows(mixed.data(), kWidth, plain.data());
  EXPECT_EQ(columns, plain);
  std::vector<MixedColumns::Span> spans;
  for (size_t o = 0; o < kOutputs; ++o)
    spans.push_back({static_cast<int32_t>(2 * o), o % 2 ? 3 : 1, o % 2 ? 0 : 3});
  const int16_t across[] = {10922, 10923, 10923, 32767};
  // Colours from other places of the same columns: all kinds of mixtures meet.
  MixedColumns of[3] = {{columns.data(), spans.data(), across},
                        {columns.data() + 3 * kPlaneRows, spans.data(), across},
                        {columns.data() + 5 * kPlaneRows, spans.data(), across}};
  for (const bool grey : {false, true})
    for (const size_t count : {size_t{16}, size_t{9}, size_t{1}}) {
      std::vector<uint8_t> a(kOutputs * kPlaneRows * 3, 5), b(a);
      squeeze_columns(of, grey, kOutputs, count, a.data());
      planes::plain::squeeze_columns(of, grey, kOutputs, count, b.data());
      EXPECT_EQ(a, b) << grey << count;
    }
}

}  // namespace
}  // namespace pl::planes_test
