// EagerSteps: steps op by op, compile({.run_eagerly = true}). The model's code runs anew on the
// values of every batch, within a hard limit; variables are those of the Session.
#pragma once

#include <memory>
#include <vector>

#include "op/runtime.h"
#include "train/session.h"

namespace pl {

// What the steps of a plan are made of.
struct EagerSetup {
  const Network& network;
  Compiled compiled;
  SampleSpec sample;
  int threads = 1;
  std::optional<Bytes> limit;                    // of everything that steps compute and hold
  std::shared_ptr<DeviceSpace> space = nullptr;  // where they run; null: the processor
  Backend* chooses = nullptr;                    // of it, whose kernels run
};

class EagerSteps {
 public:
  EagerSteps(const SessionPlan& plan, std::shared_ptr<Variables> variables);

  void* input(size_t signature, size_t i) { return inputs_[signature][i].data(); }
  const void* kept(size_t signature, size_t i) const { return kept_[signature][i].data(); }
  // False: the loss is not finite, and the weights are as they were; where the model's own
  // train_step applies gradients, only if that says so.
  bool run(size_t signature);
  Bytes peak() const {
    return (setup_->space ? runtime_->device_memory() : runtime_->memory()).peak;
  }

 private:
  Tensor on_device(const Tensor& input) const;  // a step's; of the processor as it is

  std::vector<Signature> signatures_;
  StepLayout layout_;  // of training
  std::shared_ptr<const EagerSetup> setup_;
  std::shared_ptr<Variables> variables_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<Variable> weights_;
  std::vector<Bytes> bytes_;  // of inputs: signatures share them
  std::vector<std::shared_ptr<Buffer>> places_;
  std::vector<Tensors> inputs_, kept_;  // of each signature
};

}  // namespace pl
