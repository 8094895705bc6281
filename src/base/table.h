// Table: rows of text with a heading, in the box characters that Keras uses.
#pragma once

#include <string>
#include <vector>

namespace pl {

// Cells are ASCII. The first `left` columns stand to the left, figures to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heading, size_t left = 2) : left_(left) {
    rows_.push_back(std::move(heading));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  size_t left_;
};

}  // namespace pl
