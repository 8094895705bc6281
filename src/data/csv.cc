#include "data/csv.h"

#include <charconv>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kCsvPiece = 64 * kKiB;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, 40)) + (text.size() > 40 ? "...'" : "'");
}

template <class T>
T parse(std::string_view field, const std::string& where, const char* expected) {
  const std::string_view text = trimmed(field);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw DataError("[data] " + where + ": expected " + expected + ", received " + shown(field));
  return value;
}

}  // namespace

double parse_real(std::string_view field, const std::string& where) {
  return parse<double>(field, where, "a number");
}
int64_t parse_integer(std::string_view field, const std::string& where) {
  return parse<int64_t>(field, where, "an integer");
}

CsvReader::CsvReader(const std::string& path, CsvOptions options)
    : stream_(path), options_(options) {
  const char d = options_.delimiter;
  if (d == '"' || d == '\n' || d == '\r')
    throw DataError("[data] " + path +
                    ": expected a delimiter like ',' or a tab, received a quote " +
                    "or a line end");
  if (peek() == 0xEF && buffer_.starts_with("\xEF\xBB\xBF")) at_ = 3;
  if (!options_.header) return;
  std::vector<std::string_view> names;
  if (next(names)) columns_.assign(names.begin(), names.end());
}

int CsvReader::peek() {
  if (at_ == buffer_.size()) {
    buffer_.resize(static_cast<size_t>(kCsvPiece));
    buffer_.resize(static_cast<size_t>(stream_.read(buffer_.data(), kCsvPiece)));
    at_ = 0;
    if (buffer_.empty()) return -1;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

void CsvReader::fail(const std::string& expected, const std::string& received) {
  row_failed_ = true;
  throw DataError("[data] " + path() + ", line " + std::to_string(row_line_) + ": expected " +
                  expected + ", received " + received);
}

void CsvReader::put(char c) {
  if (static_cast<Bytes>(row_.size()) >= options_.max_row_bytes)
    fail("a row of at most " + std::to_string(options_.max_row_bytes) + " bytes",
         "a longer one; is a quote left open, or max_row_bytes too small?");
  row_ += c;
}

// Behind the opening quote, up to the delimiter or the line's end.
void CsvReader::read_quoted() {
  for (;;) {
    const int c = peek();
    if (c < 0) fail("a quote that closes the field", "the end of the file");
    advance();
    if (c == '\n') ++line_;
    if (c != '"') {
      put(static_cast<char>(c));
      continue;
    }
    if (peek() != '"') break;
    advance();
    put('"');
  }
  const int c = peek();
  if (c >= 0 && c != options_.delimiter && c != '\n' && c != '\r')
    fail("the end of a field behind its closing quote",
         shown(std::string(1, static_cast<char>(c))));
}

void CsvReader::read_field() {
  const size_t begin = row_.size();
  if (peek() == '"') {
    advance();
    read_quoted();
  } else {
    for (int c = peek(); c >= 0 && c != options_.delimiter && c != '\n' && c != '\r'; c = peek()) {
      if (c == '"')
        fail("quotes around a whole field, doubled inside it", "a quote within a field");
      put(static_cast<char>(c));
      advance();
    }
  }
  spans_.push_back({begin, row_.size()});
}

// Of a row that failed in its middle.
void CsvReader::leave_row() {
  if (!in_row_) return;
  for (int c = peek(); c >= 0 && c != '\n'; c = peek()) advance();
  if (peek() >= 0) {
    advance();
    ++line_;
  }
  in_row_ = false;
}

bool CsvReader::read_row() {
  row_.clear();
  spans_.clear();
  row_line_ = line_;
  if (peek() < 0) return false;
  in_row_ = true;
  for (;;) {
    read_field();
    const int c = peek();
    if (c >= 0) advance();
    if (c == options_.delimiter) continue;
    if (c == '\r' && peek() == '\n') advance();
    if (c >= 0) ++line_;
    in_row_ = false;
    return true;
  }
}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  row_failed_ = false;
  leave_row();
  for (bool empty = true; empty;) {
    const int first = peek();  // a field of nothing but its quotes is a row
    if (!read_row()) return false;
    empty = options_.skip_empty_lines && (first == '\n' || first == '\r');
  }
  if (width_ == 0) width_ = spans_.size();
  if (spans_.size() != width_)
    fail(std::to_string(width_) + " fields", std::to_string(spans_.size()));
  for (const Span& span : spans_)
    fields.push_back(std::string_view(row_).substr(span.begin, span.end - span.begin));
  return true;
}

}  // namespace pl
