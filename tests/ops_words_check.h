// Runs calls of words of ops:: and holds what they give against the answers in
// tests/golden/ops_words.txt.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "op/functions.h"
#include "tests/ops_words_table.h"
#include "tests/places.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::test {

// ---- what a number may be off

struct WordTolerance {
  double part, whole;  // of the answer itself, and of what the word is held against
  double least;        // smaller numbers have fewer digits
};
inline WordTolerance word_tolerance(Dtype dtype) {
  if (dtype == Dtype::float32) return {4e-6, 1e-6, std::numeric_limits<float>::min()};
  if (dtype == Dtype::float64) return {1e-13, 2.5e-14, std::numeric_limits<double>::min()};
  return {0, 0, 0};
}

inline double real_at(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case Dtype::float32:
      return static_cast<double>(tensor.data_as<float>()[i]);
    case Dtype::float64:
      return tensor.data_as<double>()[i];
    case Dtype::int32:
      return tensor.data_as<int32_t>()[i];
    case Dtype::int64:
      return static_cast<double>(tensor.data_as<int64_t>()[i]);
    default:
      return tensor.data_as<uint8_t>()[i];
  }
}
inline std::string text_at(const Tensor& tensor, int64_t i) {
  if (tensor.dtype() == Dtype::int64) return std::to_string(tensor.data_as<int64_t>()[i]);
  std::ostringstream text;
  text.precision(tensor.dtype() == Dtype::float32 ? 9 : 17);
  text << real_at(tensor, i);
  return text.str();
}
inline bool same_at(const Tensor& a, const Tensor& b, int64_t i) {
  if (a.dtype() == Dtype::int64) return a.data_as<int64_t>()[i] == b.data_as<int64_t>()[i];
  const double x = real_at(a, i), y = real_at(b, i);
  return x == y || (std::isnan(x) && std::isnan(y));
}

inline double largest(const Tensor& tensor) {
  double most = 0;
  for (int64_t i = 0, count = tensor.meta().elements(); i < count; ++i)
    if (std::isfinite(real_at(tensor, i))) most = std::max(most, std::abs(real_at(tensor, i)));
  return most;
}

// The operand's element that element i of a result of this shape is made of.
inline double broadcast_at(const Tensor& operand, const Shape& shape, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = shape.rank(), o = operand.shape().rank(); d-- > 0; i /= shape[d])
    if (o-- > 0) {
      at += operand.shape()[o] == 1 ? 0 : i % shape[d] * stride;
      stride *= operand.shape()[o];
    }
  return real_at(operand, at);
}

// What the elements of a result are held against, one number for each; {}: nothing.
inline std::vector<double> word_scales(const Word& word, const WordCall& call,
                                       const Tensor& answer) {
  const WordArguments& arguments = call.arguments;
  std::vector<double> scales(static_cast<size_t>(answer.meta().elements()), 1);
  if (word.near == Nearness::sum) {  // of the terms without their signs
    Tensors sizes;
    for (const Tensor& operand : arguments.tensors())
      sizes.push_back(ops::abs(ops::cast(operand, Dtype::float64)));
    const Tensor sums = word.call(arguments.with(sizes))[0];
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = real_at(sums, static_cast<int64_t>(i));
  } else if (word.near == Nearness::most || word.near == Nearness::square) {
    const double most = std::max(1.0, largest(arguments.tensor(0)));
    std::fill(scales.begin(), scales.end(), word.near == Nearness::most ? most : most * most);
  } else if (word.near == Nearness::operand) {
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0;
      for (size_t a = 0; a < arguments.size(); ++a) {
        if (arguments.is_text(a)) continue;
        const double operand = arguments.is_tensor(a)
                                   ? broadcast_at(arguments.tensor(a), answer.shape(), i)
                                   : arguments.real(a);
        if (std::isfinite(operand)) scales[i] = std::max(scales[i], std::abs(operand));
      }
    }
  }
  return scales;
}

// ---- one call

// Numbers without 0, as ops_words.py has them.
inline Tensor word_weights(const Meta& meta) {
  Tensor tensor(meta);
  for (int64_t i = 0, count = meta.elements(); i < count; ++i) {
    const double weight = static_cast<double>(i * 7 % 11 - 5) * 0.5 + 0.25;
    if (meta.dtype == Dtype::float32)
      tensor.data_as<float>()[i] = static_cast<float>(weight);
    else
      tensor.data_as<double>()[i] = weight;
  }
  return tensor;
}

