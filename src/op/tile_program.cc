#include "op/tile_program.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "op/tile_run.h"

namespace pl {
namespace {

struct TileOpInfo {
  const char* name;
  int operands;
  double flops;
  const char* constants[2] = {nullptr, nullptr};  // attributes of the op that become x and y
};

// As enum TileOp. FLOPs as in the records of the ops.
constexpr TileOpInfo kInfos[] = {
    {"add", 2, 1},
    {"subtract", 2, 1},
    {"multiply", 2, 1},
    {"divide", 2, 1},
    {"maximum", 2, 1},
    {"minimum", 2, 1},
    {"equal_mask", 2, 1},
    {"greater_mask", 2, 1},
    {"greater_equal_mask", 2, 1},
    {"floor_divide", 2, 20},
    {"mod", 2, 20},
    {"power", 2, 20},
    {"negative", 1, 1},
    {"exp", 1, 20},
    {"log", 1, 20},
    {"sqrt", 1, 1},
    {"square", 1, 1},
    {"tanh", 1, 20},
    {"sigmoid", 1, 20},
    {"abs", 1, 1},
    {"sign", 1, 1},
    {"softplus", 1, 20},
    {"expm1", 1, 20},
    {"sin", 1, 20},
    {"cos", 1, 20},
    {"floor", 1, 1},
    {"ceil", 1, 1},
    {"trunc", 1, 1},
    {"round", 1, 1},
    {"scale", 1, 2, {"factor", "offset"}},
    {"relu", 1, 1},
    {"relu_gradient", 2, 1},
    {"leaky_relu", 1, 2, {"alpha"}},
    {"leaky_relu_gradient", 2, 2, {"alpha"}},
    {"gelu", 1, 30, {"approximate"}},
    {"gelu_gradient", 2, 30, {"approximate"}},
    {"cast", 1, 1},
    {"dropout", 2, 25, {"rate"}},
};
const TileOpInfo& info(TileOp op) { return kInfos[static_cast<size_t>(op)]; }

std::optional<TileOp> op_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kInfos); ++i)
    if (name == kInfos[i].name) return static_cast<TileOp>(i);
  return std::nullopt;
}

double constant(const Attrs& attrs, const char* name) {
  if (std::string_view(name) == "approximate") return static_cast<double>(attrs.integer(name, 0));
  return attrs.real(name, 0);
}

// Shortest text that reads as the same number.
template <class T>
void append(std::string& text, T number) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(1, ' ').append(digits, end);
}

// Takes words off the front of a text.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}
  std::string_view word() {
    const size_t end = std::min(text_.find(' '), text_.size());
    const std::string_view result = text_.substr(0, end);
    text_.remove_prefix(std::min(text_.size(), end + 1));
    return result;
  }
  template <class T>
  bool number(T& value) {
    const std::string_view digits = word();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  }
  bool done() const { return text_.empty(); }

 private:
  std::string_view text_;
};

bool parse_instruction(std::string_view text, int values, TileInstruction& made) {
  Words words(text);
  const auto op = op_named(words.word());
  if (!op) return false;
  made.op = *op;
  const TileOpInfo& facts = info(*op);
  auto value = [&](int& id) { return words.number(id) && id >= 0 && id < values; };
  if (!value(made.a) || (facts.operands == 2 && !value(made.b))) return false;
  if (facts.constants[0] && !words.number(made.x)) return false;
  if (facts.constants[1] && !words.number(made.y)) return false;
  if (*op == TileOp::dropout) {
    int rows = 0;
    if (!words.number(made.stream) || !words.number(rows) || !(made.x >= 0 && made.x < 1))
      return false;
    made.rows = rows != 0;
  }
  return words.done();
}

