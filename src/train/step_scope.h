// StepScope: a step whose code runs: train_step or test_step of a class derived from Model, or the
// standard one. TracedStep makes a graph of it, in which the model's weights and the slots of all
// optimisers that it uses are variables; EagerStep (eager_steps.cc) does it to values.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "model/layer_context.h"
#include "op/step_params.h"
#include "train/function_trace.h"
#include "train/step_heads.h"

namespace pl {

// What a step works with.
struct StepSetup {
  const Network& network;
  const Compiled& compiled;
  const std::vector<Head>& heads;
  const Signature& signature;
  const StepInputs& inputs;
};

// A step called a layer, on samples of these shapes, that the network does not have.
class NewMember final : public UserError {
 public:
  NewMember(std::shared_ptr<Layer> called, std::vector<Shape> shapes)
      : UserError("[call] " + called->label() +
                  ": expected a layer of the model, which its call() uses"),
        layer(std::move(called)),
        in(std::move(shapes)) {}
  std::shared_ptr<Layer> layer;
  std::vector<Shape> in;
};

class StepScope : public StepHooks, public LayerContext {
 public:
  static StepScope* current();  // null outside of such a step
  bool training() const { return of_.signature.kind == StepKind::train; }
  int64_t serial() const { return serial_; }  // above 0; of no other step on this thread

  // Runs the user's step, or the standard one, and keeps what it answers. Throws UserError.
  void run();
  // The whole step as fit() does it by itself.
  TensorLogs standard(const StepData& data);
  // Its parts. Metrics: by name, to be handed on as they are.
  virtual Tensors forward(const Tensors& x, bool training);
  Tensor loss(const StepData& data, const Tensors& outputs);
  TensorLogs metrics(const StepData& data, const Tensors& outputs);
  Tensors losses();  // that regularizers and layers add, of the last forward pass
  // What a figure of the step stands for: sums of the batch, whose totals `result` makes a number
  // of. Figures are means over samples otherwise.
  void track(const Tensor& figure, Tensors sums, Metric::Result result);

  void apply_gradients(Optimizer& optimizer, const GradientsAndVariables& list) override;
  Tensor loss_scale(Optimizer& optimizer, Dtype dtype) override;
  Tensors call(const std::shared_ptr<Layer>& layer, const Tensors& in,
               std::optional<bool> training) override;
  bool trains(const Variable& variable) const;  // as compile() settled it
  bool runs(const void* model) const override { return model == of_.compiled.step.model; }

 protected:
  explicit StepScope(const StepSetup& setup);
  ~StepScope();

  // An optimiser with its slots in this step.
  struct Owner {
    Optimizer* optimizer;
    bool main;         // compile()'s: its learning rate and count are the step's own
    std::string path;  // "adam"; others are numbered
    std::vector<Slot> shared;
    std::set<size_t> updated = {};  // weights
    // Times that it applied gradients in the step, each one of Keras's iterations. Whoever fills in
    // a step's parameters sees the whole step's.
    std::shared_ptr<int64_t> updates = std::make_shared<int64_t>(0);
  };
  // What the nth update of a step, from 0, counts and which learning rate it has, if there are
  // `updates` in every step; `step`: as the loop gives it to the first of compile()'s optimiser.
  static StepParams params_for(const Optimizer& optimizer, StepParams step, bool main,
                               int64_t updates, int64_t nth);
  const std::vector<Variable>& weights() const { return of_.compiled.step.variables; }

  // As an update reads and writes them.
  virtual Tensor slot(const std::string& path, const Slot& slot) = 0;
  virtual Tensor weight_to_write(size_t w) = 0;
  virtual void wrote(const Owner&, const std::vector<size_t>&, const OptimizerState&) {}
  // Of the next update by an optimiser beside compile()'s, or of another one by that.
  virtual Tensor params_of(const Owner& owner) = 0;
  virtual void keep_value(const Tensor& value, const std::string& name) = 0;
  virtual size_t kept() const = 0;
  virtual bool stops(const Tensor& /*loss*/) { return false; }  // before gradients are taken
  virtual void check_figure(const std::string& name, const Tensor& value) const = 0;
  virtual Recorder* recorder() const { return nullptr; }
  virtual StepLayout* layout() { return nullptr; }  // of a step that is traced

  const StepSetup of_;

 private:
  Owner& owner_of(Optimizer& optimizer);
  OptimizerState state_of(const Owner& owner, const std::vector<size_t>& weights);
  void update(Owner& owner, const std::vector<size_t>& weights, const Tensors& gradients);
  size_t weight_index(const Variable& variable) const;
  void trace_heads(const StepData& data, const Tensors& outputs);
  void keep(TensorLogs logs);
  size_t keep_number(const std::string& name, const Tensor& value);  // its place
  // The sums that a tracker's figure stands for; false: it is none.
  bool keep_tracked(const std::string& name, const Tensor& figure, std::vector<LogTerm>& terms);

  StepScope* previous_;
  const int64_t serial_;
  int64_t calls_ = 0;
  CallCounts counts_;             // of layers that the step calls itself
  NetworkNotes notes_;            // of the last one
  std::vector<int64_t> outputs_;  // and what it gave, by identity
  // Losses and metrics of one set of outputs: the sum, the metrics' figures.
  struct Heads {
    std::vector<int64_t> of;
    Tensor loss;
    std::vector<std::pair<Tensor, std::string>> kept;
    StepLayout layout;
  };
  std::optional<Heads> heads_;
  std::vector<std::unique_ptr<Owner>> owners_;
  struct Tracked {
    Tensors sums;
    Metric::Result result;
  };
  std::map<int64_t, Tracked> tracked_;  // by the figures' identities
};

// Throws UserError unless one of them is defined: a loss that nothing trainable has a part in.
void check_gradients(const Tensors& gradients);

class TracedStep final : public StepScope, public VariableTracer, public FunctionTrace {
 public:
  TracedStep(const StepSetup& setup, Recorder& recorder, Tensors weights, StepLayout& layout);
  ~TracedStep();

  Tensor read(const std::shared_ptr<VariableState>& variable) override;
  Tensor host_input(const HostInput& input) override;

 private:
  Tensor slot(const std::string& path, const Slot& slot) override;
  Tensor weight_to_write(size_t w) override;
  Tensor params_of(const Owner& owner) override;
  void keep_value(const Tensor& value, const std::string& name) override;
  size_t kept() const override;
  void check_figure(const std::string& name, const Tensor& value) const override;
  Recorder* recorder() const override { return &recorder_; }
  StepLayout* layout() override { return &layout_; }

  Recorder& recorder_;
  const Tensors first_;  // versions of the weights
  StepLayout& layout_;
  std::map<std::string, Tensor> slots_;  // first versions
  std::vector<std::pair<const void*, Tensor>> host_;
};

}  // namespace pl
