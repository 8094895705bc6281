#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "op/cuda/tile_source.h"
#include "op/cuda/walk.h"

namespace pl::cuda {
namespace {

const char* type_text(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "float";
    case Dtype::float64:
      return "double";
    case Dtype::bfloat16:
      return "bf16";
    case Dtype::float16:
      return "f16";
    case Dtype::int32:
      return "int";
    case Dtype::int64:
      return "i64";
    case Dtype::boolean:
      return "boolean";
    default:
      return "u8";
  }
}

std::string number(double x) {
  if (x != x) return "W(0.0 / 0.0)";
  if (x > 1e308 || x < -1e308) return x > 0 ? "infinite(W(0))" : "(-infinite(W(0)))";
  char digits[40];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, x).ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return "W(" + text + ")";
}
std::string id(int64_t i) { return std::to_string(i); }

// The result's dimensions that operands cross alike, joined; strides per operand, innermost last.
struct Grid {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // [operand][dimension]
};
Grid grid_of(const Metas& tensors, const Shape& shape, const std::vector<bool>& read) {
  Grid grid;
  grid.strides.resize(tensors.size());
  std::vector<std::vector<int64_t>> all;
  for (size_t i = 0; i < tensors.size(); ++i)
    all.push_back(read[i] ? broadcast_strides(tensors[i].shape, shape)
                          : std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0));
  for (size_t axis = 0; axis < static_cast<size_t>(shape.rank()); ++axis) {
    const int64_t size = shape[static_cast<int>(axis)];
    if (size == 1) continue;
    bool joins = !grid.sizes.empty();
    for (size_t i = 0; joins && i < tensors.size(); ++i)
      joins = !read[i] || grid.strides[i].back() == all[i][axis] * size;
    if (joins) grid.sizes.back() *= size;
    if (!joins) grid.sizes.push_back(size);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (joins) grid.strides[i].pop_back();
      grid.strides[i].push_back(all[i][axis]);
    }
  }
  return grid;
}

// Instructions that are functions of CUDA's or of the prelude.
constexpr std::pair<TileOp, const char*> kFunctions[] = {{TileOp::maximum, "maximum"},
                                                         {TileOp::minimum, "minimum"},
                                                         {TileOp::floor_divide, "floor_divided"},
                                                         {TileOp::mod, "modulo"},
                                                         {TileOp::power, "pow"},
                                                         {TileOp::exp, "exp"},
                                                         {TileOp::log, "log"},
                                                         {TileOp::sqrt, "sqrt"},
                                                         {TileOp::tanh, "tanh"},
                                                         {TileOp::expm1, "expm1"},
                                                         {TileOp::sin, "sin"},
                                                         {TileOp::cos, "cos"},
                                                         {TileOp::floor, "floor"},
                                                         {TileOp::ceil, "ceil"},
                                                         {TileOp::trunc, "trunc"},
                                                         {TileOp::round, "rint"},
                                                         {TileOp::sigmoid, "sigmoid"},
                                                         {TileOp::abs, "fabs"},
                                                         {TileOp::sign, "sign"},
                                                         {TileOp::softplus, "softplus"}};

std::string expression(const TileInstruction& made, int64_t result) {
  const std::string a = "v" + id(made.a), b = "v" + id(made.b), x = number(made.x);
  const std::string flag = made.x != 0 ? "true" : "false";
  for (const auto& [op, name] : kFunctions)
    if (op == made.op) return name + ("(" + a) + (operands_of(op) == 2 ? ", " + b : "") + ")";
  switch (made.op) {
    case TileOp::add:
      return a + " + " + b;
    case TileOp::subtract:
      return a + " - " + b;
    case TileOp::multiply:
      return a + " * " + b;
    case TileOp::divide:
      return a + " / " + b;
    case TileOp::equal_mask:
      return a + " == " + b + " ? W(1) : W(0)";
    case TileOp::greater_mask:
      return a + " > " + b + " ? W(1) : W(0)";
    case TileOp::greater_equal_mask:
      return a + " >= " + b + " ? W(1) : W(0)";
    case TileOp::negative:
      return "-" + a;
    case TileOp::square:
      return a + " * " + a;
    case TileOp::scale:
      return a + " * " + x + " + " + number(made.y);
    case TileOp::relu:
      return a + " <= W(0) ? W(0) : " + a;
    case TileOp::relu_gradient:
      return a + " > W(0) ? " + b + " : W(0)";
    case TileOp::leaky_relu:
      return a + " > W(0) ? " + a + " : " + x + " * " + a;
    case TileOp::leaky_relu_gradient:
      return a + " > W(0) ? " + b + " : " + x + " * " + b;
    case TileOp::gelu:
      return "gelu(" + a + ", " + flag + ")";
    case TileOp::gelu_gradient:
      return b + " * gelu_slope(" + a + ", " + flag + ")";
    case TileOp::dropout:
      return "drop" + id(result) +
             "[j] >= " + std::to_string(static_cast<uint32_t>(made.x * 0x1p32)) + "u ? " + a +
             " * " + number(1 / (1 - made.x)) + " : W(0)";
    default:  // cast
      return a;
  }
}

