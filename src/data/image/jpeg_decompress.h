// libjpeg as one object: a file is read in pieces, and what goes wrong in C is thrown in C++.
// Internal to jpeg.cc.
#pragma once

// jpeglib.h wants these to be known.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <csetjmp>
#include <span>
#include <vector>

#include "data/image/codecs.h"

namespace pl {

// One decompression whose header has been read; what it holds goes with it.
class Decompress {
 public:
  explicit Decompress(const ImageInput& file);
  Decompress(const Decompress&) = delete;
  Decompress& operator=(const Decompress&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  const ImageInput& file() const { return file_; }
  // What was read and not used yet, and where the rest is in the file.
  std::span<const uint8_t> unused() const {
    return {reader_.base.next_input_byte, reader_.base.bytes_in_buffer};
  }
  Bytes read_until() const { return reader_.at; }
  static Bytes piece_of(const ImageInput& file);  // bytes that it holds of the file

  // Calls of libjpeg. C code is left by longjmp: no exception may pass through it, and nothing with
  // a destructor is made between setjmp and the calls.
  template <class Call>
  void run(const Call& call) {
    if (setjmp(fault_.back) == 0) {
      call();
      return;
    }
    refuse_image(file_, fault_.message);
  }

 private:
  struct Fault {
    jpeg_error_mgr base;
    std::jmp_buf back;
    char message[JMSG_LENGTH_MAX];
  };
  struct Reader {
    jpeg_source_mgr base;
    const ImageInput* file;
    Bytes at;
    std::vector<JOCTET> piece;
  };
  // A part of its own, so that it goes even when the header is damaged.
  struct Info : jpeg_decompress_struct {
    Info() : jpeg_decompress_struct{} {}
    ~Info() {
      if (made) jpeg_destroy_decompress(this);
    }
    bool made = false;
  };
  [[noreturn]] static void on_error(j_common_ptr info);
  static void on_message(j_common_ptr info, int level);
  static boolean fill(j_decompress_ptr info);
  static void skip(j_decompress_ptr info, long count);

  const ImageInput& file_;
  Reader reader_{};
  Fault fault_{};
  Info info_;
};

}  // namespace pl
