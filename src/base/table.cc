#include "base/table.h"

#include <algorithm>

namespace pl {
namespace {

std::string rule(const std::vector<size_t>& width, const char* left, const char* line,
                 const char* cross, const char* right) {
  std::string out = left;
  for (size_t c = 0; c < width.size(); ++c) {
    if (c > 0) out += cross;
    for (size_t i = 0; i < width[c] + 2; ++i) out += line;
  }
  return out + right + "\n";
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> width(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::string out = rule(width, "┏", "━", "┳", "┓");
  for (size_t r = 0; r < rows_.size(); ++r) {
    const char* bar = r == 0 ? "┃" : "│";
    out += bar;
    for (size_t c = 0; c < width.size(); ++c) {
      const std::string pad(width[c] - rows_[r][c].size(), ' ');
      out += ' ';
      out += c < left_ ? rows_[r][c] + pad : pad + rows_[r][c];
      out += ' ';
      out += bar;
    }
    out += "\n";
    if (r == 0) out += rule(width, "┡", "━", "╇", "┩");
  }
  return out + rule(width, "└", "─", "┴", "┘");
}

}  // namespace pl
