#include "model/spec.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "model/network.h"

namespace pl {
namespace {

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool read_number(const std::string& text, double& number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end && std::isfinite(number);
}

// Whether `value` may stand for the key, which is one of `keys`.
bool fits(const std::vector<std::string>& keys, const std::string& key, const std::string& value) {
  double number = 0;
  for (const std::string& known : keys) {
    if (known == key) return read_number(value, number);
    if (known == key + "=") return !value.empty();
  }
  return false;
}

std::string list_of(std::span<const SpecEntry> known) {
  std::string text;
  for (const SpecEntry& entry : known) {
    text += (text.empty() ? "" : ", ") + std::string(entry.name);
    const auto keys = parts(entry.keys, ' ');
    for (size_t i = 0; i < keys.size(); ++i)
      text += (i ? "," : ":") + keys[i] + (keys[i].back() == '=' ? "..." : "=...");
  }
  return text;
}

}  // namespace

bool Spec::has(const std::string& key) const {
  for (const auto& [known, value] : values)
    if (known == key) return true;
  return false;
}

double Spec::number(const std::string& key, double otherwise) const {
  double number = otherwise;
  for (const auto& [known, value] : values)
    if (known == key) read_number(value, number);
  return number;
}

std::string Spec::word(const std::string& key, const std::string& otherwise) const {
  for (const auto& [known, value] : values)
    if (known == key) return value;
  return otherwise;
}

namespace {

// Keras takes a class's name too: HeNormal, MaxNorm, and L1L2, which has no small letter to part
// it.
std::string plain_name(const std::string& name) {
  return name == "L1L2" ? "l1_l2" : snake_case(name);
}

}  // namespace

Spec parse_spec(const char* what, const std::string& text, std::span<const SpecEntry> known) {
  const size_t colon = std::min(text.find(':'), text.size());
  Spec spec{.name = plain_name(text.substr(0, colon))};
  for (const SpecEntry& entry : known) {
    if (spec.name != entry.name) continue;
    const auto keys = parts(entry.keys, ' ');
    bool good = colon == text.size() || colon + 1 < text.size();
    for (const std::string& piece : parts(text.substr(std::min(colon + 1, text.size())), ',')) {
      const size_t equals = piece.find('=');
      std::string key = piece.substr(0, equals == std::string::npos ? 0 : equals);
      if (equals == std::string::npos && !keys.empty() && spec.values.empty()) {
        key = keys[0];
        if (key.back() == '=') key.pop_back();
      }
      const std::string value = equals == std::string::npos ? piece : piece.substr(equals + 1);
      good = good && !spec.has(key) && fits(keys, key, value);
      spec.values.emplace_back(key, value);
    }
    if (good) return spec;
  }
  throw UserError("[model] " + std::string(what) + ": expected one of " + list_of(known) +
                  ", received '" + text + "'");
}

std::string spec_digits(double number) {
  char digits[40];
  return std::string(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

std::string make_spec(const std::string& name,
                      std::initializer_list<std::pair<const char*, double>> numbers) {
  std::string text = name;
  for (const auto& [key, number] : numbers)
    text += (text.size() == name.size() ? ":" : ",") + std::string(key) + "=" + spec_digits(number);
  return text;
}

}  // namespace pl
