#include "base/error.h"
#include "plan/plan.h"

namespace pl {

const VariableLayout::Entry* VariableLayout::find(const std::string& path) const {
  for (const Entry& entry : entries)
    if (entry.path == path) return &entry;
  return nullptr;
}

VariableLayout layout_variables(const std::vector<GraphVariable>& variables, Bytes alignment) {
  VariableLayout layout;
  for (const GraphVariable& variable : variables) {
    check(!layout.find(variable.path), "two variables have the same path");
    layout.entries.push_back({variable.path, variable.meta, variable.category, layout.bytes});
    auto end = checked_add(layout.bytes, align_up(variable.meta.bytes(), alignment));
    if (!end) throw UserError("[plan] expected variables below 2^62 bytes in all");
    layout.bytes = *end;
  }
  return layout;
}

}  // namespace pl
