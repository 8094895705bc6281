// How text is drawn from a model of characters. Header only, so that the test beside it and the
// program share it.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "plimsoll.h"

namespace pl {

struct SamplerOptions {
  double temperature = 1;  // 0: always the likeliest character
  int64_t top_k = 0;       // draw among the likeliest k; 0: among all
  uint64_t seed = 0;
};

// One of the first `count` tokens, drawn from softmax(logits / temperature).
inline int32_t draw_token(const float* logits, int64_t count, const SamplerOptions& options,
                          std::mt19937_64& random) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && options.top_k < count) order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> reach;  // running sums of probabilities, not yet divided
  double sum = 0;
  for (int32_t token : order) {
    const double above = static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]]);
    reach.push_back(sum += std::exp(above / options.temperature));
  }
  // 53 bits, as the same number on every standard library.
  const double point = static_cast<double>(random() >> 11) * 0x1p-53 * sum;
  const auto at = std::upper_bound(reach.begin(), reach.end(), point);
  return order[std::min(static_cast<size_t>(at - reach.begin()), order.size() - 1)];
}

// `length` characters that the model puts behind the prompt. `characters` is what token i is; the
// model reads `window` tokens and answers logits (1, window, V) for the next one at each position.
inline std::string generate(Model& model, int64_t window, const std::string& characters,
                            const std::string& prompt, int64_t length,
                            const SamplerOptions& options) {
  std::vector<int32_t> text;
  for (char c : prompt) {
    const size_t at = characters.find(c);
    if (at == std::string::npos)
      throw UserError("[generate] prompt: expected characters of the text, received '" +
                      std::string(1, c) + "'");
    text.push_back(static_cast<int32_t>(at));
  }
  if (text.empty()) throw UserError("[generate] prompt: expected at least one character");
  std::mt19937_64 random(options.seed);
  std::string made;
  Tensor x({Dtype::int32, {1, window}});
  for (int64_t i = 0; i < length; ++i) {
    // The last `window` tokens, from the front on: nobody looks at what stands behind them.
    const auto used = std::min<int64_t>(window, static_cast<int64_t>(text.size()));
    std::fill_n(x.data_as<int32_t>(), window, 0);
    std::copy(text.end() - used, text.end(), x.data_as<int32_t>());
    const Tensor logits = model.predict(x, {.batch_size = 1});
    const float* row = logits.data_as<float>() + (used - 1) * logits.shape()[2];
    const int32_t token = draw_token(row, static_cast<int64_t>(characters.size()), options, random);
    text.push_back(token);
    made += characters[static_cast<size_t>(token)];
  }
  return made;
}

}  // namespace pl
