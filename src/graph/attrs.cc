#include "graph/attrs.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"

namespace pl {

void Attrs::set(std::string name, Attr value) {
  auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const auto& entry, const auto& key) { return entry.first < key; });
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {std::move(name), std::move(value)});
  }
}

const Attr* Attrs::find(std::string_view name) const {
  for (const auto& entry : entries_)
    if (entry.first == name) return &entry.second;
  return nullptr;
}

namespace {

template <class T>
const T& required(const Attr* attr, std::string_view name) {
  const T* value = attr ? std::get_if<T>(attr) : nullptr;
  if (!value)
    throw InternalError("[graph] attribute '" + std::string(name) +
                        "' is missing or of another type");
  return *value;
}

}  // namespace

int64_t Attrs::integer(std::string_view name) const { return required<int64_t>(find(name), name); }
int64_t Attrs::integer(std::string_view name, int64_t fallback) const {
  return has(name) ? integer(name) : fallback;
}
double Attrs::real(std::string_view name) const { return required<double>(find(name), name); }
double Attrs::real(std::string_view name, double fallback) const {
  return has(name) ? real(name) : fallback;
}
const std::string& Attrs::text(std::string_view name) const {
  return required<std::string>(find(name), name);
}
std::string Attrs::text(std::string_view name, std::string_view fallback) const {
  return has(name) ? text(name) : std::string(fallback);
}
const std::vector<int64_t>& Attrs::list(std::string_view name) const {
  return required<std::vector<int64_t>>(find(name), name);
}

std::string Attrs::print() const {
  std::string out = "{";
  for (const auto& [name, value] : entries_) {
    if (out.size() > 1) out += ", ";
    out += name + "=";
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      out += std::to_string(*integer);
    } else if (const auto* real = std::get_if<double>(&value)) {
      char number[32];
      std::snprintf(number, sizeof number, "%.17g", *real);
      out += number;
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      out += *text;
    } else {
      out += "[";
      const auto& list = std::get<std::vector<int64_t>>(value);
      for (size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + std::to_string(list[i]);
      out += "]";
    }
  }
  return out + "}";
}

}  // namespace pl
