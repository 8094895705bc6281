// JPEG through libjpeg-turbo. The file is read in pieces; rows go into the resize as they come. The
// DCT is scaled by 1/8, 1/4 or 1/2 where that still covers the target, which saves most of the time
// of large photographs. What becomes smaller is resized as planes of luma and colour, at the sizes
// in which they are stored; what does not is what the library makes of it.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"
#include "data/image/codecs.h"
#include "data/image/jpeg_decompress.h"
#include "data/image/jpeg_scan.h"
#include "data/image/planes.h"

namespace pl {
namespace {

void check_kind(const ImageInput& file, const jpeg_decompress_struct& info) {
  check_pixels(file, info.image_height, info.image_width);
  const auto kinds = {JCS_GRAYSCALE, JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};
  if (std::find(kinds.begin(), kinds.end(), info.jpeg_color_space) == kinds.end())
    refuse_image(file, "expected grey, YCbCr, RGB or CMYK, received " +
                           std::to_string(info.num_components) + " components of another kind");
}

bool is_ink(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

// Four bytes a pixel, whatever it is.
void choose_colors(jpeg_decompress_struct& info) {
  info.out_color_space = is_ink(info) ? JCS_CMYK : JCS_EXT_RGBX;
}

// Inks become colours as Pillow has it. Adobe's programs, which write nearly all such files, store
// the light that is left instead of the ink.
void inks_to_colors(const jpeg_decompress_struct& info, uint8_t* row, int64_t width) {
  if (!is_ink(info)) return;
  const uint32_t flip = info.saw_Adobe_marker ? 0 : 255;
  for (uint8_t* pixel = row; pixel < row + 4 * width; pixel += 4) {
    const uint32_t light = pixel[3] ^ flip;
    for (int c = 0; c < 3; ++c) {
      const uint32_t ink = 255 - (pixel[c] ^ flip), product = ink * light + 128;
      pixel[c] = static_cast<uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
  }
}

// What libjpeg holds: rows of blocks of each component, and all of them when they come in several
// scans.
Bytes library_bytes(const jpeg_decompress_struct& info) {
  const auto width = static_cast<Bytes>(info.image_width),
             height = static_cast<Bytes>(info.image_height);
  Bytes bytes = 96 * kKiB + width * info.num_components * 72;
  if (info.progressive_mode || info.buffered_image || info.comps_in_scan < info.num_components)
    for (int c = 0; c < info.num_components; ++c) {
      const jpeg_component_info& part = info.comp_info[c];
      const Bytes across = (width * part.h_samp_factor / info.max_h_samp_factor + 16) / 8 + 2,
                  down = (height * part.v_samp_factor / info.max_v_samp_factor + 16) / 8 + 2;
      bytes += across * down * static_cast<Bytes>(sizeof(JBLOCK));
    }
  return bytes;
}

// The smallest of 1/8, 2/8, 4/8 that still covers the target; others are slower than none.
unsigned scale_for(int64_t height, int64_t width, ImageSize wanted) {
  for (const unsigned eighths : {1u, 2u, 4u})
    if (height * eighths >= wanted.height * 8 && width * eighths >= wanted.width * 8)
      return eighths;
  return 8;
}

}  // namespace

ImageSize jpeg_size(const ImageInput& file) {
  Decompress decompress(file);
  check_kind(file, decompress.info());
  return {decompress.info().image_height, decompress.info().image_width};
}

namespace {

// Settles the scale; the size of what comes out.
ImageSize begin_scaled(Decompress& decompress, ImageSize wanted) {
  jpeg_decompress_struct& info = decompress.info();
  info.scale_num = scale_for(info.image_height, info.image_width, wanted);
  info.scale_denom = 8;
  choose_colors(info);
  decompress.run([&] { jpeg_calc_output_dimensions(&info); });
  return {info.output_height, info.output_width};
}

// Above this the rows that many outputs need at once are too many, and sums are held instead.
constexpr Bytes kMostPlanes = 1 * kMiB;

// Samples across and down that a block of 8 x 8 becomes. Versions of the library name it
// differently.
template <class Part>
int64_t block_size(const Part& part) {
  if constexpr (requires { part.DCT_scaled_size; })
    return part.DCT_scaled_size;
  else
    return part.DCT_v_scaled_size;
}

int64_t block_rows(const jpeg_component_info& part) {
  return part.v_samp_factor * block_size(part);
}

std::vector<PlaneShape> plane_shapes(const jpeg_decompress_struct& info) {
  std::vector<PlaneShape> shapes;
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& part = info.comp_info[c];
    const auto size = static_cast<double>(block_size(part)) / 8;
    shapes.push_back(
        {.height = part.downsampled_height,
         .width = part.downsampled_width,
         .rows = info.image_height * size * part.v_samp_factor / info.max_v_samp_factor,
         .columns = info.image_width * size * part.h_samp_factor / info.max_h_samp_factor,
         .at_once = block_rows(part)});
  }
  return shapes;
}

// Whole blocks, and what vectors read behind them.
int64_t raw_stride(const PlaneShape& shape) { return (shape.width + 7) / 8 * 8 + 32; }

HuffmanCodes codes_of(const JHUFF_TBL& table) {
  HuffmanCodes codes;
  std::copy(std::begin(table.bits), std::end(table.bits), codes.counts.begin());
  std::copy(std::begin(table.huffval), std::end(table.huffval), codes.symbols.begin());
  return codes;
}

// The scan where an eighth of the size is wanted of a plain file; all else is the library's.
std::optional<ScanShape> means_shape(const jpeg_decompress_struct& info) {
  if (info.scale_num != 1 || info.progressive_mode || info.arith_code || info.data_precision != 8 ||
      info.comps_in_scan != info.num_components)
    return {};
  const bool one = info.num_components == 1;  // its blocks are the units, whatever the factors
  ScanShape shape;
  const auto units = [](JDIMENSION size, int factor) {
    return (static_cast<int64_t>(size) + 8 * factor - 1) / (8 * factor);
  };
  shape.units_across = units(info.image_width, one ? 1 : info.max_h_samp_factor);
  shape.units_down = units(info.image_height, one ? 1 : info.max_v_samp_factor);
  shape.restart_interval = info.restart_interval;
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& part = *info.cur_comp_info[c];
    // Their numbers are as the file has them; the library looks at them later.
    const auto within = [](int number, int count) { return number >= 0 && number < count; };
    if (!within(part.dc_tbl_no, NUM_HUFF_TBLS) || !within(part.ac_tbl_no, NUM_HUFF_TBLS) ||
        !within(part.quant_tbl_no, NUM_QUANT_TBLS) || part.component_index != c)
      return {};
    const JHUFF_TBL *dc = info.dc_huff_tbl_ptrs[part.dc_tbl_no],
                    *ac = info.ac_huff_tbl_ptrs[part.ac_tbl_no];
    const JQUANT_TBL* steps = info.quant_tbl_ptrs[part.quant_tbl_no];
    if (!dc || !ac || !steps) return {};
    shape.components.push_back({one ? 1 : part.h_samp_factor, one ? 1 : part.v_samp_factor,
                                codes_of(*dc), codes_of(*ac), steps->quantval[0]});
  }
  return shape;
}

// As plane_shapes, of one sample for each block.
std::vector<PlaneShape> means_planes(const jpeg_decompress_struct& info, const ScanShape& scan) {
  std::vector<PlaneShape> shapes;
  for (const ScanComponent& part : scan.components) {
    const bool one = scan.components.size() == 1;
    const double rows = info.image_height * static_cast<double>(part.down) /
                        (8 * (one ? 1 : info.max_v_samp_factor)),
                 columns = info.image_width * static_cast<double>(part.across) /
                           (8 * (one ? 1 : info.max_h_samp_factor));
    shapes.push_back({static_cast<int64_t>(std::ceil(rows)),
                      static_cast<int64_t>(std::ceil(columns)), rows, columns, part.down});
  }
  return shapes;
}

// Means of colours that are stored at half size are half as many: nearly as many as the target's
// pixels are wanted, or it would look coarser than what the library makes.
bool fine_enough(const std::vector<PlaneShape>& planes, ImageSize wanted) {
  return !planes.empty() &&
         std::all_of(planes.begin(), planes.end(), [wanted](const PlaneShape& plane) {
           return 5 * plane.height >= 4 * wanted.height && 5 * plane.width >= 4 * wanted.width;
         });
}

// How an image is decoded, and what that takes.
struct Way {
  std::optional<ScanShape> means;
  std::vector<PlaneShape> planes;  // none: rows of pixels
  Bytes scratch = 0;
};

Way way_of(const ImageInput& file, const jpeg_decompress_struct& info, ImageSize in,
           const DecodeOptions& options) {
  Way way;
  way.scratch = library_bytes(info) + Decompress::piece_of(file);
  if (info.jpeg_color_space != JCS_RGB && !is_ink(info) &&
      options.size.height < info.image_height && options.size.width < info.image_width) {
    way.means = means_shape(info);
    if (way.means) way.planes = means_planes(info, *way.means);
    if (!fine_enough(way.planes, options.size)) {
      way.means.reset();
      way.planes = plane_shapes(info);
    }
  }
  const Bytes bytes = PlaneResizer::bytes(way.planes, options.size, options.antialias);
  if (way.planes.empty() || bytes > kMostPlanes) {
    way.planes.clear();
    way.means.reset();
    way.scratch += in.width * 4 + RowResizer::bytes(in, options.size);
    return way;
  }
  way.scratch += bytes;
  if (way.means)
    way.scratch += scan_means_bytes(*way.means);
  else
    for (const PlaneShape& shape : way.planes)
      way.scratch += shape.at_once * (raw_stride(shape) + 8);
  return way;
}

// A part of the image: what is above it is skipped, what is beside it never leaves the library. Its
// edges are whole pixels of the scaled image.
void decode_region(const ImageInput& file, Decompress& decompress, const DecodeOptions& options,
                   uint8_t* to) {
  jpeg_decompress_struct& info = decompress.info();
  const ImageRegion part = region_of(file, {info.image_height, info.image_width}, options);
  const unsigned eighths = scale_for(part.size.height, part.size.width, options.size);
  info.scale_num = eighths;
  info.scale_denom = 8;
  choose_colors(info);
  decompress.run([&] { jpeg_calc_output_dimensions(&info); });
  struct Range {
    int64_t begin, end;
  };
  const auto scaled = [&](int64_t at, int64_t size, JDIMENSION all) {
    return Range{at * eighths / 8, std::min<int64_t>(((at + size) * eighths + 7) / 8, all)};
  };
  const Range down = scaled(part.top, part.size.height, info.output_height),
              across = scaled(part.left, part.size.width, info.output_width);
  const ImageSize in{down.end - down.begin, across.end - across.begin};
  const Bytes needed = library_bytes(info) + Decompress::piece_of(file) +
                       static_cast<Bytes>(info.output_width) * 4 +
                       RowResizer::bytes(in, options.size);
  check_scratch(file, needed, options);
  const HeapCharge charge(needed, "[image] " + file.path());
  RowResizer resizer(in, options.size, options.antialias, to);
  std::vector<uint8_t> row(static_cast<size_t>(info.output_width) * 4);
  // A pixel more on each side, from which colours are interpolated. The library begins at a block.
  auto first = static_cast<JDIMENSION>(std::max<int64_t>(0, across.begin - 1));
  auto width =
      static_cast<JDIMENSION>(std::min<int64_t>(across.end + 1, info.output_width)) - first;
  decompress.run([&] { jpeg_start_decompress(&info); });
  decompress.run([&] { jpeg_crop_scanline(&info, &first, &width); });
  if (down.begin > 0)
    decompress.run([&] { jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(down.begin)); });
  JSAMPROW rows[1] = {row.data()};
  for (int64_t y = down.begin; y < down.end; ++y) {
    decompress.run([&] { jpeg_read_scanlines(&info, rows, 1); });
    inks_to_colors(info, row.data(), width);
    resizer.add_row(row.data() + (across.begin - first) * 4);
  }
}

void decode_rows(Decompress& decompress, ImageSize in, const DecodeOptions& options, uint8_t* to) {
  jpeg_decompress_struct& info = decompress.info();
  RowResizer resizer(in, options.size, options.antialias, to);
  std::vector<uint8_t> row(static_cast<size_t>(in.width * 4));
  decompress.run([&] { jpeg_start_decompress(&info); });
  JSAMPROW rows[1] = {row.data()};
  while (info.output_scanline < info.output_height) {
    decompress.run([&] { jpeg_read_scanlines(&info, rows, 1); });
    inks_to_colors(info, row.data(), in.width);
    resizer.add_row(row.data());
  }
}

void decode_planes(Decompress& decompress, const std::vector<PlaneShape>& shapes,
                   PlaneResizer& resizer) {
  jpeg_decompress_struct& info = decompress.info();
  std::vector<std::vector<uint8_t>> samples(shapes.size());
  std::vector<std::vector<JSAMPROW>> rows(shapes.size());
  JSAMPARRAY planes[3] = {};
  for (size_t p = 0; p < shapes.size(); ++p) {
    const auto stride = static_cast<size_t>(raw_stride(shapes[p]));
    samples[p].resize(static_cast<size_t>(shapes[p].at_once) * stride);
    for (size_t r = 0; r < static_cast<size_t>(shapes[p].at_once); ++r)
      rows[p].push_back(samples[p].data() + r * stride);
    planes[p] = rows[p].data();
  }
  info.raw_data_out = TRUE;
  decompress.run([&] { jpeg_start_decompress(&info); });
  // There is room for a row of blocks, which an image may be less high than.
  const auto room = static_cast<JDIMENSION>(info.max_v_samp_factor * DCTSIZE);
  while (info.output_scanline < info.output_height) {
    decompress.run([&] { jpeg_read_raw_data(&info, planes, room); });
    for (size_t p = 0; p < shapes.size(); ++p)
      for (const JSAMPROW row : rows[p]) resizer.add_row(p, row);
    resizer.advance();
  }
}

void decode_means(Decompress& decompress, const ScanShape& scan, PlaneResizer& resizer) {
  Bytes at = decompress.read_until();
  const auto more = [&](uint8_t* to, size_t room) {
    const Bytes got = decompress.file().read_some(to, static_cast<Bytes>(room), at);
    at += got;
    return static_cast<size_t>(got);
  };
  const auto take = [&](size_t plane, const uint8_t* samples, int64_t rows, int64_t stride) {
    for (int64_t r = 0; r < rows; ++r) resizer.add_row(plane, samples + r * stride);
    if (plane + 1 == scan.components.size()) resizer.advance();
  };
  try {
    scan_means(scan, decompress.unused(), more, take);
  } catch (const ScanDamage& damage) {
    refuse_image(decompress.file(), damage.what);
  }
}

}  // namespace

Bytes jpeg_scratch(const ImageInput& file, ImageSize size) {
  Decompress decompress(file);
  check_kind(file, decompress.info());
  const ImageSize in = begin_scaled(decompress, size);
  return way_of(file, decompress.info(), in, {.size = size}).scratch;
}

void decode_jpeg(const ImageInput& file, const DecodeOptions& options, uint8_t* to) {
  Decompress decompress(file);
  jpeg_decompress_struct& info = decompress.info();
  check_kind(file, info);
  if (options.region) return decode_region(file, decompress, options, to);
  const ImageSize in = begin_scaled(decompress, options.size);
  const Way way = way_of(file, info, in, options);
  check_scratch(file, way.scratch, options);
  const HeapCharge charge(way.scratch, "[image] " + file.path());
  // All pixels come; what follows them is of no interest.
  if (way.planes.empty()) {
    decode_rows(decompress, in, options, to);
    return;
  }
  PlaneResizer resizer(way.planes, options.size, options.antialias, to);
  if (way.means)
    decode_means(decompress, *way.means, resizer);
  else
    decode_planes(decompress, way.planes, resizer);
}

}  // namespace pl
