// tf.train.Example: named lists of byte strings, floats or integers, as TFRecords hold them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pl {

struct Feature {
  enum Kind : uint8_t { none, bytes, floats, integers };
  Kind kind = none;  // only the list of this kind is used
  std::vector<std::string> bytes_list;
  std::vector<float> float_list;
  std::vector<int64_t> int64_list;

  static Feature of_bytes(std::string value);
  static Feature of_floats(std::vector<float> values);
  static Feature of_integers(std::vector<int64_t> values);
};

struct NamedFeature {
  std::string name;
  Feature feature;
};

struct Example {
  std::vector<NamedFeature> features;  // in the order of the message; names are distinct

  const Feature* find(std::string_view name) const;
};

// Throws DataError naming `what` for bytes that are no such message. As protocol buffers have it,
// lists may be packed or not, and the last of two features with one name counts.
Example parse_example(std::string_view message, std::string_view what);

// Features are written in order of their names, so that equal examples have equal bytes.
std::string serialize_example(const Example& example);

}  // namespace pl