std::string scalar_text(const ScalarInstruction& made) {
  const std::string a = "s[" + id(made.a) + "]", b = "s[" + id(made.b) + "]";
  switch (made.op) {
    case ScalarOp::rate:
      return "(W)p->rate";
    case ScalarOp::step:
      return "(W)(p->update > 0 ? p->update : p->step)";
    case ScalarOp::constant:
      return number(made.x);
    case ScalarOp::add:
      return a + " + " + b;
    case ScalarOp::subtract:
      return a + " - " + b;
    case ScalarOp::multiply:
      return a + " * " + b;
    case ScalarOp::divide:
      return a + " / " + b;
    case ScalarOp::minimum:
      return b + " < " + a + " ? " + b + " : " + a;
    case ScalarOp::maximum:
      return b + " > " + a + " ? " + b + " : " + a;
    case ScalarOp::sqrt:
      return "sqrt(" + a + ")";
    case ScalarOp::power:
      return "(W)pow((double)" + a + ", (double)" + b + ")";
    case ScalarOp::greater:
      return a + " > " + b + " ? W(1) : W(0)";
    case ScalarOp::multiple:
      return "fmod((double)" + a + ", (double)" + number(made.x) + ") == 0 ? W(1) : W(0)";
  }
  return "W(0)";
}

// Writes one kernel.
class Writer {
 public:
  explicit Writer(const TileSource& source)
      : s_(source), read_(source.tensors.size(), false), width_(1) {
    auto reads = [&](int64_t value) {
      if (value >= 0 && value < static_cast<int64_t>(read_.size()))
        read_[static_cast<size_t>(value)] = true;
    };
    for (const TileInstruction& made : s_.tile.code) {
      reads(made.a);
      if (made.op != TileOp::dropout) reads(made.b);
    }
    for (int64_t output : s_.outputs) reads(output);
    if (s_.flag >= 0)
      for (size_t o = 0; o < s_.outputs.size(); ++o) reads(static_cast<int64_t>(o));
    grid_ = grid_of(s_.tensors, s_.shape, read_);
    const int64_t inner = grid_.sizes.empty() ? 1 : grid_.sizes.back();
    for (int width = static_cast<int>(16 / size_of(s_.dtype)); width > 1; width /= 2)
      if (inner % width == 0 && reach(width)) {
        width_ = width;
        break;
      }
  }
  // All that is read or written so many elements at a time lies at their multiples.
  bool reach(int width) const {
    auto fits = [&](Dtype dtype, Bytes aligned) {
      return std::min(width * size_of(dtype), kFullAlignment) <= aligned;
    };
    for (size_t i = 0; i < s_.aligned.size(); ++i)
      if (read_[i] && grid_.strides[i].back() != 0 && !fits(s_.tensors[i].dtype, s_.aligned[i]))
        return false;
    return s_.sums || fits(s_.dtype, s_.out_aligned);
  }
  int width() const { return width_; }

