// ops::einsum: letters of each operand to transposes, sums and one product for every two operands.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "op/batch_matmul.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/matmul.h"
#include "op/ops_parts.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/reshape.h"
#include "op/transpose.h"

namespace pl::ops {
namespace {

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// A tensor whose dimensions are named; an ellipsis is digits, "0" the dimension that is last.
struct Lettered {
  Tensor tensor;
  std::string letters;

  Dim size(char letter) const { return tensor.shape()[static_cast<int>(letters.find(letter))]; }
  Dim size(const std::string& of) const {
    constexpr Dim kTooMany = std::numeric_limits<Dim>::max();
    Dim product = 1;
    for (char letter : of) product = checked_mul(product, size(letter)).value_or(kTooMany);
    return product;
  }
};

[[noreturn]] void refuse(const std::string& equation, const std::string& expected) {
  throw UserError("[einsum] expected " + expected + ", received '" + equation + "'");
}

// Digits for what "..." stands for, the last dimension first: they broadcast from there.
std::string written_out(const std::string& equation, std::string part, int rank) {
  const size_t dots = part.find("...");
  const int letters = static_cast<int>(part.size()) - (dots == std::string::npos ? 0 : 3);
  const int elided = rank - letters;
  if (elided < 0 || elided > 9 || (dots == std::string::npos && elided > 0))
    refuse(equation, "a letter for each of " + std::to_string(rank) + " dimensions of an operand");
  if (dots == std::string::npos) return part;
  std::string digits;
  for (int d = elided; d-- > 0;) digits += static_cast<char>('0' + d);
  return part.replace(dots, 3, digits);
}

// Of an operand, or of the result, where each letter is once.
void check_part(const std::string& equation, std::string part, bool result) {
  if (const size_t dots = part.find("..."); dots != std::string::npos) part.erase(dots, 3);
  for (size_t i = 0; i < part.size(); ++i) {
    if (!std::isalpha(static_cast<unsigned char>(part[i])))
      refuse(equation, "letters and at most one '...' in a part");
    if (result && part.find(part[i], i + 1) != std::string::npos)
      refuse(equation, "letters, each once in the result");
  }
}

// The diagonal of each letter that is there twice.
Lettered diagonal(const std::string& equation, Lettered x) {
  for (size_t i = 0; i < x.letters.size();) {
    const char letter = x.letters[i];
    const size_t again = x.letters.find(letter, i + 1);
    if (again == std::string::npos) {
      ++i;
      continue;
    }
    const auto axis = static_cast<int>(i), other = static_cast<int>(again);
    const Dim n = x.tensor.shape()[axis];
    const auto longer = checked_mul(n, n + 1);
    if (x.tensor.shape()[other] != n || !longer)
      refuse(equation,
             "equal sizes of '" + std::string(1, letter) + "' in " + x.tensor.meta().text());
    std::vector<int64_t> order;
    std::vector<Dim> dims;
    for (int d = 0; d < x.tensor.shape().rank(); ++d) {
      if (d == axis || d == other) continue;
      order.push_back(d);
      dims.push_back(x.tensor.shape()[d]);
    }
    order.insert(order.end(), {axis, other});
    const auto last = static_cast<int64_t>(dims.size());
    auto in_front = [&](std::vector<Dim> behind) {
      behind.insert(behind.begin(), dims.begin(), dims.end());
      return behind;
    };
    // With n zeros behind, the matrix as rows of n + 1: the first column is the diagonal.
    const Tensor flat = pl::reshape(pl::transpose(x.tensor, order), in_front({n * n}));
    const Tensor rows = pl::reshape(slice_gradient(flat, last, 0, *longer), in_front({n, n + 1}));
    x.tensor = pl::reshape(pl::slice(rows, last + 1, 0, 1), in_front({n}));
    x.letters.erase(again, 1);
    x.letters.erase(i, 1);
    x.letters += letter;
  }
  return x;
}

// What a letter stands for; operands may have 1 in place of it.
Dim size_named(const std::string& equation, const std::vector<Lettered>& list, char letter) {
  Dim size = 1;
  for (const Lettered& operand : list) {
    if (!has(operand.letters, letter) || operand.size(letter) == 1) continue;
    if (size != 1 && size != operand.size(letter))
      refuse(equation, "one size of '" + std::string(1, letter) + "', not " + std::to_string(size) +
                           " and " + std::to_string(operand.size(letter)));
    size = operand.size(letter);
  }
  return size;
}

// Summed over what `keep` does not have.
Lettered reduced(const Lettered& x, const std::string& keep) {
  std::vector<int64_t> axes;
  std::string left;
  for (size_t i = 0; i < x.letters.size(); ++i)
    if (has(keep, x.letters[i]))
      left += x.letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  return {axes.empty() ? x.tensor : reduce_sum(x.tensor, axes), left};
}
Tensor ordered(const Lettered& x, const std::string& to) {
  if (x.letters == to) return x.tensor;
  std::vector<int64_t> order;
  for (char letter : to) order.push_back(static_cast<int64_t>(x.letters.find(letter)));
  return pl::transpose(x.tensor, order);
}

// Where both have a letter and one has it with size 1, it does not count for that one.
void drop_ones(Lettered& x, const Lettered& other) {
  std::vector<Dim> dims;
  std::string left;
  for (char letter : x.letters) {
    if (x.size(letter) == 1 && has(other.letters, letter) && other.size(letter) != 1) continue;
    dims.push_back(x.size(letter));
    left += letter;
  }
  if (left != x.letters) x = {pl::reshape(x.tensor, dims), left};
}

// The product of two, with the letters that `keep` has.
Lettered product(Lettered a, Lettered b, const std::string& keep) {
  drop_ones(a, b);
  drop_ones(b, a);
  a = reduced(a, keep + b.letters);
  b = reduced(b, keep + a.letters);
  std::string batch, summed, left, right;
  for (char letter : a.letters) {
    const bool both = has(b.letters, letter);
    (!both ? left : has(keep, letter) ? batch : summed) += letter;
  }
  for (char letter : b.letters)
    if (!has(a.letters, letter)) right += letter;
  std::vector<Dim> dims;
  for (char letter : batch + left) dims.push_back(a.size(letter));
  for (char letter : right) dims.push_back(b.size(letter));
  const Dim l = a.size(left), s = a.size(summed), r = b.size(right);
  const Tensor x = ordered(a, batch + left + summed), y = ordered(b, batch + summed + right);
  Tensor z;
  if (!batch.empty()) {  // its first letter stays in front: it may count samples
    const Dim first = a.size(batch[0]), rest = a.size(batch) / std::max<Dim>(first, 1);
    z = batch_matmul(pl::reshape(x, {first, rest, l, s}), pl::reshape(y, {first, rest, s, r}));
  } else if (!left.empty()) {
    const Dim first = a.size(left[0]);
    z = pl::matmul(pl::reshape(x, {first, l / std::max<Dim>(first, 1), s}), pl::reshape(y, {s, r}));
  } else {
    z = pl::matmul(pl::reshape(x, {1, s}), pl::reshape(y, {s, r}));
  }
  return {pl::reshape(z, dims), batch + left + right};
}

// The letters of the result, where the equation does not say; `all`: of all operands.
std::string implied(const std::string& all) {
  std::string digits, once;
  for (char digit : std::string("9876543210"))
    if (has(all, digit)) digits += digit;
  for (char letter : all)
    if (std::isalpha(static_cast<unsigned char>(letter)) &&
        std::count(all.begin(), all.end(), letter) == 1)
      once += letter;
  std::sort(once.begin(), once.end());
  return digits + once;
}

}  // namespace

Tensor einsum(const std::string& equation, const Tensors& operands) {
  const WordScope word("einsum");
  std::string text;
  for (char letter : equation)
    if (letter != ' ') text += letter;
  const size_t arrow = text.find("->");
  std::string rest = text.substr(0, arrow);
  std::vector<std::string> parts(1);
  for (char letter : rest) {
    if (letter == ',')
      parts.emplace_back();
    else
      parts.back() += letter;
  }
  if (parts.size() != operands.size() || operands.empty())
    refuse(equation, "a part for each of " + std::to_string(operands.size()) + " operands");
  Dtype dtype = Dtype::int32;
  for (const Tensor& operand : operands) dtype = pl::common_dtype(dtype, operand.dtype());
  std::vector<Lettered> list;
  std::string all;
  int most = 0;  // dimensions of an ellipsis
  for (size_t i = 0; i < parts.size(); ++i) {
    check_part(equation, parts[i], false);
    const std::string letters = written_out(equation, parts[i], rank_of(operands[i]));
    all += letters;
    if (has(parts[i], '.'))
      most =
          std::max(most, static_cast<int>(letters.size()) - static_cast<int>(parts[i].size()) + 3);
    list.push_back({operands[i], letters});
  }
  std::string result = implied(all);
  if (arrow != std::string::npos) {
    result = text.substr(arrow + 2);
    check_part(equation, result, true);
    if (has(result, '.'))
      result = written_out(equation, result, static_cast<int>(result.size()) - 3 + most);
  }
  std::vector<Dim> dims;
  for (char letter : result) {
    if (!has(all, letter)) refuse(equation, "letters of operands in the result");
    dims.push_back(size_named(equation, list, letter));
  }
  for (char letter : all) size_named(equation, list, letter);
  expect_result({dtype, Shape(std::move(dims))}, operands);
  for (Lettered& operand : list) {
    operand.tensor = pl::cast(operand.tensor, dtype);
    operand = diagonal(equation, operand);
  }
  Lettered so_far = list[0];
  for (size_t i = 1; i < list.size(); ++i) {
    std::string keep = result;
    for (size_t later = i + 1; later < list.size(); ++later) keep += list[later].letters;
    so_far = product(so_far, list[i], keep);
  }
  return ordered(reduced(so_far, result), result);
}

}  // namespace pl::ops
