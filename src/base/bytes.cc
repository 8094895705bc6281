#include "base/bytes.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace pl {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Decimal units are powers of 1000, binary ones powers of 1024, as IEC 80000-13 has them.
constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
};

bool same_word(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) !=
        std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> checked_mul(int64_t a, int64_t b) {
  int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

std::optional<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

Bytes parse_bytes(std::string_view text, std::string_view option) {
  auto bad = [&](const std::string& why) {
    return UserError("[options] " + std::string(option) +
                     ": expected a size such as 4GiB, 500MiB, " +
                     "2GB or 123456 (bytes), received '" + std::string(text) + "'; " + why);
  };
  size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) || text[digits] == '.'))
    ++digits;
  if (digits == 0) throw bad("write a positive number, then a unit");
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
  if (error != std::errc() || end != text.data() + digits) throw bad("the number cannot be read");
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (!same_word(unit, known.name)) continue;
    const double bytes = number * known.factor;
    if (!(bytes >= 1)) throw bad("it must be at least one byte");
    if (!(bytes < 0x1p62)) throw bad("it is larger than any machine's memory");
    if (text.substr(0, digits).find('.') != std::string_view::npos)
      return static_cast<Bytes>(std::floor(bytes));
    int64_t whole = 0;
    std::from_chars(text.data(), text.data() + digits, whole);
    return whole * static_cast<Bytes>(known.factor);
  }
  throw bad("units are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB");
}

std::string format_bytes(Bytes bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::fabs(value) >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  const int decimals = unit == 0 ? 0 : std::fabs(value) < 10 ? 2 : 1;
  std::snprintf(text, sizeof text, "%.*f %s", decimals, value, units[unit]);
  return text;
}

}  // namespace pl
