// How initialisers, regularizers, constraints and activations are written: "name", or
// "name:key=value,key=value". A value alone, "l2:0.01", is that of the first key.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pl {

struct SpecEntry {
  const char* name;
  const char* keys = "";  // "scale mode=": what may follow; '=' marks a word, others are numbers
};

struct Spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;

  bool has(const std::string& key) const;
  double number(const std::string& key, double otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;
};

// Throws UserError "[model] what: expected one of ..., received 'text'".
Spec parse_spec(const char* what, const std::string& text, std::span<const SpecEntry> known);

// "name:key=value,..." with the shortest digits that read as the same numbers.
std::string make_spec(const std::string& name,
                      std::initializer_list<std::pair<const char*, double>> numbers);
std::string spec_digits(double number);

}  // namespace pl
