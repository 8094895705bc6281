// SwapEMAWeights: averages of the weights take their places while a model is evaluated.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "train/callbacks.h"
#include "train/session.h"

namespace pl {
namespace {

class SwapEMAWeightsCallback : public Callback {
 public:
  explicit SwapEMAWeightsCallback(bool swap_on_epoch) : swap_on_epoch_(swap_on_epoch) {}

  void on_train_begin(const Logs&) override {
    swapped_ = false;
    if (!model->compiled.optimizer->update_options().use_ema)
      throw UserError("[callbacks] SwapEMAWeights: expected an optimizer with use_ema = true");
  }
  void on_epoch_begin(int64_t, const Logs&) override { show(false); }
  void on_epoch_end(int64_t epoch, Logs&) override {
    if (!swap_on_epoch_) return;
    show(true);
    // What fit() does at its end takes the averages, which are among the weights now.
    if (epoch + 1 == model->epochs) exchange(true);
  }
  void on_test_begin(const Logs&) override { show(true); }
  void on_test_end(const Logs&) override { show(false); }

  const char* name() const override { return "SwapEMAWeights"; }
  Json state() const override { return Json::object().set("swapped", swapped_); }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    swapped_ = state.at("swapped", what).as_bool(what);
  }

 private:
  void show(bool averages) {
    if (swapped_ == averages) return;
    exchange(false);
    swapped_ = averages;
  }
  // Each trainable weight with its average; or only the weight's value to both.
  void exchange(bool copy) {
    Variables& variables = model->variables();
    const auto& entries = variables.layout().entries;
    const std::string optimizer = model->compiled.optimizer->name();
    for (size_t w = 0; w < entries.size(); ++w) {
      const std::string average = optimizer + "/" + entries[w].path + "/" + kAverageSlot;
      for (size_t i = w + 1; i < entries.size(); ++i) {
        if (entries[i].path != average) continue;
        char* weight = static_cast<char*>(variables.at(w));
        char* other = static_cast<char*>(variables.at(i));
        if (copy)
          std::copy(weight, weight + entries[w].meta.bytes(), other);
        else
          std::swap_ranges(weight, weight + entries[w].meta.bytes(), other);
      }
    }
    variables.written();
  }

  bool swap_on_epoch_, swapped_ = false;
};

}  // namespace

CallbackRef SwapEMAWeights(bool swap_on_epoch) {
  return std::make_shared<SwapEMAWeightsCallback>(swap_on_epoch);
}

}  // namespace pl
