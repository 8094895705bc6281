#include "train/weights.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"

namespace pl {

void check_weights(const SafetensorsFile& file, const VariableLayout& layout, bool others) {
  size_t parameters = 0;
  for (const auto& entry : layout.entries) {
    if (entry.category != Category::parameters) continue;
    ++parameters;
    const auto* found = file.find(entry.path);
    if (!found)
      throw DataError("[weights] " + entry.path + ": expected a tensor of this name in " +
                      file.path() +
                      ", received none; `plimsoll models NAME --json` lists the names");
    if (found->meta != entry.meta)
      throw DataError("[weights] " + entry.path + ": expected " + entry.meta.text() +
                      ", received " + found->meta.text());
  }
  if (others || file.entries().size() == parameters) return;
  for (const auto& entry : file.entries()) {
    const auto* known = layout.find(entry.name);
    if (!known || known->category != Category::parameters)
      throw DataError("[weights] " + file.path() +
                      ": expected the model's weights only, received also '" + entry.name + "'");
  }
}

void load_weights(const SafetensorsFile& file, Variables& variables) {
  const auto& entries = variables.layout().entries;
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].category == Category::parameters)
      file.read(entries[i].path, variables.at(i), entries[i].meta.bytes());
  variables.written();
}

uint64_t hash_of(const SafetensorsFile& file, const VariableLayout& layout, bool weights_only) {
  Xxh3 hash;
  std::array<char, 64 * kKiB> piece;
  for (const auto& entry : layout.entries) {
    if (weights_only && entry.category != Category::parameters) continue;
    const auto& tensor = *file.find(entry.path);
    for (Bytes at = 0; at < tensor.bytes;) {
      const Bytes bytes = std::min<Bytes>(tensor.bytes - at, piece.size());
      file.read_part(tensor, at, piece.data(), bytes);
      hash.update(piece.data(), static_cast<size_t>(bytes));
      at += bytes;
    }
  }
  return hash.digest();
}

void save_weights(const std::string& path, const Variables& variables) {
  std::vector<NamedBytes> tensors;
  const auto& entries = variables.layout().entries;
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].category == Category::parameters)
      tensors.push_back({entries[i].path, entries[i].meta, variables.at(i)});
  write_safetensors(path, tensors, {{"format", "plimsoll"}});
}

}  // namespace pl
