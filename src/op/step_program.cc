#include "op/step_program.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "op/tile_run.h"

namespace pl {
namespace {

struct ScalarInfo {
  const char* name;
  int operands;
  bool constant = false;
};

// As enum ScalarOp.
constexpr ScalarInfo kScalarInfos[] = {
    {"rate", 0},     {"step", 0},    {"constant", 0, true}, {"add", 2},     {"subtract", 2},
    {"multiply", 2}, {"divide", 2},  {"minimum", 2},        {"maximum", 2}, {"sqrt", 1},
    {"power", 2},    {"greater", 2}, {"multiple", 1, true},
};
const ScalarInfo& info(ScalarOp op) { return kScalarInfos[static_cast<size_t>(op)]; }

std::string print(const std::vector<ScalarInstruction>& scalars) {
  std::string text;
  for (const ScalarInstruction& made : scalars) {
    const ScalarInfo& facts = info(made.op);
    text += (text.empty() ? "" : ";") + std::string(facts.name);
    if (facts.operands > 0) text += " " + std::to_string(made.a);
    if (facts.operands > 1) text += " " + std::to_string(made.b);
    if (facts.constant) {
      char digits[40];
      text.append(" ").append(digits, std::to_chars(digits, digits + sizeof digits, made.x).ptr);
    }
  }
  return text;
}

// The words of a text up to a mark.
std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <class T>
bool read(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

bool parse(std::string_view text, int before, ScalarInstruction& made) {
  const std::vector<std::string_view> words = split(text, ' ');
  const auto* found = std::find_if(std::begin(kScalarInfos), std::end(kScalarInfos),
                                   [&](const ScalarInfo& i) { return words[0] == i.name; });
  if (found == std::end(kScalarInfos)) return false;
  made.op = static_cast<ScalarOp>(found - kScalarInfos);
  const auto operands = static_cast<size_t>(found->operands);
  if (words.size() != 1 + operands + (found->constant ? 1 : 0)) return false;
  auto earlier = [&](std::string_view word, int& id) {
    return read(word, id) && id >= 0 && id < before;
  };
  if (operands > 0 && !earlier(words[1], made.a)) return false;
  if (operands > 1 && !earlier(words[2], made.b)) return false;
  return !found->constant || read(words.back(), made.x);
}

template <class T>
T compute(const ScalarInstruction& made, const StepParams& params, T a, T b) {
  switch (made.op) {
    case ScalarOp::rate:
      return static_cast<T>(params.learning_rate);
    case ScalarOp::step:
      return static_cast<T>(params.updates());
    case ScalarOp::constant:
      return static_cast<T>(made.x);
    case ScalarOp::add:
      return a + b;
    case ScalarOp::subtract:
      return a - b;
    case ScalarOp::multiply:
      return a * b;
    case ScalarOp::divide:
      return a / b;
    case ScalarOp::minimum:
      return b < a ? b : a;
    case ScalarOp::maximum:
      return b > a ? b : a;
    case ScalarOp::sqrt:
      return std::sqrt(a);
    case ScalarOp::power:
      // By way of double, so that it is rounded once, whatever the C library.
      return static_cast<T>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case ScalarOp::greater:
      return a > b ? T(1) : T(0);
    case ScalarOp::multiple:
      return std::fmod(static_cast<double>(a), made.x) == 0 ? T(1) : T(0);
  }
  return T(0);
}

bool all_below(const std::vector<int64_t>& ids, size_t bound) {
  return std::all_of(ids.begin(), ids.end(),
                     [&](int64_t id) { return id >= 0 && static_cast<size_t>(id) < bound; });
}

}  // namespace

int operands_of(ScalarOp op) { return info(op).operands; }
bool has_constant(ScalarOp op) { return info(op).constant; }

Attrs attrs_of(const StepProgram& program) {
  Attrs attrs{{"program", print(program.tile)}, {"outputs", program.outputs}};
  if (!program.scalars.empty()) {
    attrs.set("scalars", print(program.scalars));
    attrs.set("uses", program.uses);
  }
  return attrs;
}

std::optional<StepProgram> step_program_of(const Attrs& attrs, int tensors) {
  StepProgram program{.tensors = tensors};
  if (tensors < 1 || !attrs.has("program") || !attrs.has("outputs")) return std::nullopt;
  if (attrs.has("scalars")) {
    for (std::string_view line : split(attrs.text("scalars"), ';')) {
      const auto before = static_cast<int>(program.scalars.size());
      if (before == kMostScalars || !parse(line, before, program.scalars.emplace_back()))
        return std::nullopt;
    }
    program.uses = attrs.list("uses");
    if (!all_below(program.uses, program.scalars.size())) return std::nullopt;
  }
  const auto tile = parse_tile_program(
      attrs.text("program"), tensors + static_cast<int>(program.uses.size()),
      {.operands = kMostStepOperands, .registers = kMostStepRegisters, .reads_all = false});
  if (!tile) return std::nullopt;
  for (const TileInstruction& made : tile->code)
    if (made.op == TileOp::cast || made.op == TileOp::dropout) return std::nullopt;
  program.tile = *tile;
  program.outputs = attrs.list("outputs");
  const size_t values = static_cast<size_t>(tile->operands) + tile->code.size();
  if (program.outputs.empty() || !all_below(program.outputs, values)) return std::nullopt;
  return program;
}

template <class T>
void compute_scalars(const std::vector<ScalarInstruction>& scalars, const StepParams& params,
                     T* values) {
  for (size_t i = 0; i < scalars.size(); ++i) {
    const T a = scalars[i].a >= 0 ? values[scalars[i].a] : T(0);
    const T b = scalars[i].b >= 0 ? values[scalars[i].b] : T(0);
    values[i] = compute(scalars[i], params, a, b);
  }
}
template void compute_scalars(const std::vector<ScalarInstruction>&, const StepParams&, float*);
template void compute_scalars(const std::vector<ScalarInstruction>&, const StepParams&, double*);

}  // namespace pl
