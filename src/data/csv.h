// Tables of text: RFC 4180 (quotes, doubled quotes, line ends inside quotes), LF or CRLF, a byte
// order mark, gzip. Rows are read one after the other through one buffer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/byte_stream.h"

namespace pl {

struct CsvOptions {
  char delimiter = ',';
  bool header = true;          // the first row names the columns
  Bytes max_row_bytes = kMiB;  // a row that is longer is an error: a quote was left open
  bool skip_empty_lines = true;
};

class CsvReader {
 public:
  explicit CsvReader(const std::string& path, CsvOptions options = {});

  // Of the header; empty without one.
  const std::vector<std::string>& columns() const { return columns_; }
  size_t width() const { return width_; }  // of every row; 0 before the first one

  // The next row's fields, valid until the next call; false at the end. Throws DataError for a row
  // of another width, a quote inside an unquoted field, text behind a closing quote, and a quote
  // that nothing closes.
  // After one of these the next call goes on with the line behind it.
  bool next(std::vector<std::string_view>& fields);
  // Behind an exception: whether it concerns a row alone, rather than the file.
  bool goes_on() const { return row_failed_; }
  int64_t line() const { return row_line_; }  // where the row begins, from 1
  const std::string& path() const { return stream_.path(); }

 private:
  struct Span {
    size_t begin = 0, end = 0;  // in row_
  };
  int peek();  // -1 at the end
  void advance() { ++at_; }
  bool read_row();
  void read_field();
  void read_quoted();
  void put(char c);
  void leave_row();
  [[noreturn]] void fail(const std::string& expected, const std::string& received);

  ByteStream stream_;
  CsvOptions options_;
  std::string buffer_;  // a piece of the file
  size_t at_ = 0;
  std::string row_;  // the fields of one row, unquoted
  std::vector<Span> spans_;
  std::vector<std::string> columns_;
  size_t width_ = 0;
  int64_t line_ = 1, row_line_ = 0;
  bool in_row_ = false, row_failed_ = false;
};

// A field as a number; blanks around it are allowed. DataError naming `where` otherwise.
double parse_real(std::string_view field, const std::string& where);
int64_t parse_integer(std::string_view field, const std::string& where);

}  // namespace pl
