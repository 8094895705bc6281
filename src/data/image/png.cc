// PNG through libpng: rows go into the resize as they come; interlaced images are held whole.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "data/image/codecs.h"
#include "data/inflate.h"

namespace pl {
namespace {

struct Fault {
  std::jmp_buf back;
  char message[128];
};

struct PngBytes {
  const ImageInput* file;
  Bytes at = 0;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* fault = static_cast<Fault*>(png_get_error_ptr(png));
  std::snprintf(fault->message, sizeof(fault->message), "%s", message);
  std::longjmp(fault->back, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* reader = static_cast<PngBytes*>(png_get_io_ptr(png));
  bool whole = false;
  try {
    whole = reader->file->read_some(to, static_cast<Bytes>(count), reader->at) ==
            static_cast<Bytes>(count);
  } catch (...) {
  }
  if (!whole) png_error(png, "the file ends in the middle");
  reader->at += static_cast<Bytes>(count);
}

class PngReading {
 public:
  explicit PngReading(const ImageInput& file) : file_(file), reader_{&file} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &fault_, on_error, on_warning);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
    if (!info_) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw BackendError("[image] " + file.path() + ": libpng cannot begin");
    }
    try {
      run([this] {
        png_set_user_limits(png_, 1'000'000, 1'000'000);
        png_set_chunk_cache_max(png_, 64);
        png_set_chunk_malloc_max(png_, 1 << 20);
        png_set_read_fn(png_, &reader_, read_bytes);
        png_read_info(png_, info_);
      });
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }
  ~PngReading() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReading(const PngReading&) = delete;
  PngReading& operator=(const PngReading&) = delete;

  png_structp png() { return png_; }
  png_infop info() { return info_; }
  ImageSize size() { return {png_get_image_height(png_, info_), png_get_image_width(png_, info_)}; }
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
  PngBytes reader_;
  Fault fault_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

namespace {

// Rows, all of them when they come interlaced; libpng's own two, of up to 8 bytes a pixel; and
// inflate's window.
Bytes scratch_of(ImageSize in, bool interlaced, ImageSize wanted) {
  return (interlaced ? in.height : 1) * in.width * 4 + 4 * in.width * 8 + 128 * kKiB +
         RowResizer::bytes(in, wanted);
}

// Pixels that the file's bytes could never be inflated to are a header's word alone.
void check_held(const ImageInput& file, PngReading& reading) {
  const ImageSize in = reading.size();
  check_pixels(file, in.height, in.width);
  const auto row = static_cast<Bytes>(png_get_rowbytes(reading.png(), reading.info()));
  if (in.height * row / kDeflateRatio > file.size())
    refuse_image(file, "expected a file that can hold its pixels, received " +
                           std::to_string(in.width) + " x " + std::to_string(in.height) + " in " +
                           std::to_string(file.size()) + " bytes; it is damaged");
}

}  // namespace

Bytes png_scratch(const ImageInput& file, ImageSize size) {
  PngReading decompress(file);
  const ImageSize in = decompress.size();
  check_held(file, decompress);
  const bool interlaced =
      png_get_interlace_type(decompress.png(), decompress.info()) != PNG_INTERLACE_NONE;
  return scratch_of(in, interlaced, size);
}

ImageSize png_size(const ImageInput& file) {
  PngReading decompress(file);
  const ImageSize size = decompress.size();
  check_pixels(file, size.height, size.width);
  return size;
}

void decode_png(const ImageInput& file, const DecodeOptions& options, uint8_t* to) {
  PngReading decompress(file);
  const ImageSize in = decompress.size();
  check_held(file, decompress);
  png_structp png = decompress.png();
  int passes = 1;
  decompress.run([&] {
    // To four bytes a pixel: palettes, grey and 16 bits widened or narrowed, alpha overwritten.
    png_set_expand(png);
    png_set_scale_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_filler(png, 255, PNG_FILLER_AFTER);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, decompress.info());
  });
  const Bytes row_bytes = in.width * 4;
  check(static_cast<Bytes>(png_get_rowbytes(png, decompress.info())) == row_bytes,
        "rows of four bytes a pixel");
  const int64_t rows = passes > 1 ? in.height : 1;
  const ImageRegion part = region_of(file, in, options);
  const int64_t end = part.top + part.size.height;
  const Bytes needed = scratch_of(in, passes > 1, options.size);
  check_scratch(file, needed, options);
  const HeapCharge charge(needed, "[image] " + file.path());
  RowResizer resizer(part.size, options.size, options.antialias, to);
  std::vector<uint8_t> pixels(static_cast<size_t>(rows * row_bytes));
  for (int pass = 0; pass < passes; ++pass)
    for (int64_t y = 0; y < (pass + 1 == passes ? end : in.height); ++y) {
      uint8_t* row = pixels.data() + (passes > 1 ? y * row_bytes : 0);
      decompress.run([&] { png_read_row(png, row, nullptr); });
      if (pass + 1 == passes && y >= part.top) resizer.add_row(row + part.left * 4);
    }
}

}  // namespace pl
