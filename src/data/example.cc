#include "data/example.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/error.h"
#include "base/wire.h"

namespace pl {
namespace {

// Example { Features features = 1 }, Features { map<string, Feature> feature = 1 },
// Feature { oneof { BytesList = 1; FloatList = 2; Int64List = 3 } }, each { repeated value = 1 }.
constexpr int kOnly = 1;
constexpr int kKey = 1, kValue = 2;

[[noreturn]] void wrong_type(std::string_view what, const char* expected) {
  throw DataError("[data] " + std::string(what) + ": expected a tf.train.Example with " + expected +
                  ", received another type; the record holds something else");
}

void need(bool good, std::string_view what, const char* expected) {
  if (!good) wrong_type(what, expected);
}

void read_bytes_list(std::string_view list, Feature& feature, std::string_view what) {
  WireReader reader(list, what);
  while (const auto field = reader.next())
    if (field->number == kOnly) {
      need(field->type == WireField::bytes, what, "byte strings");
      feature.bytes_list.emplace_back(field->text);
    }
}

void read_float_list(std::string_view list, Feature& feature, std::string_view what) {
  WireReader reader(list, what);
  const auto add = [&](uint64_t bits) {
    feature.float_list.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  };
  while (const auto field = reader.next()) {
    if (field->number != kOnly) continue;
    if (field->type == WireField::bytes) {
      WireReader packed(field->text, what);
      feature.float_list.reserve(feature.float_list.size() + field->text.size() / 4);
      while (!packed.at_end()) add(packed.fixed(4));
    } else {
      need(field->type == WireField::fixed32, what, "floats of 32 bits");
      add(field->value);
    }
  }
}

void read_int64_list(std::string_view list, Feature& feature, std::string_view what) {
  WireReader reader(list, what);
  while (const auto field = reader.next()) {
    if (field->number != kOnly) continue;
    if (field->type == WireField::bytes) {
      WireReader packed(field->text, what);
      while (!packed.at_end()) feature.int64_list.push_back(static_cast<int64_t>(packed.varint()));
    } else {
      need(field->type == WireField::varint, what, "integers");
      feature.int64_list.push_back(static_cast<int64_t>(field->value));
    }
  }
}

Feature read_feature(std::string_view message, std::string_view what) {
  Feature feature;
  WireReader reader(message, what);
  while (const auto field = reader.next()) {
    if (field->number < Feature::bytes || field->number > Feature::integers) continue;
    need(field->type == WireField::bytes, what, "lists of values");
    const auto kind = static_cast<Feature::Kind>(field->number);
    if (kind != feature.kind) feature = {.kind = kind};  // the last of a oneof counts
    if (kind == Feature::bytes) read_bytes_list(field->text, feature, what);
    if (kind == Feature::floats) read_float_list(field->text, feature, what);
    if (kind == Feature::integers) read_int64_list(field->text, feature, what);
  }
  return feature;
}

using Places = std::unordered_map<std::string, size_t>;  // in Example::features, by name

void read_entry(std::string_view message, Example& example, Places& places, std::string_view what) {
  NamedFeature named;
  WireReader reader(message, what);
  while (const auto field = reader.next()) {
    if (field->number != kKey && field->number != kValue) continue;
    need(field->type == WireField::bytes, what, "named features");
    if (field->number == kKey)
      named.name = field->text;
    else
      named.feature = read_feature(field->text, what);
  }
  const auto [place, fresh] = places.emplace(named.name, example.features.size());
  if (fresh)
    example.features.push_back(std::move(named));
  else
    example.features[place->second].feature = std::move(named.feature);
}

std::string feature_text(const Feature& feature) {
  std::string list;
  if (feature.kind == Feature::none) return list;
  if (feature.kind == Feature::bytes)
    for (const std::string& value : feature.bytes_list) list += wire_bytes(kOnly, value);
  if (feature.kind == Feature::floats && !feature.float_list.empty()) {
    std::string packed;
    for (float value : feature.float_list) packed += raw_bytes(value);
    list = wire_bytes(kOnly, packed);
  }
  if (feature.kind == Feature::integers && !feature.int64_list.empty()) {
    std::string packed;
    for (int64_t value : feature.int64_list) packed += wire_varint(static_cast<uint64_t>(value));
    list = wire_bytes(kOnly, packed);
  }
  return wire_bytes(feature.kind, list);
}

}  // namespace

Feature Feature::of_bytes(std::string value) {
  Feature feature{.kind = bytes};
  feature.bytes_list.push_back(std::move(value));
  return feature;
}
Feature Feature::of_floats(std::vector<float> values) {
  Feature feature{.kind = floats};
  feature.float_list = std::move(values);
  return feature;
}
Feature Feature::of_integers(std::vector<int64_t> values) {
  Feature feature{.kind = integers};
  feature.int64_list = std::move(values);
  return feature;
}

const Feature* Example::find(std::string_view name) const {
  for (const NamedFeature& named : features)
    if (named.name == name) return &named.feature;
  return nullptr;
}

Example parse_example(std::string_view message, std::string_view what) {
  Example example;
  Places places;
  WireReader reader(message, what);
  while (const auto features = reader.next()) {
    if (features->number != kOnly) continue;
    need(features->type == WireField::bytes, what, "features");
    WireReader entries(features->text, what);
    while (const auto entry = entries.next()) {
      if (entry->number != kOnly) continue;
      need(entry->type == WireField::bytes, what, "features");
      read_entry(entry->text, example, places, what);
    }
  }
  return example;
}

std::string serialize_example(const Example& example) {
  std::vector<const NamedFeature*> sorted;
  for (const NamedFeature& named : example.features) sorted.push_back(&named);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string features;
  for (const NamedFeature* named : sorted)
    features += wire_bytes(
        kOnly, wire_bytes(kKey, named->name) + wire_bytes(kValue, feature_text(named->feature)));
  return wire_bytes(kOnly, features);
}

}  // namespace pl
