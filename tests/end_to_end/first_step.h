// What one step from given weights shows of a dtype or of instructions: its loss, and its gradients
// beside another's. Losses of later steps show less: a run amplifies every rounding.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "tests/end_to_end/command.h"

namespace pl::test {

using Gradients = std::map<std::string, std::vector<double>>;  // by weight

struct FirstStep {
  double loss = 0;
  Gradients gradients;
};

inline std::vector<double> weight_numbers(const SafetensorsFile& file,
                                          const SafetensorsFile::Entry& entry) {
  const auto count = static_cast<size_t>(entry.meta.elements());
  std::vector<double> list(count);
  if (entry.meta.dtype == Dtype::float64) {
    file.read(entry, list.data(), entry.bytes);
    return list;
  }
  std::vector<float> narrow(count);
  file.read(entry, narrow.data(), entry.bytes);
  list.assign(narrow.begin(), narrow.end());
  return list;
}

// `train` are the words of a run. Plain SGD at so large a rate that what the weights were before is
// lost in rounding: what they are divided by it is the gradient.
inline FirstStep first_step(Words train) {
  constexpr double kRate = 1e9;
  const TempFolder folder;
  const std::string weights = folder / "weights";
  for (const char* word :
       {"--optimizer", "sgd", "--learning-rate", "1e9", "--steps", "1", "--json", "--save-weights"})
    train.emplace_back(word);
  train.push_back(weights);
  const Finished done = plimsoll(train);
  EXPECT_EQ(done.exit, 0) << done.err;
  FirstStep step;
  if (done.exit != 0) return step;
  step.loss = done.event("step").at("loss", "step").as_real("loss");
  const SafetensorsFile file(weights);
  for (const auto& entry : file.entries()) {
    std::vector<double>& gradient = step.gradients[entry.name] = weight_numbers(file, entry);
    for (double& number : gradient) number /= -kRate;
  }
  return step;
}

// The length of the difference of all gradients, relative to theirs.
inline double gradient_error(const Gradients& ours, const Gradients& theirs) {
  double apart = 0, whole = 0;
  for (const auto& [name, list] : theirs) {
    const auto found = ours.find(name);
    EXPECT_TRUE(found != ours.end() && found->second.size() == list.size()) << name;
    if (found == ours.end() || found->second.size() != list.size()) return 1;
    for (size_t i = 0; i < list.size(); ++i) {
      apart += (found->second[i] - list[i]) * (found->second[i] - list[i]);
      whole += list[i] * list[i];
    }
  }
  return std::sqrt(apart / whole);
}

}  // namespace pl::test