// The results, and behind them the gradients of the floating arguments.
inline Tensors run_word(const Word& word, const WordCall& call, const Tensors& operands) {
  Tensors sources;
  for (const Tensor& operand : operands)
    if (is_floating(operand.dtype())) sources.push_back(operand);
  GradientTape tape({.persistent = true});
  for (const Tensor& source : sources) tape.watch(source);
  Tensors results = word.call(call.arguments.with(operands));
  const auto pause = tape.stop_recording();
  if (call.slopes.empty()) return results;
  Tensors total;
  for (const Tensor& result : results) {
    if (!is_floating(result.dtype())) continue;
    const Tensors slopes = tape.gradient(result, sources,
                                         {.output_gradient = word_weights(result.meta()),
                                          .unconnected_gradients = UnconnectedGradients::zero});
    for (size_t i = 0; i < slopes.size(); ++i)
      if (i < total.size())
        total[i] = pl::add(total[i], slopes[i]);
      else
        total.push_back(slopes[i]);
  }
  results.insert(results.end(), total.begin(), total.end());
  return results;
}

// "" or what is wrong with it.
inline std::string compare_word(const Word& word, const WordCall& call, const Tensor& got,
                                const Tensor& answer, bool slope) {
  if (got.meta() != answer.meta())
    return "expected " + answer.meta().text() + ", received " + got.meta().text();
  const WordTolerance tolerance = word_tolerance(answer.dtype());
  const bool summed =
      word.near == Nearness::sum || word.near == Nearness::most || word.near == Nearness::square;
  const double steepest = 3 * std::max(1.0, summed ? largest(answer) : 1);
  const bool exact = !is_floating(answer.dtype()) || (word.near == Nearness::exact && !slope);
  const bool scaled = !exact && !slope && word.near != Nearness::itself;
  std::vector<double> scales;
  std::string text;
  int64_t wrong = 0;
  for (int64_t i = 0, count = answer.meta().elements(); i < count; ++i) {
    if (same_at(got, answer, i)) continue;
    const double ours = real_at(got, i), theirs = real_at(answer, i);
    if (scaled && scales.empty()) scales = word_scales(word, call, answer);
    const double scale = slope ? steepest : scaled ? scales[static_cast<size_t>(i)] : 0;
    const double allowed = std::max({tolerance.least, tolerance.part * std::abs(theirs),
                                     std::isfinite(scale) ? tolerance.whole * scale : 0});
    if (!exact && std::isfinite(ours) && std::isfinite(theirs) &&
        std::abs(ours - theirs) <= allowed)
      continue;
    if (++wrong <= 4)
      text +=
          " [" + std::to_string(i) + "] " + text_at(got, i) + " for " + text_at(answer, i) + ";";
  }
  return wrong == 0 ? "" : std::to_string(wrong) + " wrong:" + text;
}

// `unseen`: on a device or in a graph, where no index is looked at before it is used.
inline void expect_answers(const Word& word, const WordCall& call, bool traced, bool unseen) {
  const std::string what = call.text + (traced ? " in a function" : "");
  const bool refused = call.refused && (!unseen || call.results.empty());
  Tensors got;
  try {
    auto function = pl::function([&](const Tensors& given) { return run_word(word, call, given); });
    const Tensors operands = call.arguments.tensors();
    got = traced ? function(operands) : run_word(word, call, operands);
    for (const Tensor& one : got) one.data();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (!refused)
      ADD_FAILURE() << what << ": refused: " << message;
    else if (message.find("[" + call.word + "]") == std::string::npos)
      ADD_FAILURE() << what << ": a message of another word: " << message;
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ": not the engine's error: " << error.what();
    return;
  }
  if (refused) {
    ADD_FAILURE() << what << ": answered " << (got.empty() ? "nothing" : got[0].meta().text());
    return;
  }
  Tensors answers = call.results;
  for (const auto& [of, slope] : call.slopes) answers.push_back(slope);
  ASSERT_EQ(got.size(), answers.size()) << what;
  for (size_t i = 0; i < answers.size(); ++i) {
    const bool slope = i >= call.results.size();
    const std::string wrong = compare_word(word, call, got[i], answers[i], slope);
    if (!wrong.empty()) ADD_FAILURE() << what << (slope ? " slope: " : ": ") << wrong;
  }
}

// All calls of these words, on values and through pl::function.
inline void expect_answers(const Words& words, bool on_device = false) {
  for (const WordCall& call : read_word_calls(golden("ops_words.txt"))) {
    const auto word = words.find(call.word);
    if (word == words.end()) continue;
    expect_answers(word->second, call, false, on_device);
    expect_answers(word->second, call, true, true);
  }
}
inline Words words_made_by(void (*add)(Words&)) {
  Words words;
  add(words);
  return words;
}

}  // namespace pl::test
