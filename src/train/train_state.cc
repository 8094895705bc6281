#include "train/train_state.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/hash.h"

namespace pl {
namespace {

uint64_t seed_from(const Json& json, const std::string& what) {
  const std::string& text = json.as_string(what);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw DataError("[checkpoint] " + what + ": expected a seed of 16 hex digits, received '" +
                    text.substr(0, 40) + "'");
  return value;
}

int64_t count_from(const Json& json, const char* key, const std::string& what) {
  constexpr int64_t kMost = int64_t{1} << 52;
  const int64_t value = json.at(key, what).as_integer(what);
  if (value < 0 || value > kMost)
    throw DataError("[checkpoint] " + what + ": " + key + ": expected a count, received " +
                    std::to_string(value));
  return value;
}

Json identity_json(const RunIdentity& identity) {
  return Json::object()
      .set("model", identity.model)
      .set("optimizer", identity.optimizer)
      .set("dtype", identity.dtype)
      .set("data", identity.data)
      .set("batch", identity.batch)
      .set("train_samples", identity.train_samples)
      .set("threads", identity.threads)
      .set("shuffle", identity.shuffle)
      .set("seed", hex16(identity.seed))
      .set("numerics", identity.numerics)
      .set("kernels", identity.kernels);
}

RunIdentity identity_from(const Json& json, const std::string& what) {
  RunIdentity identity;
  identity.model = json.at("model", what).as_string(what);
  identity.optimizer = json.at("optimizer", what).as_string(what);
  identity.dtype = json.at("dtype", what).as_string(what);
  identity.data = json.at("data", what).as_string(what);
  identity.batch = count_from(json, "batch", what);
  identity.train_samples = count_from(json, "train_samples", what);
  identity.threads =
      static_cast<int>(std::min<int64_t>(count_from(json, "threads", what), 1 << 20));
  identity.shuffle = json.at("shuffle", what).as_bool(what);
  identity.seed = seed_from(json.at("seed", what), what);
  identity.numerics = json.at("numerics", what).as_string(what);
  if (const Json* kernels = json.find("kernels")) identity.kernels = kernels->as_string(what);
  return identity;
}

Json position_json(const LoopPosition& position) {
  Json sums = Json::array();
  for (double sum : position.sums) sums.push(real_json(sum));
  return Json::object()
      .set("epoch", position.epoch)
      .set("epoch_step", position.epoch_step)
      .set("steps", position.steps)
      .set("sums", std::move(sums))
      .set("loss_first", real_json(position.loss_first))
      .set("loss_last", real_json(position.loss_last));
}

LoopPosition position_from(const Json& json, const std::string& what) {
  LoopPosition position;
  position.epoch = count_from(json, "epoch", what);
  position.epoch_step = count_from(json, "epoch_step", what);
  position.steps = count_from(json, "steps", what);
  for (const Json& sum : json.at("sums", what).as_array(what))
    position.sums.push_back(real_from(sum, what));
  position.loss_first = real_from(json.at("loss_first", what), what);
  position.loss_last = real_from(json.at("loss_last", what), what);
  if (position.epoch < 1)
    throw DataError("[checkpoint] " + what + ": epoch: expected 1 or more, received 0");
  return position;
}

}  // namespace

Json real_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double real_from(const Json& json, const std::string& what) {
  if (!json.is_string()) return json.as_real(what);
  const std::string& text = json.as_string(what);
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw DataError("[checkpoint] " + what + ": expected a number, received '" + text.substr(0, 40) +
                  "'");
}

Json to_json(const TrainState& state) {
  return Json::object()
      .set("identity", identity_json(state.identity))
      .set("position", position_json(state.position))
      .set("steps_before", state.steps_before)
      .set("epochs_before", state.epochs_before)
      .set("learning_rate", real_json(state.learning_rate))
      .set("stop_training", state.stop_training)
      .set("score", state.score ? real_json(*state.score) : Json())
      .set("callbacks", state.callbacks);
}

TrainState train_state_from(const Json& json, const std::string& what) {
  TrainState state;
  state.identity = identity_from(json.at("identity", what), what);
  state.position = position_from(json.at("position", what), what);
  state.steps_before = count_from(json, "steps_before", what);
  state.epochs_before = count_from(json, "epochs_before", what);
  state.learning_rate = real_from(json.at("learning_rate", what), what);
  state.stop_training = json.at("stop_training", what).as_bool(what);
  if (const Json& score = json.at("score", what); !score.is_null())
    state.score = real_from(score, what);
  state.callbacks = json.at("callbacks", what);
  state.callbacks.as_array(what);
  return state;
}

std::string check_identity(const RunIdentity& saved, const RunIdentity& now) {
  const auto same = [](const char* name, const std::string& was, const std::string& is) {
    if (was != is)
      throw DataError("[resume] " + std::string(name) + ": expected " + was +
                      " as in the saved run, received " + is +
                      "; a run goes on with the settings it began with");
  };
  same("model", saved.model, now.model);
  same("optimizer", saved.optimizer, now.optimizer);
  same("dtype", saved.dtype, now.dtype);
  same("data", saved.data, now.data);
  same("batch", std::to_string(saved.batch), std::to_string(now.batch));
  same("samples", std::to_string(saved.train_samples), std::to_string(now.train_samples));
  same("shuffle", saved.shuffle ? "on" : "off", now.shuffle ? "on" : "off");
  same("seed", std::to_string(saved.seed), std::to_string(now.seed));
  if (saved.threads != now.threads)
    return "[resume] threads: " + std::to_string(now.threads) + " where the saved run had " +
           std::to_string(saved.threads) + ": numbers may differ from it in their last bits";
  if (saved.numerics == now.numerics) return "";
  if (saved.kernels.empty() && saved.numerics == now.kernels)
    return "[resume] the saved run has these kernels, but did not note the version of oneDNN: if "
           "it was another, numbers may differ in their last bits";
  if (saved.kernels == now.kernels)
    return "[resume] the same kernels with another version of oneDNN, device or --deterministic "
           "than in the saved run: numbers may differ from it in their last bits";
  return "[resume] kernels, a device or --deterministic other than the saved run's (" +
         now.numerics + ", then " + saved.numerics +
         "): numbers may differ from it in their last bits";
}

}  // namespace pl
