#include "train/python_format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace pl {
namespace {

struct Spec {
  bool zero = false;
  int width = 0, precision = -1;
  char type = 0;
};

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw UserError("[callbacks] filepath: expected Python's format, such as {epoch:02d} or " +
                  std::string("{val_loss:.2f}, received '") + text + "': " + why);
}

// [0][width][.precision][type]
Spec parse_spec(const std::string& spec, const std::string& text) {
  Spec result;
  size_t at = 0;
  const auto number = [&]() {
    int value = 0;
    while (at < spec.size() && spec[at] >= '0' && spec[at] <= '9' && value < 1000)
      value = value * 10 + (spec[at++] - '0');
    return value;
  };
  if (at < spec.size() && spec[at] == '0') {
    result.zero = true;
    ++at;
  }
  result.width = number();
  if (at < spec.size() && spec[at] == '.') {
    ++at;
    result.precision = number();
  }
  if (at < spec.size()) result.type = spec[at++];
  const bool known =
      result.type == 0 || std::string("dfFeEgG%").find(result.type) != std::string::npos;
  if (at != spec.size() || !known || result.width > 200 || result.precision > 100)
    refuse(text, "'" + spec + "' is not understood");
  return result;
}

std::string format_real(double value, const Spec& spec) {
  const bool percent = spec.type == '%';
  const char form[] = {'%', '.', '*', percent ? 'f' : spec.type, '\0'};
  char out[512];
  std::snprintf(out, sizeof out, form, spec.precision < 0 ? 6 : spec.precision,
                percent ? 100 * value : value);
  return percent ? std::string(out) + "%" : out;
}

std::string pad(std::string text, const Spec& spec) {
  const size_t width = static_cast<size_t>(spec.width);
  if (text.size() >= width) return text;
  const size_t missing = width - text.size();
  // Numbers go to the right; zeros behind the sign.
  if (!spec.zero) return std::string(missing, ' ') + text;
  return text.insert(!text.empty() && text[0] == '-' ? 1 : 0, std::string(missing, '0'));
}

}  // namespace

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  const std::string shortest(text, end);
  const int exponent = std::atoi(shortest.c_str() + shortest.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return shortest;
  end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  std::string fixed(text, end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string python_format(const std::string& text, const std::map<std::string, int64_t>& integers,
                          const std::map<std::string, double>& reals) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
    } else if (c == '}') {
      refuse(text, "a '}' without its '{'");
    } else if (c == '{') {
      const size_t end = text.find('}', at);
      if (end == std::string::npos) refuse(text, "a '{' without its '}'");
      const std::string field = text.substr(at + 1, end - at - 1);
      const size_t colon = field.find(':');
      const std::string key = field.substr(0, colon);
      const Spec spec =
          colon == std::string::npos ? Spec{} : parse_spec(field.substr(colon + 1), text);
      const auto integer = integers.find(key);
      const auto real = reals.find(key);
      if (integer != integers.end() && (spec.type == 0 || spec.type == 'd')) {
        out += pad(std::to_string(integer->second), spec);
      } else if (integer != integers.end()) {
        out += pad(format_real(static_cast<double>(integer->second), spec), spec);
      } else if (real == reals.end()) {
        std::string known;
        for (const auto& [name, value] : integers) known += known.empty() ? name : ", " + name;
        for (const auto& [name, value] : reals) known += ", " + name;
        refuse(text, "'" + key + "' is none of " + known);
      } else if (spec.type == 'd') {
        refuse(text, "'" + key + "' is no whole number");
      } else {
        Spec general = spec;
        if (spec.type == 0 && spec.precision >= 0) general.type = 'g';
        out +=
            pad(general.type == 0 ? python_repr(real->second) : format_real(real->second, general),
                spec);
      }
      at = end;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace pl