// Operands of other dtypes are operands of the node, and of nothing else.
bool well_typed(const TileProgram& program, bool reads_all) {
  std::vector<bool> plain(static_cast<size_t>(program.operands), false), other = plain;
  for (const TileInstruction& made : program.code) {
    auto use = [&](int id, bool is_other) {
      if (id < 0) return true;
      if (id >= program.operands) return !is_other;
      (is_other ? other : plain)[static_cast<size_t>(id)] = true;
      return true;
    };
    if (!use(made.a, made.op == TileOp::cast) || !use(made.b, made.op == TileOp::dropout))
      return false;
  }
  for (size_t i = 0; i < plain.size(); ++i)
    if (plain[i] ? other[i] : reads_all && !other[i]) return false;  // both, or not read at all
  return true;
}

}  // namespace

bool is_castable(Dtype dtype) { return dtype != Dtype::bfloat16 && dtype != Dtype::float16; }
int operands_of(TileOp op) { return info(op).operands; }
double flops_of(TileOp op) { return info(op).flops; }

std::optional<TileInstruction> tile_instruction(const std::string& op, const Attrs& attrs) {
  const auto found = op_named(op == "dropout_gradient" ? "dropout" : op);
  if (!found) return std::nullopt;
  TileInstruction made{.op = *found};
  if (info(*found).constants[0]) made.x = constant(attrs, info(*found).constants[0]);
  if (info(*found).constants[1]) made.y = constant(attrs, info(*found).constants[1]);
  if (*found == TileOp::dropout) {
    made.stream = attrs.integer("stream");
    made.rows = attrs.integer("rows", 1) != 0;
  }
  return made;
}

std::string print(const TileProgram& program) {
  std::string text;
  for (const TileInstruction& made : program.code) {
    if (!text.empty()) text += ';';
    const TileOpInfo& facts = info(made.op);
    text += facts.name;
    append(text, made.a);
    if (facts.operands == 2) append(text, made.b);
    if (facts.constants[0]) append(text, made.x);
    if (facts.constants[1]) append(text, made.y);
    if (made.op == TileOp::dropout) {
      append(text, made.stream);
      append(text, made.rows ? 1 : 0);
    }
  }
  return text;
}

std::optional<TileProgram> parse_tile_program(const std::string& text, int operands,
                                              const TileBounds& bounds) {
  TileProgram program{.operands = operands};
  if (operands < 1 || operands > bounds.operands) return std::nullopt;
  std::string_view rest = text;
  if (!text.empty() && text.back() == ';') return std::nullopt;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    const int values = operands + static_cast<int>(program.code.size());
    if (program.code.size() == kMostTileInstructions ||
        !parse_instruction(rest.substr(0, end), values, program.code.emplace_back()))
      return std::nullopt;
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  if ((program.code.empty() && bounds.reads_all) || !well_typed(program, bounds.reads_all) ||
      registers_of(program) > bounds.registers)
    return std::nullopt;
  return program;
}

std::optional<TileProgram> parse_tile_program(const std::string& text, int operands) {
  return parse_tile_program(text, operands, TileBounds{});
}

int registers_of(const TileProgram& program) {
  const size_t values = static_cast<size_t>(program.operands) + program.code.size();
  std::vector<int> last(values, -1);
  for (size_t i = 0; i < program.code.size(); ++i)
    for (int id : {program.code[i].a, program.code[i].b})
      if (id >= 0) last[static_cast<size_t>(id)] = static_cast<int>(i);
  std::vector<bool> held(values, false);
  int now = 0, most = 0;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const TileInstruction& made = program.code[i];
    const bool params = made.op == TileOp::dropout;
    for (int id : {made.a, params ? -1 : made.b})
      if (id >= 0 && !held[static_cast<size_t>(id)]) {
        held[static_cast<size_t>(id)] = true;
        ++now;
      }
    most = std::max(most, now);
    for (int id : {made.a, made.b})
      if (id >= 0 && held[static_cast<size_t>(id)] &&
          last[static_cast<size_t>(id)] == static_cast<int>(i)) {
        held[static_cast<size_t>(id)] = false;
        --now;
      }
    const size_t result = static_cast<size_t>(program.operands) + i;
    if (last[result] >= 0) {
      held[result] = true;
      ++now;
    }
    most = std::max(most, now);
  }
  return most;
}

}  // namespace pl
