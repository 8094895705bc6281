#include "data/image/jpeg_decompress.h"

#include <algorithm>

namespace pl {
namespace {

// The library's fast path wants some KiB before it, so that small pieces are slow; files that are
// smaller are read at once.
constexpr Bytes kPiece = 128 * kKiB;
constexpr Bytes kFirstPiece = 4 * kKiB;  // mostly only the header is wanted

void nothing(j_decompress_ptr) {}

}  // namespace

Bytes Decompress::piece_of(const ImageInput& file) {
  return std::clamp<Bytes>(file.size(), 1, kPiece);
}

void Decompress::on_error(j_common_ptr info) {
  auto* fault = reinterpret_cast<Fault*>(info->err);
  info->err->format_message(info, fault->message);
  std::longjmp(fault->back, 1);
}

// A warning is damage that libjpeg would paper over with grey.
void Decompress::on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

boolean Decompress::fill(j_decompress_ptr info) {
  auto* reader = reinterpret_cast<Reader*>(info->src);
  Bytes got = 0;
  bool failed = false;
  try {
    const auto room = static_cast<Bytes>(reader->piece.size());
    got = reader->file->read_some(reader->piece.data(),
                                  reader->at == 0 ? std::min(room, kFirstPiece) : room, reader->at);
  } catch (...) {
    failed = true;
  }
  if (failed || got <= 0) {
    auto* fault = reinterpret_cast<Fault*>(info->err);
    std::snprintf(fault->message, sizeof(fault->message), "the file ends in the middle");
    std::longjmp(fault->back, 1);
  }
  reader->at += got;
  reader->base.next_input_byte = reader->piece.data();
  reader->base.bytes_in_buffer = static_cast<size_t>(got);
  return TRUE;
}

void Decompress::skip(j_decompress_ptr info, long count) {
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

Decompress::Decompress(const ImageInput& file) : file_(file) {
  info_.err = jpeg_std_error(&fault_.base);  // kept by jpeg_create_decompress
  fault_.base.error_exit = on_error;
  fault_.base.emit_message = on_message;
  run([this] {
    jpeg_create_decompress(&info_);
    info_.made = true;
  });
  reader_.base.init_source = nothing;
  reader_.base.fill_input_buffer = fill;
  reader_.base.skip_input_data = skip;
  reader_.base.resync_to_restart = jpeg_resync_to_restart;
  reader_.base.term_source = nothing;
  reader_.file = &file;
  reader_.piece.resize(static_cast<size_t>(piece_of(file)));
  info_.src = &reader_.base;
  run([this] { jpeg_read_header(&info_, TRUE); });
}

}  // namespace pl
