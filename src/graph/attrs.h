// Attributes of a node: a few named constants, kept sorted so that equal attributes print equally.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pl {

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> entries) {
    for (const auto& [name, value] : entries) set(name, value);
  }

  void set(std::string name, Attr value);
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Typed reads. The two-argument forms fall back; the others throw InternalError when missing.
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  double real(std::string_view name) const;
  double real(std::string_view name, double fallback) const;
  const std::string& text(std::string_view name) const;
  std::string text(std::string_view name, std::string_view fallback) const;
  const std::vector<int64_t>& list(std::string_view name) const;

  const std::vector<std::pair<std::string, Attr>>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;
  std::string print() const;  // "{padding=valid, strides=[1, 1]}"

 private:
  const Attr* find(std::string_view name) const;
  std::vector<std::pair<std::string, Attr>> entries_;
};

}  // namespace pl
