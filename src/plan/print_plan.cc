// A plan in words: its steps with the addresses of their operands.
#include "plan/plan.h"

namespace pl {
namespace {

// What begins or ends beside steps behind which `at` is the next one.
void print_stays(const Graph& graph, const Plan& plan, int at, const std::string& indent,
                 std::string& out) {
  auto line = [&](const char* what, const HostStay& stay, ByteOffset place) {
    out += indent + what + "(%" + std::to_string(stay.value) + " @" + std::to_string(place) +
           ", host @" + std::to_string(stay.host_at) + ")";
    const std::string& path = graph.values[index(stay.value)].path;
    out += (path.empty() ? "" : "  # " + path) + "\n";
  };
  for (const HostStay& stay : plan.stays) {
    if (stay.out_after == at - 1) line("copy_out", stay, stay.from);
    if (stay.out_until == at - 1) line("has_left", stay, stay.from);
    if (stay.in_from == at) line("copy_back", stay, stay.to);
    if (stay.in_before == at) line("is_back", stay, stay.to);
  }
}

void print_into(const Graph& graph, const Plan& plan, const std::string& indent, std::string& out) {
  int at = 0;
  for (const Step& step : plan.steps) {
    if (!plan.stays.empty()) print_stays(graph, plan, at++, indent, out);
    const Node& node = graph.nodes[index(step.node)];
    out += indent + node.op + "(";
    for (size_t i = 0; i < step.in.size(); ++i)
      out += (i ? ", @" : "@") + std::to_string(step.in[i]);
    out += ") ->";
    for (ByteOffset at : step.out) out += " @" + std::to_string(at);
    if (!node.path.empty()) out += "  # " + node.path;
    out += "\n";
    if (node.loop >= 0)
      print_into(graph.loops[index(node.loop)].body, plan.loops[index(node.loop)], indent + "  ",
                 out);
  }
}

}  // namespace

std::string print(const Graph& graph, const Plan& plan) {
  std::string out = "arena " + std::to_string(plan.arena) + " persistent " +
                    std::to_string(plan.persistent) + " bound " + std::to_string(plan.bound) + "\n";
  print_into(graph, plan, "", out);
  return out;
}

}  // namespace pl