  std::string text() const {
    const bool wide = s_.dtype == Dtype::float64;
    const bool narrow = size_of(s_.dtype) == 2;
    const int64_t chunks = s_.shape.elements() / width_;
    const char* index = s_.shape.elements() < (int64_t{1} << 31) ? "u32" : "u64";
    std::string t = std::string("#define W ") + (wide ? "double" : "float") + "\n#define FAST " +
                    (narrow ? "1" : "0") + kTilePrelude;
    t += "extern \"C\" __global__ void __launch_bounds__(256) run(Args args) {\n";
    if (s_.params >= 0) t += "const Params* p = (const Params*)args.in[" + id(s_.params) + "];\n";
    t += scalars() + streams();
    if (s_.flag >= 0)
      t += std::string("const bool go = *(const W*)args.in[") + id(s_.flag) + "] > W(0);\n";
    if (s_.sums)
      for (size_t o = 0; o < s_.outputs.size(); ++o) t += "W sum" + id(to_int(o)) + " = 0;\n";
    t += std::string("for (") + index + " c = blockIdx.x * 256u + threadIdx.x; c < " + id(chunks) +
         "u; c += gridDim.x * 256u) {\nconst " + index + " e = c * " + id(width_) + "u;\n";
    t += loads(index) + lanes() + "}\n";
    if (s_.sums) t += sums();
    return t + "}\n" + (s_.sums ? finish() : "");
  }

 private:
  static int64_t to_int(size_t i) { return static_cast<int64_t>(i); }

  std::string scalars() const {
    if (s_.scalars.empty()) return "";
    std::string t =
        "__shared__ W s[" + id(to_int(s_.scalars.size())) + "];\nif (threadIdx.x == 0) {\n";
    for (size_t i = 0; i < s_.scalars.size(); ++i)
      t += "s[" + id(to_int(i)) + "] = " + scalar_text(s_.scalars[i]) + ";\n";
    t += "}\n__syncthreads();\n";
    for (size_t i = 0; i < s_.uses.size(); ++i)
      t += "const W v" + id(to_int(s_.tensors.size() + i)) + " = s[" + id(s_.uses[i]) + "];\n";
    return t;
  }

  // Where dropout's elements begin in the step's stream.
  std::string streams() const {
    std::string t;
    for (size_t i = 0; i < s_.tile.code.size(); ++i) {
      const TileInstruction& made = s_.tile.code[i];
      if (made.op != TileOp::dropout) continue;
      const std::string n = id(s_.tile.operands + to_int(i));
      const int64_t total = s_.shape.elements();
      const bool rows = made.rows && s_.shape.rank() > 0 && total > 0;
      const std::string p = "((const Params*)args.in[" + id(made.b) + "])";
      t += "const uint2 key" + n + " = stream_key(" + p + "->seed, " +
           std::to_string(static_cast<uint64_t>(made.stream)) + "ull);\nconst u64 step" + n +
           " = " + p + "->step;\ni64 base" + n + " = " + p + "->row_offset * ";
      if (!s_.starts.empty()) {
        t += id(s_.height) + ";\n";
        for (size_t b = 0; b < s_.starts.size(); ++b)
          t += "if (" + p + "->band == " + id(to_int(b)) + ") base" + n +
               " += " + id(s_.starts[b]) + ";\n";
        t += "base" + n + " *= " + id(total / (s_.shape[0] * s_.shape[1])) + "ll;\n";
      } else if (rows) {
        t += "(" + p + "->call_rows > 0 ? " + id(total) + "ll / " + p +
             "->call_rows : " + id(total / s_.shape[0]) + "ll);\n";
      } else {
        t += "0;\n";
      }
    }
    return t;
  }

  std::string loads(const char* index) const {
    std::string t;
    const size_t rank = grid_.sizes.size();
    std::string rest = "e";
    for (size_t d = rank; d-- > 0;) {
      const std::string n = id(to_int(d));
      if (d == 0) {
        t += std::string("const ") + index + " d0 = " + rest + ";\n";
      } else {
        const std::string size = id(grid_.sizes[d]) + "u";
        t += std::string("const ") + index + " d" + n + " = " + rest + " % " + size + ", r" + n +
             " = " + rest + " / " + size + ";\n";
        rest = "r" + n;
      }
    }
    for (size_t i = 0; i < s_.tensors.size(); ++i) {
      if (!read_[i]) continue;
      const std::string n = id(to_int(i)), type = type_text(s_.tensors[i].dtype);
      std::string at = "0";
      for (size_t d = 0; d < rank; ++d)
        if (grid_.strides[i][d] != 0)
          at += " + (u64)d" + id(to_int(d)) + " * " + id(grid_.strides[i][d]) + "u";
      const bool steps = rank > 0 && grid_.strides[i].back() != 0;
      const std::string from = "((const " + type + "*)args.in[" + n + "] + " + at + ")";
      if (steps)
        t += "const Vec<" + type + ", " + id(width_) + "> x" + n + " = *(const Vec<" + type + ", " +
             id(width_) + ">*)" + from + ";\n";
      else
        t += "const W x" + n + " = wide(*" + from + ");\n";
    }
    return t;
  }

