// Reads tests/golden/ops_words.txt: calls of the words of ops:: with the answers of Keras and
// NumPy, which tests/golden/ops_words.py wrote there.
//
//   = float32 2x3 1 2 3 nan inf -0   the next tensor, $0, $1, ...; "." is the shape without
//                                    dimensions, "7*" one number for all elements
//   add $0 0.5                       a call: tensors, numbers, [lists] and 'texts
//   refused WHY                      it must throw; an answer behind it is pl::function's alone
//   differs WHY                      the answer is not the oracle's, on purpose
//   > float32 2x3 1.5 ...            a result
//   d 0 1 1 ...                      the gradient of argument 0: of the sum of results * weights
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "op/ops.h"

namespace pl::test {

using WordArgument = std::variant<Tensor, int64_t, double, std::vector<int64_t>, std::string>;

// The arguments of a call, by place.
class WordArguments {
 public:
  explicit WordArguments(std::vector<WordArgument> list) : list_(std::move(list)) {}
  size_t size() const { return list_.size(); }
  bool is_tensor(size_t i) const { return std::holds_alternative<Tensor>(list_[i]); }
  bool is_text(size_t i) const { return std::holds_alternative<std::string>(list_[i]); }
  const Tensor& tensor(size_t i) const { return std::get<Tensor>(list_.at(i)); }
  int64_t integer(size_t i) const { return std::get<int64_t>(list_.at(i)); }
  bool flag(size_t i) const { return integer(i) != 0; }
  const std::vector<int64_t>& list(size_t i) const {
    return std::get<std::vector<int64_t>>(list_.at(i));
  }
  Shape shape(size_t i) const { return Shape(list(i)); }
  ops::Axis axis(size_t i) const { return ops::Axis(list(i)); }
  const std::string& text(size_t i) const { return std::get<std::string>(list_.at(i)); }
  Dtype dtype(size_t i) const { return dtype_from_name(text(i)).value(); }
  // With the number as an int64_t or a double.
  template <class F>
  auto with_number(size_t i, const F& f) const {
    if (const auto* whole = std::get_if<int64_t>(&list_.at(i))) return f(*whole);
    return f(std::get<double>(list_[i]));
  }
  double real(size_t i) const {
    return with_number(i, [](auto number) { return static_cast<double>(number); });
  }
  ops::Operand operand(size_t i) const {
    if (is_tensor(i)) return tensor(i);
    return with_number(i, [](auto number) { return ops::Operand(number); });
  }
  Tensors tensors(size_t from = 0) const {
    Tensors found;
    for (size_t i = from; i < list_.size(); ++i)
      if (is_tensor(i)) found.push_back(tensor(i));
    return found;
  }
  // The same call of other tensors.
  WordArguments with(const Tensors& tensors) const {
    WordArguments other = *this;
    size_t next = 0;
    for (WordArgument& argument : other.list_)
      if (auto* tensor = std::get_if<Tensor>(&argument)) *tensor = tensors[next++];
    return other;
  }

 private:
  std::vector<WordArgument> list_;
};

struct WordCall {
  std::string word, text;  // the text: the call as it stands in the file, with shapes
  WordArguments arguments{{}};
  bool refused = false;
  Tensors results;                  // none: refused in pl::function too
  std::map<size_t, Tensor> slopes;  // by argument
};

// `count` numbers, or one for all, from the rest of a line.
inline Tensor word_tensor(const Meta& meta, const char* at) {
  Tensor tensor(meta);
  const int64_t count = meta.elements();
  const bool whole = !is_floating(meta.dtype);
  char* end = nullptr;
  for (int64_t i = 0; i < count; ++i, at = *end == '*' ? at : end) {
    const double real = whole ? 0 : std::strtod(at, &end);  // reads nan and inf too
    const int64_t integer = whole ? std::strtoll(at, &end, 10) : 0;
    if (end == at) throw InternalError("ops_words.txt: too few numbers for " + meta.text());
    switch (meta.dtype) {
      case Dtype::float32:
        tensor.data_as<float>()[i] = static_cast<float>(real);
        break;
      case Dtype::float64:
        tensor.data_as<double>()[i] = real;
        break;
      case Dtype::int32:
        tensor.data_as<int32_t>()[i] = static_cast<int32_t>(integer);
        break;
      case Dtype::int64:
        tensor.data_as<int64_t>()[i] = integer;
        break;
      default:
        tensor.data_as<uint8_t>()[i] = static_cast<uint8_t>(integer);
    }
  }
  return tensor;
}

// "float32 2x3 1 2 ...".
inline Tensor word_tensor(const std::string& text) {
  std::istringstream in(text);
  std::string dtype, dims, size;
  in >> dtype >> dims;
  Shape shape;
  if (dims != ".") {
    std::vector<Dim> list;
    for (std::istringstream each(dims); std::getline(each, size, 'x');)
      list.push_back(std::stoll(size));
    shape = Shape(std::move(list));
  }
  const size_t numbers = dtype.size() + 1 + dims.size();
  return word_tensor({dtype_from_name(dtype).value(), shape}, text.c_str() + numbers);
}

inline WordArgument word_argument(const std::string& token, const Tensors& tensors) {
  if (token[0] == '$') return tensors.at(std::stoul(token.substr(1)));
  if (token[0] == '\'') return token.substr(1);
  if (token[0] == '[') {
    std::vector<int64_t> list;
    std::istringstream each(token.substr(1, token.size() - 2));
    for (std::string number; std::getline(each, number, ',');) list.push_back(std::stoll(number));
    return list;
  }
  if (token.find_first_of(".eninf") != std::string::npos)
    return std::strtod(token.c_str(), nullptr);
  return static_cast<int64_t>(std::strtoll(token.c_str(), nullptr, 10));
}

inline WordCall word_call(const std::string& line, const Tensors& tensors) {
  std::istringstream in(line);
  WordCall call;
  std::vector<WordArgument> arguments;
  in >> call.word;
  call.text = call.word;
  for (std::string token; in >> token;) {
    arguments.push_back(word_argument(token, tensors));
    const auto* tensor = std::get_if<Tensor>(&arguments.back());
    call.text += " " + (tensor ? tensor->meta().text() + "=" : "") + token;
  }
  call.arguments = WordArguments(std::move(arguments));
  return call;
}

inline std::vector<WordCall> read_word_calls(const std::string& path) {
  std::vector<WordCall> calls;
  Tensors tensors;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string head = line.substr(0, space),
                      rest = line.substr(std::min(space + 1, line.size()));
    if (head == "#" || head == "differs") continue;
    if (head == "=") {
      tensors.push_back(word_tensor(rest));
    } else if (head == "refused") {
      calls.back().refused = true;
    } else if (head == ">") {
      calls.back().results.push_back(word_tensor(rest));
    } else if (head == "d") {
      char* numbers = nullptr;
      const size_t of = std::strtoul(rest.c_str(), &numbers, 10);
      calls.back().slopes.emplace(of,
                                  word_tensor(calls.back().arguments.tensor(of).meta(), numbers));
    } else {
      calls.push_back(word_call(line, tensors));
    }
  }
  return calls;
}

}  // namespace pl::test
