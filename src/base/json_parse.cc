// parse_json, through nlohmann's SAX reader: its own tree is copied and freed by recursion, which a
// deeply nested document turns into a stack overflow. Here depth is known before a level is
// entered.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace pl {
namespace {

constexpr size_t kExcerpt = 200;  // of a library's message, which may quote megabytes

class Builder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json root;
  std::string error;  // of the first event that was refused

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(int64_t value) { return add(Json(value)); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) return refuse_integer(std::to_string(value));
    return add(Json(value));
  }
  bool number_float(double value, const std::string& text) {
    // The reader turns integers beyond 64 bits into doubles silently.
    if (text.find_first_of(".eE") == std::string::npos) return refuse_integer(text);
    return add(Json(value));
  }
  bool string(std::string& value) { return add(Json(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return refuse("expected text, received binary"); }

  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool end_array() {
    close();
    return true;
  }
  bool end_object() {
    // Sorting pointers finds duplicates in n log n, whatever the keys are.
    const Object& members = stack_.back().object;
    std::vector<const std::string*> names;
    names.reserve(members.size());
    for (const Json::Member& member : members) names.push_back(&member.first);
    std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
    const auto twin =
        std::adjacent_find(names.begin(), names.end(), [](auto* a, auto* b) { return *a == *b; });
    if (twin != names.end())
      return refuse("expected each key of an object once, received \"" +
                    (*twin)->substr(0, kExcerpt) + "\" twice");
    close();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& reason) {
    return refuse("expected JSON, received something else: " +
                  std::string(reason.what()).substr(0, kExcerpt));
  }

 private:
  using Object = Json::Object;

  // A level that is still open; it becomes a value of the level above when it closes.
  struct Level {
    bool is_object;
    Json::Object object;
    Json::Array array;
    std::string key;  // in the level above
  };

  bool refuse(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }

  bool refuse_integer(const std::string& text) {
    return refuse("expected integers within 64 bits, received " + text.substr(0, kExcerpt));
  }

  bool count() {
    if (++values_ <= limits_.values) return true;
    return refuse("expected at most " + std::to_string(limits_.values) + " values, received more");
  }

  bool open(const Json& empty) {
    if (!count()) return false;
    if (stack_.size() >= static_cast<size_t>(limits_.depth))
      return refuse("expected nesting of at most " + std::to_string(limits_.depth) +
                    " levels, received more");
    stack_.push_back({empty.is_object(), {}, {}, std::move(key_)});
    return true;
  }

  void close() {
    Level level = std::move(stack_.back());
    stack_.pop_back();
    key_ = std::move(level.key);
    place(level.is_object ? Json(std::move(level.object)) : Json(std::move(level.array)));
  }

  bool add(Json value) {
    if (!count()) return false;
    place(std::move(value));
    return true;
  }

  void place(Json value) {
    if (stack_.empty())
      root = std::move(value);
    else if (stack_.back().is_object)
      stack_.back().object.emplace_back(std::move(key_), std::move(value));
    else
      stack_.back().array.push_back(std::move(value));
  }

  const JsonLimits& limits_;
  int64_t values_ = 0;
  std::vector<Level> stack_;
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  const std::string prefix = "[json] " + std::string(what) + ": ";
  if (text.size() > static_cast<uint64_t>(limits.bytes))
    throw DataError(prefix + "expected at most " + std::to_string(limits.bytes) +
                    " bytes, received " + std::to_string(text.size()));
  // The reader takes a zero byte for the end of the text and would not look at what follows.
  if (text.find('\0') != std::string_view::npos)
    throw DataError(prefix + "expected JSON, received a zero byte");
  Builder builder(limits);
  bool read = false;
  try {
    read = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const nlohmann::json::exception& reason) {
    throw DataError(prefix + "expected JSON, received something else: " +
                    std::string(reason.what()).substr(0, kExcerpt));
  }
  if (!read) throw DataError(prefix + builder.error);
  return std::move(builder.root);
}

}  // namespace pl
