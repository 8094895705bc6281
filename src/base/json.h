// Json: a small value for reports, run folders and file headers. Objects keep insertion order, so
// that what is printed is stable. parse_json treats its text as hostile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pl {

class Json {
 public:
  enum class Kind : uint8_t { null, boolean, integer, real, string, array, object };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(std::same_as<bool> auto value) : value_(value) {}  // pointers do not become true
  template <std::integral T>
  requires(!std::same_as<T, bool>) Json(T value) {
    // What does not fit into int64 is kept as the nearest double.
    if (std::in_range<int64_t>(value))
      value_ = static_cast<int64_t>(value);
    else
      value_ = static_cast<double>(value);
  }
  Json(std::floating_point auto value) : value_(static_cast<double>(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}
  static Json array() { return Json(Array()); }
  static Json object() { return Json(Object()); }

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }
  bool is_number() const { return kind() == Kind::integer || kind() == Kind::real; }

  // Building. A null becomes an object or an array on first use; any other kind is InternalError.
  // Both return this value, so that calls chain. set() replaces the value of a key that is there.
  Json& set(std::string_view key, Json value);
  Json& push(Json value);

  // Reading what a file said: `what` names the place in the DataError of a wrong kind.
  bool as_bool(std::string_view what) const;
  int64_t as_integer(std::string_view what) const;
  double as_real(std::string_view what) const;  // integers too
  const std::string& as_string(std::string_view what) const;
  const Array& as_array(std::string_view what) const;
  const Object& as_object(std::string_view what) const;
  const Json* find(std::string_view key) const;  // nullptr: no such key, or not an object
  const Json& at(std::string_view key, std::string_view what) const;  // DataError: no such key
  bool operator==(const Json&) const = default;

  // On one line, or indented by `indent` blanks a level. Non-finite numbers become null, doubles
  // are the shortest text that reads back to the same bits, bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  void dump_to(std::string& out, int indent, int level) const;

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  int depth = 64;
  int64_t bytes = 100'000'000;
  // A value costs some 20 times its shortest text, so their number is bounded too.
  int64_t values = 4'000'000;
};

// Reads one JSON document. Throws DataError naming `what` and the place for anything that is not
// JSON, a key that occurs twice in an object, text after the end, an integer outside int64, a
// number outside double, or more than the limits allow.
Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits = {});

}  // namespace pl
