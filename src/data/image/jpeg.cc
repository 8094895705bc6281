// JPEG through libjpeg-turbo. The file is read in pieces; rows go into the resize as they come. The
// DCT is scaled by 1/8, 1/4 or 1/2 where that still covers the target, which saves most of the time
// of large photographs.
// jpeglib.h wants these to be known.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <memory>
#include <vector>

#include "base/error.h"
#include "data/image/codecs.h"

namespace pl {
namespace {

constexpr Bytes kPiece = 32 * kKiB;

struct Fault {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
  bool truncated;
};

// C code is left by longjmp: no exception may pass through it, and nothing with a destructor is
// made between setjmp and the calls.
[[noreturn]] void on_error(j_common_ptr info) {
  auto* fault = reinterpret_cast<Fault*>(info->err);
  info->err->format_message(info, fault->message);
  std::longjmp(fault->back, 1);
}

// A warning is damage that libjpeg would paper over with grey.
void on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

struct Reader {
  jpeg_source_mgr base;
  const ImageInput* file;
  Bytes at;
  JOCTET piece[kPiece];
};

void nothing(j_decompress_ptr) {}

boolean fill(j_decompress_ptr info) {
  auto* reader = reinterpret_cast<Reader*>(info->src);
  Bytes got = 0;
  bool failed = false;
  try {
    got = reader->file->read_some(reader->piece, kPiece, reader->at);
  } catch (...) {
    failed = true;
  }
  if (failed || got <= 0) {
    auto* fault = reinterpret_cast<Fault*>(info->err);
    fault->truncated = true;
    std::snprintf(fault->message, sizeof(fault->message), "the file ends in the middle");
    std::longjmp(fault->back, 1);
  }
  reader->at += got;
  reader->base.next_input_byte = reader->piece;
  reader->base.bytes_in_buffer = static_cast<size_t>(got);
  return TRUE;
}

void skip(j_decompress_ptr info, long count) {
  auto* reader = reinterpret_cast<Reader*>(info->src);
  if (count <= 0) return;
  const auto here = static_cast<long>(reader->base.bytes_in_buffer);
  if (count <= here) {
    reader->base.next_input_byte += count;
    reader->base.bytes_in_buffer -= static_cast<size_t>(count);
    return;
  }
  reader->at += count - here;
  reader->base.bytes_in_buffer = 0;
}

// A part of its own, so that it goes even when the header is damaged.
struct Info : jpeg_decompress_struct {
  Info() : jpeg_decompress_struct{} {}
  ~Info() {
    if (made) jpeg_destroy_decompress(this);
  }
  bool made = false;
};

// One decompression; what it holds goes with it.
class Decompress {
 public:
  explicit Decompress(const ImageInput& file) : file_(file), reader_(std::make_unique<Reader>()) {
    info_.err = jpeg_std_error(&fault_.base);  // kept by jpeg_create_decompress
    fault_.base.error_exit = on_error;
    fault_.base.emit_message = on_message;
    fault_.message[0] = 0;
    fault_.truncated = false;
    run([this] {
      jpeg_create_decompress(&info_);
      info_.made = true;
    });
    reader_->base = {};
    reader_->base.init_source = nothing;
    reader_->base.fill_input_buffer = fill;
    reader_->base.skip_input_data = skip;
    reader_->base.resync_to_restart = jpeg_resync_to_restart;
    reader_->base.term_source = nothing;
    reader_->file = &file;
    reader_->at = 0;
    info_.src = &reader_->base;
    run([this] { jpeg_read_header(&info_, TRUE); });
  }
  Decompress(const Decompress&) = delete;
  Decompress& operator=(const Decompress&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  // Calls of libjpeg; what goes wrong in them is thrown here.
  template <class Call>
  void run(const Call& call) {
    if (setjmp(fault_.back) == 0) {
      call();
      return;
    }
    refuse_image(file_, fault_.message);
  }

 private:
  const ImageInput& file_;
  std::unique_ptr<Reader> reader_;
  Fault fault_{};
  Info info_;
};

void check_kind(const ImageInput& file, const jpeg_decompress_struct& info) {
  check_pixels(file, info.image_height, info.image_width);
  const bool known = info.jpeg_color_space == JCS_GRAYSCALE || info.jpeg_color_space == JCS_YCbCr ||
                     info.jpeg_color_space == JCS_RGB;
  if (!known)
    refuse_image(file, "expected grey, YCbCr or RGB, received " +
                           std::to_string(info.num_components) + " components of another kind");
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
  info.out_color_space = JCS_EXT_RGBX;
  decompress.run([&] { jpeg_calc_output_dimensions(&info); });
  return {info.output_height, info.output_width};
}

Bytes scratch_of(const jpeg_decompress_struct& info, ImageSize in, ImageSize wanted) {
  return library_bytes(info) + kPiece + in.width * 4 + RowResizer::bytes(in, wanted);
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
  info.out_color_space = JCS_EXT_RGBX;
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
  const Bytes needed = library_bytes(info) + kPiece + static_cast<Bytes>(info.output_width) * 4 +
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
    resizer.add_row(row.data() + (across.begin - first) * 4);
  }
}

}  // namespace

Bytes jpeg_scratch(const ImageInput& file, ImageSize size) {
  Decompress decompress(file);
  check_kind(file, decompress.info());
  const ImageSize in = begin_scaled(decompress, size);
  return scratch_of(decompress.info(), in, size);
}

void decode_jpeg(const ImageInput& file, const DecodeOptions& options, uint8_t* to) {
  Decompress decompress(file);
  jpeg_decompress_struct& info = decompress.info();
  check_kind(file, info);
  if (options.region) return decode_region(file, decompress, options, to);
  const ImageSize in = begin_scaled(decompress, options.size);
  const Bytes needed = scratch_of(info, in, options.size);
  check_scratch(file, needed, options);
  const HeapCharge charge(needed, "[image] " + file.path());
  RowResizer resizer(in, options.size, options.antialias, to);
  std::vector<uint8_t> row(static_cast<size_t>(in.width * 4));
  decompress.run([&] { jpeg_start_decompress(&info); });
  JSAMPROW rows[1] = {row.data()};
  while (info.output_scanline < info.output_height) {
    decompress.run([&] { jpeg_read_scanlines(&info, rows, 1); });
    resizer.add_row(row.data());
  }
  // All pixels are there; what follows them is of no interest.
}

}  // namespace pl
