// EinsumDense: a dense layer written as an einsum, worked off as transposes and one product.
#include <algorithm>

#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

// Letters of the input, the kernel and the output, the batch in front, ellipses written out.
struct Equation {
  std::string input, kernel, output;
};

bool in(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

class EinsumDenseLayer final : public PlainLayer {
 public:
  EinsumDenseLayer(std::string equation, std::vector<int64_t> output_shape,
                   EinsumDenseOptions options)
      : text_(std::move(equation)), output_(std::move(output_shape)), options_(std::move(options)) {
    read_equation();
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "EinsumDense"; }
  std::string config() const override { return text_; }

  Shape build(const std::vector<Shape>& given) override {
    if (given.size() != 1)
      throw UserError("expected one input, received " + std::to_string(given.size()));
    const Equation e = written_out(given[0].rank() + 1);
    const Shape kernel = kernel_shape(e, given[0]);
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected samples as in its first call, received " + given[0].text());
    std::vector<Dim> out;
    for (char letter : e.output.substr(1)) out.push_back(size_of(e, kernel, given[0], letter));
    if (weights_.empty()) {
      WeightRules rules = kernel_rules(options_);
      int64_t fan_in = 1, fan_out = 1;
      for (size_t i = 0; i < e.kernel.size(); ++i)
        (in(e.output, e.kernel[i]) ? fan_out : fan_in) *= kernel[static_cast<int>(i)];
      rules.initializer = with_fans(rules.initializer, fan_in, fan_out);
      add_weight("kernel", kernel, rules);
      if (!options_.bias_axes.empty())
        add_weight("bias", bias_shape(e, Shape(out)), bias_rules(options_));
    }
    return Shape(std::move(out));
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const Equation e = written_out(x.shape().rank());
    Tensor y = product(e, x, call.weights[0]);
    if (!options_.bias_axes.empty()) y = add(y, cast(call.weights[1], y.dtype()));
    return activate(options_.activation, y);
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    throw UserError("[EinsumDense] equation: expected " + expected + ", received '" + text_ + "'");
  }

  // "...x,xy->...y": where the ellipsis is, and the letters beside it.
  void read_equation() {
    std::string text = text_;
    const size_t comma = text.find(','), arrow = text.find("->");
    const std::string form = "[X],[Y]->[Z], ...[X],[Y]->...[Z] or [X]...,[Y]->[Z]...";
    if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) refuse(form);
    letters_ = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                text.substr(arrow + 2)};
    auto strip = [](std::string& part) {
      if (part.starts_with("...")) return part.erase(0, 3), 'l';
      if (part.ends_with("...")) return part.erase(part.size() - 3), 'r';
      return '-';
    };
    ellipsis_ = strip(letters_.input);
    if (strip(letters_.output) != ellipsis_) refuse(form);
    for (const std::string* part : {&letters_.input, &letters_.kernel, &letters_.output})
      for (size_t i = 0; i < part->size(); ++i)
        if (!std::isalpha(static_cast<unsigned char>((*part)[i])) ||
            part->find((*part)[i], i + 1) != std::string::npos)
          refuse(form + " with each letter once in a part");
    if (letters_.input.empty() || letters_.kernel.empty() || letters_.output.empty()) refuse(form);
    for (char letter : letters_.output)
      if (!in(letters_.input, letter) && !in(letters_.kernel, letter))
        refuse("letters of the output among those of input or kernel");
    for (char letter : letters_.kernel)
      if (!in(letters_.input, letter) && !in(letters_.output, letter))
        refuse("letters of the kernel among those of input or output");
    for (char letter : letters_.input)
      if (!in(letters_.kernel, letter) && !in(letters_.output, letter))
        refuse("letters of the input among those of kernel or output");
    for (char letter : options_.bias_axes)
      if (!in(letters_.output, letter)) refuse("bias_axes among the letters of the output");
    if (ellipsis_ != 'l' &&
        (letters_.input[0] != letters_.output[0] || in(letters_.kernel, letters_.input[0])))
      refuse("the batch as first letter of input and output");
  }

  // Digits stand for the dimensions of the ellipsis.
  Equation written_out(int rank) const {
    Equation e = letters_;
    const int elided = rank - static_cast<int>(e.input.size());
    if (elided < 0 || elided > 9 || (ellipsis_ == '-' && elided > 0) ||
        (ellipsis_ == 'l' && elided < 1))
      throw UserError("expected an input of the dimensions in '" + text_ + "', received " +
                      std::to_string(rank) + " with the batch");
    std::string digits;
    for (int i = 0; i < elided; ++i) digits += static_cast<char>('0' + i);
    e.input = ellipsis_ == 'l' ? digits + e.input : e.input + digits;
    e.output = ellipsis_ == 'l' ? digits + e.output : e.output + digits;
    return e;
  }

  // What output_shape says of a letter of the output; 0: nothing.
  Dim stated(const Equation& e, char letter) const {
    // It lacks the batch and what an ellipsis stands for.
    std::string own = letters_.output;
    if (ellipsis_ != 'l') own.erase(0, 1);
    if (output_.size() != own.size())
      throw UserError("expected an output_shape of " + std::to_string(own.size()) + " sizes for '" +
                      text_ + "', received " + std::to_string(output_.size()));
    const size_t at = own.find(letter);
    return at == std::string::npos || !in(e.output, letter) ? 0 : output_[at];
  }

  Shape kernel_shape(const Equation& e, const Shape& sample) const {
    std::vector<Dim> dims;
    for (char letter : e.kernel) {
      const size_t at = e.input.find(letter);
      const Dim from_input = at == std::string::npos ? 0 : sample[static_cast<int>(at) - 1];
      const Dim said = stated(e, letter);
      if (from_input > 0 && said > 0 && from_input != said)
        throw UserError("expected equal sizes of '" + std::string(1, letter) +
                        "' in input and output_shape, received " + std::to_string(from_input) +
                        " and " + std::to_string(said));
      const Dim size = from_input > 0 ? from_input : said;
      if (size < 1)
        throw UserError("expected a positive size of '" + std::string(1, letter) +
                        "' in output_shape, received " + std::to_string(size));
      dims.push_back(size);
    }
    return Shape(std::move(dims));
  }

  static Dim size_of(const Equation& e, const Shape& kernel, const Shape& sample, char letter) {
    const size_t at = e.input.find(letter);
    if (at != std::string::npos) return sample[static_cast<int>(at) - 1];
    return kernel[static_cast<int>(e.kernel.find(letter))];
  }

  // From the first letter of bias_axes on, 1 where a letter is not among them.
  Shape bias_shape(const Equation& e, const Shape& out) const {
    size_t first = e.output.size();
    for (char letter : options_.bias_axes) first = std::min(first, e.output.find(letter));
    std::vector<Dim> dims;
    for (size_t i = first; i < e.output.size(); ++i)
      dims.push_back(in(options_.bias_axes, e.output[i]) ? out[static_cast<int>(i) - 1] : 1);
    return Shape(std::move(dims));
  }

  static Tensor ordered(const Tensor& x, const std::string& from, const std::string& to) {
    if (from == to) return x;
    std::vector<int64_t> order;
    for (char letter : to) order.push_back(static_cast<int64_t>(from.find(letter)));
    return transpose(x, order);
  }

  // x as (batch, shared, others, summed), the kernel as (shared, summed, made): the letters that
  // all three have, that the output takes from the input, that vanish, and that come in.
  static Tensor product(const Equation& e, const Tensor& x, const Tensor& w) {
    std::string shared, others, summed, made;
    const std::string batch(1, e.input[0]);
    for (char letter : e.input.substr(1)) {
      if (!in(e.kernel, letter))
        others += letter;
      else
        (in(e.output, letter) ? shared : summed) += letter;
    }
    for (char letter : e.kernel)
      if (!in(e.input, letter)) made += letter;
    Dim sizes[4] = {1, 1, 1, 1};  // shared, others, summed, made
    std::vector<Dim> dims{x.shape()[0]};
    auto count = [&](const std::string& letters, Dim& product) {
      for (char letter : letters) {
        const size_t at = e.input.find(letter);
        const Dim size = at != std::string::npos
                             ? x.shape()[static_cast<int>(at)]
                             : w.shape()[static_cast<int>(e.kernel.find(letter))];
        product *= size;
        if (&product != &sizes[2]) dims.push_back(size);
      }
    };
    count(shared, sizes[0]);
    count(others, sizes[1]);
    count(summed, sizes[2]);
    count(made, sizes[3]);
    const Tensor a = ordered(x, e.input, batch + shared + others + summed);
    const Tensor b = ordered(w, e.kernel, shared + summed + made);
    const Dim rows = x.shape()[0];
    const Tensor y = shared.empty() ? matmul(reshape(a, {rows, sizes[1], sizes[2]}),
                                             reshape(b, {sizes[2], sizes[3]}))
                                    : batch_matmul(reshape(a, {rows, sizes[0], sizes[1], sizes[2]}),
                                                   reshape(b, {sizes[0], sizes[2], sizes[3]}));
    return ordered(reshape(y, dims), batch + shared + others + made, e.output);
  }

  std::string text_;
  std::vector<int64_t> output_;
  EinsumDenseOptions options_;
  Equation letters_;     // as written, without the ellipsis
  char ellipsis_ = '-';  // 'l' or 'r': on which side
};

}  // namespace

LayerRef EinsumDense(std::string equation, std::vector<int64_t> output_shape,
                     EinsumDenseOptions options) {
  return LayerRef(std::make_shared<EinsumDenseLayer>(std::move(equation), std::move(output_shape),
                                                     std::move(options)));
}

}  // namespace pl
