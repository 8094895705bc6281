#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace pl {
namespace {

const char* name_of(Json::Kind kind) {
  const char* names[] = {"null",     "a boolean", "an integer", "a number",
                         "a string", "an array",  "an object"};
  return names[static_cast<int>(kind)];
}

DataError wrong_kind(std::string_view what, const char* expected, Json::Kind received) {
  return DataError("[json] " + std::string(what) + ": expected " + expected + ", received " +
                   name_of(received));
}

// Length of the valid UTF-8 sequence at the start of `text`; 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, and code points above U+10FFFF show in the second byte.
  const unsigned char second = byte(1);
  if (lead == 0xE0 && second < 0xA0) return 0;
  if (lead == 0xED && second > 0x9F) return 0;
  if (lead == 0xF0 && second < 0x90) return 0;
  if (lead == 0xF4 && second > 0x8F) return 0;
  return length;
}

void dump_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += "\xEF\xBF\xBD";  // U+FFFD
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out += '"';
}

void dump_real(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  const std::string_view digits(text, static_cast<size_t>(end - text));
  out += digits;
  // So that it reads back as a real, and -0.0 keeps its sign.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void new_line(std::string& out, int indent, int level) {
  if (indent < 0) return;
  out += '\n';
  out.append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
}

}  // namespace

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  check(is_object(), "Json::set on a value that is no object");
  for (Member& member : std::get<Object>(value_)) {
    if (member.first != key) continue;
    member.second = std::move(value);
    return *this;
  }
  std::get<Object>(value_).emplace_back(std::string(key), std::move(value));
  return *this;
}

Json& Json::push(Json value) {
  if (is_null()) value_ = Array();
  check(is_array(), "Json::push on a value that is no array");
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

bool Json::as_bool(std::string_view what) const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  throw wrong_kind(what, "a boolean", kind());
}

int64_t Json::as_integer(std::string_view what) const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  throw wrong_kind(what, "an integer", kind());
}

double Json::as_real(std::string_view what) const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  throw wrong_kind(what, "a number", kind());
}

const std::string& Json::as_string(std::string_view what) const {
  if (const std::string* value = std::get_if<std::string>(&value_)) return *value;
  throw wrong_kind(what, "a string", kind());
}

const Json::Array& Json::as_array(std::string_view what) const {
  if (const Array* value = std::get_if<Array>(&value_)) return *value;
  throw wrong_kind(what, "an array", kind());
}

const Json::Object& Json::as_object(std::string_view what) const {
  if (const Object* value = std::get_if<Object>(&value_)) return *value;
  throw wrong_kind(what, "an object", kind());
}

const Json* Json::find(std::string_view key) const {
  const Object* object = std::get_if<Object>(&value_);
  if (!object) return nullptr;
  for (const Member& member : *object)
    if (member.first == key) return &member.second;
  return nullptr;
}

const Json& Json::at(std::string_view key, std::string_view what) const {
  as_object(what);
  if (const Json* value = find(key)) return *value;
  throw DataError("[json] " + std::string(what) + ": expected a key \"" + std::string(key) +
                  "\", received an object without it");
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_to(out, indent, 0);
  return out;
}

void Json::dump_to(std::string& out, int indent, int level) const {
  switch (kind()) {
    case Kind::null:
      out += "null";
      return;
    case Kind::boolean:
      out += std::get<bool>(value_) ? "true" : "false";
      return;
    case Kind::integer:
      out += std::to_string(std::get<int64_t>(value_));
      return;
    case Kind::real:
      dump_real(out, std::get<double>(value_));
      return;
    case Kind::string:
      dump_string(out, std::get<std::string>(value_));
      return;
    case Kind::array: {
      const Array& items = std::get<Array>(value_);
      out += '[';
      for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ',';
        new_line(out, indent, level + 1);
        items[i].dump_to(out, indent, level + 1);
      }
      if (!items.empty()) new_line(out, indent, level);
      out += ']';
      return;
    }
    case Kind::object: {
      const Object& members = std::get<Object>(value_);
      out += '{';
      for (size_t i = 0; i < members.size(); ++i) {
        if (i > 0) out += ',';
        new_line(out, indent, level + 1);
        dump_string(out, members[i].first);
        out += indent < 0 ? ":" : ": ";
        members[i].second.dump_to(out, indent, level + 1);
      }
      if (!members.empty()) new_line(out, indent, level);
      out += '}';
      return;
    }
  }
}

}  // namespace pl
