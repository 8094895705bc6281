#include "train/model_data.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/pipeline/dataset_source.h"
#include "data/tensor_source.h"

namespace pl {
namespace {

// Tensors in the order of `names`, by which they are given or not. `outputs` without a target are
// not among the names.
std::vector<NamedTensor> in_order(const char* call, const Values& values,
                                  const std::vector<std::string>& names, const char* what) {
  std::vector<NamedTensor> list = values.list;
  bool named = !list.empty();
  for (const NamedTensor& entry : list) named = named && !entry.name.empty();
  if (named) {
    list.clear();
    for (const std::string& name : names)
      for (const NamedTensor& entry : values.list)
        if (entry.name == name) list.push_back(entry);
    if (list.size() != values.list.size() || list.size() != names.size()) {
      std::string known, given;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      for (const NamedTensor& entry : values.list)
        given += (given.empty() ? "" : ", ") + entry.name;
      throw UserError("[" + std::string(call) + "] " + what + ": expected values for " + known +
                      ", received " + given);
    }
  }
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name.empty())
      list[i].name = list.size() == 1 ? what : what + std::string("[") + std::to_string(i) + "]";
  return list;
}

// Names of the outputs that have targets.
std::vector<std::string> target_names(const ModelState& state) {
  std::vector<std::string> names;
  if (!state.network.built() || !state.compiled) return names;
  const std::vector<Head> heads = heads_of(*state.compiled, state.network);
  for (size_t o = 0; o < heads.size(); ++o)
    if (heads[o].has_target()) names.push_back(state.network.output_names()[o]);
  return names;
}

bool weighted(const Source& source) {
  return std::any_of(source.fields().begin(), source.fields().end(),
                     [](const Field& field) { return field.role == Role::weight; });
}

}  // namespace

std::unique_ptr<Source> source_of(const char* call, const ModelState& state, const Values& x,
                                  const Values& y, const Values& weights) {
  if (x.empty()) throw DataError("[data] tensor x: expected values, received none");
  const std::vector<std::string> targets = target_names(state);
  return tensor_source(in_order(call, x, state.network.input_names(), "x"),
                       in_order(call, y, targets, "y"),
                       in_order(call, weights, targets, "sample_weight"));
}

FitSources::FitSources(const ModelState& state, Source& data, const FitOptions& options)
    : train(&data) {
  const double split = options.validation_split;
  if (!(split >= 0 && split < 1))
    throw UserError("[fit] validation_split: expected a share from 0 to below 1, received " +
                    std::to_string(split));
  if (!options.validation_data.empty()) {
    // Keras: validation_data wins over validation_split.
    const Data& given = options.validation_data;
    if (given.dataset)
      validation = own(dataset_source(*given.dataset, options.validation_steps));
    else
      validation = given.source
                       ? given.source
                       : own(source_of("fit", state, given.x, given.y, given.sample_weight));
  } else if (split > 0) {
    const auto at =
        static_cast<int64_t>(std::floor(static_cast<double>(data.size()) * (1 - split)));
    if (at < 1 || at >= data.size())
      throw UserError("[fit] validation_split: expected samples on both sides, received " +
                      std::to_string(split) + " of " + std::to_string(data.size()));
    validation = own(range_source(data, at, data.size() - at));
    train = own(range_source(data, 0, at));
    extra_bytes = data.resident_bytes();  // the parts do not count it
  }
  if (!options.class_weight.empty()) train = own(class_weights(*train, options.class_weight));
  if (!validation) return;
  if (weighted(*train) && !weighted(*validation)) validation = own(unit_weights(*validation));
  if (weighted(*validation) && !weighted(*train)) train = own(unit_weights(*train));
}

Source* FitSources::own(std::unique_ptr<Source> source) {
  own_.push_back(std::move(source));
  return own_.back().get();
}

FitOptions as_batched(const Source& data, FitOptions options) {
  if (data.batch() == 0) return options;
  if (options.validation_split > 0)
    throw UserError(
        "[fit] validation_split: expected tensors, received a data set; take() and skip() split "
        "it");
  if (!options.sample_weight.empty())
    throw UserError(
        "[fit] sample_weight: expected weights as the third part of the data set's elements, "
        "received a tensor");
  options.batch_size = data.batch();
  options.shuffle = false;
  return options;
}

int64_t checked_steps(const char* call, int64_t steps) {
  if (steps < 0)
    throw UserError("[" + std::string(call) + "] steps: expected 0 or more, received " +
                    std::to_string(steps));
  return steps;
}

std::vector<size_t> carried_weights(const Network& network) {
  std::vector<size_t> list;
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (network.weights()[i].carried) list.push_back(i);
  return list;
}

}  // namespace pl
