#include "train/weights.h"

#include "base/error.h"

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

void save_weights(const std::string& path, const Variables& variables) {
  std::vector<NamedBytes> tensors;
  const auto& entries = variables.layout().entries;
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].category == Category::parameters)
      tensors.push_back({entries[i].path, entries[i].meta, variables.at(i)});
  write_safetensors(path, tensors, {{"format", "plimsoll"}});
}

}  // namespace pl
