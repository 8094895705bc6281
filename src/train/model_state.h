// What a Model holds between calls. Internal to model*.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "data/source.h"
#include "model/weight_home.h"
#include "trace/variable.h"
#include "train/budget.h"
#include "train/callback_list.h"
#include "train/loop.h"

namespace pl {

class Model;

// What a plan was made for. Equal keys: the plan and its kernels can be used again.
struct PlanKey {
  std::vector<Signature> signatures;
  SampleSpec sample;
  Bytes source_bytes = 0;
  Bytes variable_bytes = 0;
  std::optional<Bytes> budget = {};
  Switches switches = {};
  bool operator==(const PlanKey&) const = default;
};

struct ModelState : std::enable_shared_from_this<ModelState> {
  ModelState() = default;
  ~ModelState();  // weights live on with their layers, optimiser slots do not

  std::string name;
  std::vector<LayerRef> layers;  // of a Sequential, which may wait for its input shape
  Network network;
  std::optional<Compiled> compiled;
  double x_scale = 1;
  int64_t steps = 0, epochs = 0;          // since compile()
  int64_t updates_per_step = 1;           // by compile()'s optimiser, in the last fit()
  bool fresh_optimizer = true;            // slots, if any, are not this optimiser's
  const char* running = nullptr;          // "fit", while it runs: a callback may not start another
  std::vector<Symbolic> inputs, outputs;  // that it was made of

  Model* self = nullptr;                                           // whose state it is
  std::function<LayerRef(std::vector<Dtype>)> subclass = nullptr;  // its call() as a layer
  std::function<TensorLogs(const StepData&)> step = nullptr;  // its train_step() or test_step()
  int64_t eager_calls = 0;
  Tensors called_losses;          // what layers added in the last call on tensors
  std::vector<Variable> handles;  // as the network's weights, when somebody last asked for them
  std::shared_ptr<Layer> member;  // this model in call() of another
  // Of a step of the model's own: all variables of its graph, once it was traced.
  std::optional<std::vector<GraphVariable>> traced_variables;
  bool test_step_traced = false;
  // Layers and models that its steps call and its call() does not, with the shapes they got.
  std::vector<std::pair<std::shared_ptr<Layer>, std::vector<Shape>>> also;
  bool by_call = false;             // the network is made of call()
  std::vector<Dtype> input_dtypes;  // that it was built for

  std::unique_ptr<CpuBackend> backend;
  std::shared_ptr<DeviceSpace> device;  // that it was compiled for; null: the processor
  bool deterministic = true;            // there
  // Null until someone asks for a weight. Where a weight's home is elsewhere (another model with
  // the same layer was trained last) it is a copy, made anew whenever it is used.
  std::shared_ptr<Variables> variables;
  std::shared_ptr<DeviceSpace> variables_on;  // where they are; compile() may ask for another place
  // The last call's plan and kernels, without memory to run in; so that predict in a loop plans
  // once. Dropped before anything else is planned, and (declared last) before the backend.
  std::optional<std::pair<PlanKey, SessionPlan>> last;
  // On a device, of a call for one batch: its session, memory and all, since recording it anew
  // takes longer than the step. Any other call lets go of it.
  std::optional<std::pair<PlanKey, Session>> held_session;
  bool one_batch = false;  // such a call is under way

  // What compile() settles of the outputs, once these are known.
  std::function<std::vector<Head>(const std::vector<std::string>& outputs)> heads = nullptr;

  // Of a Sequential or a subclass: shapes of one sample of its inputs, and what these are made of
  // where it is known. Throws UserError on other shapes than at first.
  void build(const std::vector<Shape>& inputs, const std::vector<Dtype>& dtypes = {});
  void build_for(const Source& data);
  void require_built(const char* call) const;
  void require_idle(const char* call) const;
  const Compiled& require_compiled(const char* call) const;
  Backend& use_backend(int threads);
  Backend& where() const;         // after that
  Bytes bytes_on_device() const;  // that its variables hold there
  bool variables_here() const { return variables && variables_on == device; }
  Compiled settings() const;  // as compiled, or float32 without a loss
  bool custom() const;        // a class of the user's, whose steps may be its own
  Compiled step_settings();   // the same with its steps
  void trace_variables(const SampleSpec& sample, int64_t batch);
  // Traces a step of the model's own; layers that it calls and the network lacks join that.
  void trace_own_step(StepKind kind, const SampleSpec& sample, int64_t batch);
  const std::vector<Variable>& weight_handles();
  const WeightHome& home(size_t weight) const;
  bool trains(size_t weight) const;             // as Layer::trainable says now
  std::optional<Dtype> existing_dtype() const;  // of weights that exist
  const char* kind() const;                     // of this model as a layer
  std::string given_name() const;               // "" for a name that nobody gave
  const std::shared_ptr<Layer>& as_member();
  VariableLayout layout(bool training);
  void require_weights();                 // somewhere
  Variables& weights(uint64_t seed = 0);  // here; makes and initialises them when there are none
  // The same to be changed there: this model has the weights then. Whoever read one keeps what was
  // read.
  Variables& weights_to_write(uint64_t seed = 0);

 private:
  void hold(size_t weight) const;
  std::shared_ptr<Variables> make_variables(VariableLayout layout, Bytes capacity) const;
  void move_variables();  // to where it was compiled for; slots stay behind
  void add_member(const std::shared_ptr<Layer>& layer, const std::vector<Shape>& in);
};

}  // namespace pl