  std::string lanes() const {
    const std::string type = type_text(s_.dtype), width = id(width_);
    std::string t;
    for (size_t i = 0; i < s_.tile.code.size(); ++i)
      if (s_.tile.code[i].op == TileOp::dropout) {
        const std::string n = id(s_.tile.operands + to_int(i));
        t += "u32 drop" + n + "[" + width + "];\ndraw(key" + n + ", step" + n + ", (u64)(base" + n +
             " + (i64)e), drop" + n + ");\n";
      }
    if (!s_.sums)
      for (size_t o = 0; o < s_.outputs.size(); ++o)
        t += "Vec<" + type + ", " + width + "> y" + id(to_int(o)) + ";\n";
    t += "#pragma unroll\nfor (int j = 0; j < " + width + "; ++j) {\n";
    for (size_t i = 0; i < s_.tensors.size(); ++i) {
      if (!read_[i]) continue;
      const std::string n = id(to_int(i));
      const bool steps = !grid_.sizes.empty() && grid_.strides[i].back() != 0;
      t += "const W v" + n + " = " + (steps ? "wide(x" + n + ".at[j])" : "x" + n) + ";\n";
    }
    for (size_t i = 0; i < s_.tile.code.size(); ++i) {
      const int64_t result = s_.tile.operands + to_int(i);
      t += "const W v" + id(result) + " = " + expression(s_.tile.code[i], result) + ";\n";
    }
    for (size_t o = 0; o < s_.outputs.size(); ++o) {
      const std::string value = "v" + id(s_.outputs[o]), n = id(to_int(o));
      if (s_.sums)
        t += "sum" + n + " += " + value + " * " + value + ";\n";
      else if (s_.flag >= 0)
        t += "y" + n + ".at[j] = To<" + type + ">::of(go ? " + value + " : v" + n + ");\n";
      else
        t += "y" + n + ".at[j] = To<" + type + ">::of(" + value + ");\n";
    }
    t += "}\n";
    if (!s_.sums)
      for (size_t o = 0; o < s_.outputs.size(); ++o)
        t += "((Vec<" + type + ", " + width + ">*)args.out[" + id(to_int(o)) + "])[c] = y" +
             id(to_int(o)) + ";\n";
    return t;
  }

  // Each block's sums, joined in the order of threads.
  std::string sums() const {
    std::string t = "__shared__ W part[256];\n";
    for (size_t o = 0; o < s_.outputs.size(); ++o) {
      const std::string n = id(to_int(o));
      t += "__syncthreads();\npart[threadIdx.x] = sum" + n +
           ";\n__syncthreads();\nfor (int half = 128; half > 0; half /= 2) {\nif (threadIdx.x < "
           "half) part[threadIdx.x] += part[threadIdx.x + half];\n__syncthreads();\n}\nif "
           "(threadIdx.x == 0) ((W*)args.parts)[" +
           n + "ull * gridDim.x + blockIdx.x] = part[0];\n";
    }
    return t;
  }
  // One block for each output.
  std::string finish() const {
    return "extern \"C\" __global__ void __launch_bounds__(256) finish(Args args, u32 blocks) {\n"
           "__shared__ double part[256];\ndouble sum = 0;\n"
           "const W* from = (const W*)args.parts + (u64)blockIdx.x * blocks;\n"
           "for (u32 i = threadIdx.x; i < blocks; i += 256) sum += from[i];\n"
           "part[threadIdx.x] = sum;\n__syncthreads();\n"
           "for (int half = 128; half > 0; half /= 2) {\n"
           "if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];\n"
           "__syncthreads();\n}\n"
           "if (threadIdx.x == 0) *(W*)args.out[blockIdx.x] = (W)part[0];\n}\n";
  }

  const TileSource& s_;
  std::vector<bool> read_;
  int width_;
  Grid grid_;
};

}  // namespace

int TileSource::width() const { return Writer(*this).width(); }
int64_t TileSource::chunks() const { return shape.elements() / width(); }
std::string TileSource::text() const { return Writer(*this).text(); }

}  // namespace pl::cuda
