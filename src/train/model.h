// Model and Sequential: the C++ face, in Keras's words. fit() plans, says what it will use, trains,
// and gives transient memory back to the system; weights, optimiser state and step count stay with
// the model until the next call.
//
//   Sequential model({Dense(64, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
//   model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
//   model.fit(x, y, {.epochs = 5, .memory = "128MiB"});
#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "data/tensor_source.h"
#include "model/layer.h"
#include "model/loss.h"
#include "model/metric.h"
#include "model/network.h"
#include "trace/variable.h"
#include "train/budget.h"
#include "train/callbacks.h"
#include "train/optimizers.h"
#include "train/step_data.h"

namespace pl {

// An optimiser, or the name of one with Keras's defaults.
struct OptimizerChoice {
  OptimizerChoice() = default;
  OptimizerChoice(OptimizerRef optimizer) : value(std::move(optimizer)) {}
  OptimizerChoice(const char* name) : value(optimizer_from_name(name ? name : "")) {}
  OptimizerChoice(const std::string& name) : value(optimizer_from_name(name)) {}
  OptimizerRef value;
};

// A loss: by name, with options (losses.h), or a function of the user's.
struct LossChoice {
  LossChoice() = default;
  LossChoice(Loss loss);  // such as Loss{"sparse_categorical_crossentropy", true}
  LossChoice(const char* name) : value(loss_from_name(name ? name : "")) {}
  LossChoice(const std::string& name) : value(loss_from_name(name)) {}
  template <class F>
  requires(std::invocable<F, const Tensor&, const Tensor&> && !std::same_as<F, Loss>)
      LossChoice(F function)
      : value(Loss{.name = "loss", .function = std::move(function)}) {}
  std::optional<Loss> value;  // none: the output is not trained on
};

// One for every output, or one for each: in order, or by the outputs' names.
struct LossChoices {
  LossChoices() = default;
  template <class T>
  requires(std::constructible_from<LossChoice, T>) LossChoices(T&& loss)
      : every(LossChoice(std::forward<T>(loss))) {}
  LossChoices(std::initializer_list<LossChoice> each) : in_order(each) {}
  LossChoices(std::initializer_list<std::pair<const char*, LossChoice>> each)
      : by_name(each.begin(), each.end()) {}
  std::optional<LossChoice> every;
  std::vector<LossChoice> in_order;
  std::vector<std::pair<std::string, LossChoice>> by_name;
};

struct LossWeights {
  LossWeights() = default;
  LossWeights(std::initializer_list<double> each) : in_order(each) {}
  LossWeights(std::initializer_list<std::pair<const char*, double>> each)
      : by_name(each.begin(), each.end()) {}
  std::vector<double> in_order;
  std::vector<std::pair<std::string, double>> by_name;
};

// Of a model with one output; of several one for each, in order, or a list for each: {{"mae"},
// {"accuracy", "auc"}}; or by the outputs' names: {{"price", {"mae"}}, ...}.
struct MetricChoices {
  MetricChoices() = default;
  // A template, so that {{"mae"}, {"auc"}} is a list of two metrics, which means the same.
  template <class List = MetricList>
  requires(std::same_as<List, MetricList>) MetricChoices(std::initializer_list<List> each)
      : in_order(each) {}
  MetricChoices(std::initializer_list<Metric> list) : only(list) {}
  MetricChoices(MetricList list) : only(std::move(list)) {}
  MetricChoices(std::initializer_list<std::pair<const char*, MetricList>> each)
      : by_name(each.begin(), each.end()) {}
  MetricList only;
  std::vector<MetricList> in_order;
  std::vector<std::pair<std::string, MetricList>> by_name;
};

// In the order of Keras's arguments; what Keras does not have is behind them.
struct CompileOptions {
  OptimizerChoice optimizer = {};  // none: Keras's default, RMSprop()
  LossChoices loss = {};           // required
  LossWeights loss_weights = {};   // of the outputs; 1 by default
  MetricChoices metrics = {};
  MetricChoices weighted_metrics = {};  // as metrics, with the samples' weights
  // Op by op: the code of layers and steps runs anew on the values of every batch, so that it can
  // print and be stepped through; slower, and without the planner's help to stay within memory:
  // what plan() says of such a run is an upper bound, that of the ops as they are called with every
  // value that a tape holds, and not the bytes that are then used.
  bool run_eagerly = false;
  // Callbacks see batches in steps of so many: on_train_batch_begin before the first of them, and
  // on_train_batch_end behind the last. Steps are planned one by one in any case.
  int64_t steps_per_execution = 1;
  Policy dtype = Dtype::float32;  // float32, float64, kMixedBfloat16 or kMixedFloat16
  // Checkpointing by hand, beside what the planner does: layers, by path or pattern ("block_*"),
  // or "full", whose activations are computed again for the backward part. See model/remat.h.
  std::vector<std::string> remat = {};
  bool fuse = true;  // false: a planned step runs its ops one by one as they were called
  // "cuda" or "cuda:1": weights, optimiser and steps are on that GPU, and `memory` is of its
  // memory; empty: the device in scope (pl::device), else the processor.
  std::string device = "";
  bool deterministic = true;  // on a GPU: only algorithms that give the same bits again
};

// The values of a model's inputs, of its targets or of sample weights: one tensor, or one for each
// in order or by name. Samples are rows.
struct Values {
  Values() = default;
  Values(Tensor tensor) : list{{"", std::move(tensor)}} {}
  Values(std::initializer_list<Tensor> tensors) : Values(Tensors(tensors)) {}
  Values(const Tensors& tensors) {
    for (const Tensor& tensor : tensors) list.push_back({"", tensor});
  }
  Values(std::initializer_list<std::pair<const char*, Tensor>> tensors) {
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  }
  bool empty() const { return list.empty(); }
  std::vector<NamedTensor> list;  // names are empty, or all given
};

class Dataset;  // data/pipeline/dataset.h

// Samples with targets, and weights where they have some: tensors, a Dataset of batches, or a
// Source, which must outlive the call.
struct Data {
  Data() = default;  // none
  Data(Values x_values, Values y_values, Values weights = {})
      : x(std::move(x_values)), y(std::move(y_values)), sample_weight(std::move(weights)) {}
  Data(Source& samples) : source(&samples) {}
  Data(const Dataset& batches);
  bool empty() const { return !source && !dataset && x.empty() && y.empty(); }
  Values x, y, sample_weight;
  Source* source = nullptr;
  std::shared_ptr<const Dataset> dataset;
};

// In the order of Keras's arguments; what Keras does not have is behind them.
struct FitOptions {
  int64_t batch_size = 32;
  int64_t epochs = 1;
  int verbose = 1;                          // 0 silent, 1 progress bar, 2 one line per epoch
  std::vector<CallbackRef> callbacks = {};  // callbacks.h
  double validation_split = 0;              // share of samples kept for validation: the last ones
  Data validation_data = {};
  bool shuffle = true;
  // Of each class in the loss, for targets that are one class a sample; 1 for a class that is not
  // named. Of training samples only.
  std::map<int64_t, double> class_weight = {};
  // Of each sample in the loss: (samples,), or for each position (samples, T); by output if need
  // be.
  Values sample_weight = {};
  int64_t initial_epoch = 0;  // epochs before this one are done already
  // 0: one pass over the samples. Else the next epoch goes on where one ends; where the samples
  // end, they begin anew (Keras cuts that epoch short and warns).
  int64_t steps_per_epoch = 0;
  int64_t validation_steps = 0;       // of validation data: the first so many batches; 0: all
  int64_t validation_batch_size = 0;  // 0: as batch_size
  int64_t validation_freq = 1;        // after every so many epochs
  Budget memory = {};                 // "128MiB": the most that the whole process may hold
  bool recompute = true;  // to stay within it, activations may be computed a second time
  int64_t split =
      0;  // and the batch be worked off in parts: 0 as needed, 1 never, or so many parts
  bool offload = true;      // and, on a GPU, activations be in host memory between two uses:
  Budget host_memory = {};  // the most of it; by default half of what is free
  uint64_t seed = 0;        // of shuffles and dropout, and of the weights if these do not exist yet
  int threads = 0;          // 0: as in the last call; all cores at first
  std::optional<double> x_scale = {};  // multiplies x; default: 1
};

// One batch: all samples given.
struct BatchOptions {
  Values sample_weight = {};
  std::map<int64_t, double> class_weight = {};  // of train_on_batch
  Budget memory = {};
  int threads = 0;
  std::optional<double> x_scale = {};
  uint64_t seed = 0;
};

struct EvaluateOptions {
  int64_t batch_size = 32;
  Values sample_weight = {};                // not for predict
  int64_t steps = 0;                        // the first so many batches; 0: all
  std::vector<CallbackRef> callbacks = {};  // their on_test_* or on_predict_* hooks
  Budget memory = {};
  int threads = 0;
  std::optional<double> x_scale = {};  // default: as in the last fit
};
using PredictOptions = EvaluateOptions;

struct SummaryOptions {
  int64_t batch_size = 32;
  int threads = 0;
  // What training would take if a layer were another, for each layer: "activation" (not kept for
  // the backward part but computed again), "dtype", "size" (half the units or filters). Each
  // figure is that of a plan made for it. what_if.h
  std::vector<std::string> what_if = {};
  Budget memory = {};  // plans keep within it
};

struct History {
  std::vector<int64_t> epoch;                          // 0, 1, ...
  std::map<std::string, std::vector<double>> history;  // "loss", "accuracy", "val_loss", ...
  int64_t steps = 0;
  double step_ms = 0;  // median
  // Memory in bytes: what was planned before step 1, and what the system says was used.
  Bytes planned_process = 0, measured_process = 0;
  Bytes planned_arena = 0, used_arena = 0;
};

using Results = std::map<std::string, double>;  // "loss", "accuracy"

struct WeightInfo {
  std::string path;  // "dense/kernel"
  Meta meta;
  bool trainable;
};

struct ModelState;
struct WhatIfReport;  // what_if.h

// A network of layers, called functionally. Movable, not copyable. Not for several threads at once.
class Model {
 public:
  Model(const Symbolic& input, const Symbolic& output);
  Model(const std::vector<Symbolic>& inputs, const std::vector<Symbolic>& outputs);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  virtual ~Model();

  // Settles how to train. Weights stay; the optimiser starts anew. Throws UserError.
  void compile(const CompileOptions& options);

  // Trains. Throws UserError or DataError for what does not match the model, and DoesNotFit (with
  // the smallest budget and the largest batch that fit) before step 1 and with weights untouched;
  // BackendError when the loss is no longer finite.
  History fit(const Values& x, const Values& y, const FitOptions& options = {});
  History fit(Source& data, const FitOptions& options = {});
  // Elements are batches: x, or x and y, or these and sample weights. Its own batches and order are
  // taken, batch_size and shuffle are not. Data without end need steps_per_epoch; data of
  // unknown number are read through once before, so that all batch sizes are planned.
  History fit(const Dataset& data, const FitOptions& options = {});

  Results evaluate(const Values& x, const Values& y, const EvaluateOptions& options = {});
  Results evaluate(Source& data, const EvaluateOptions& options = {});
  Results evaluate(const Dataset& data, const EvaluateOptions& options = {});

  Tensor predict(const Values& x, const PredictOptions& options = {});
  Tensor predict(Source& data, const PredictOptions& options = {});  // reads x only
  Tensor predict(const Dataset& data, const PredictOptions& options = {});
  // Of a model with several outputs: all of them.
  Tensors predict_all(const Values& x, const PredictOptions& options = {});
  Tensors predict_all(Source& data, const PredictOptions& options = {});
  Tensors predict_all(const Dataset& data, const PredictOptions& options = {});

  // One step on these samples, as they are; figures are this batch's alone. Repeated calls with
  // batches of one size plan once.
  Results train_on_batch(const Values& x, const Values& y, const BatchOptions& options = {});
  Results test_on_batch(const Values& x, const Values& y, const BatchOptions& options = {});
  Tensor predict_on_batch(const Values& x, const BatchOptions& options = {});

  // What fit() with these arguments would use, to the byte. Reserves and trains nothing.
  PlanReport plan(const Values& x, const Values& y, const FitOptions& options = {});
  PlanReport plan(Source& data, const FitOptions& options = {});
  PlanReport plan(const Dataset& data, const FitOptions& options = {});
  // The same before there are data: whole batches of x in the model's dtype, no validation.
  PlanReport plan(const FitOptions& options = {});

  // Keras's table of layers, with the bytes that training takes.
  std::string summary(const SummaryOptions& options = {});
  WhatIfReport what_if(const SummaryOptions& options);  // its last part as figures

  // Safetensors, with the names of the command line: "conv2d/kernel". Weights are loaded from such
  // a file or from a checkpoint's folder.
  void save_weights(const std::string& path);
  void load_weights(const std::string& path);

  // The whole state of training between two calls: weights, optimiser, counts. A folder that is the
  // old checkpoint until the new one is durable. load_checkpoint takes what ModelCheckpoint and
  // BackupAndRestore wrote too; it throws DataError with the model untouched.
  void save_checkpoint(const std::string& folder);
  void load_checkpoint(const std::string& folder);

  std::vector<WeightInfo> weights();  // in creation order
  Tensors get_weights();              // copies, as weights()
  void set_weights(const Tensors& values);
  // States that stateful layers carry from batch to batch become zero: Keras's layer.reset_state()
  // of all of them, or of one by name or path.
  void reset_state(const std::string& layer = "");
  int64_t count_params() const;

  // A model is a layer of another: its layers are part of that, under its name ("inner/dense").
  // Weights belong to layers: models that share a layer share its weights, whoever trains them.
  Symbolic operator()(const Symbolic& in) const;
  std::vector<Symbolic> operator()(const std::vector<Symbolic>& in) const;
  operator LayerRef() const;
  // The same; it runs in that mode whatever the outer model does: Keras's base(x, training=False).
  LayerRef as_layer(std::optional<bool> training = {}) const;
  const std::string& name() const;
  void set_name(std::string name);
  // By name or path ("inner/dense"). Throws UserError.
  LayerRef get_layer(const std::string& name) const;
  std::vector<LayerRef> layers() const;  // in the order of their first calls
  // The symbols that it was made of; a Sequential's, once it is built. Models that share some of
  // its layers can be made of them, see LayerRef::output(). Throws UserError for a subclass.
  std::vector<Symbolic> inputs() const;
  std::vector<Symbolic> outputs() const;
  void set_trainable(bool trainable);  // of all its layers; for fit(), compile() settles it

  // For shapes of one sample; without it a model is built by the first data it sees. `dtypes`: of
  // the data, for a class derived from Model that reads integers.
  void build(const Shape& input);
  void build(std::initializer_list<Dim> input) { build(Shape(input)); }  // build({28, 28, 1})
  void build(const std::vector<Shape>& inputs, const std::vector<Dtype>& dtypes = {});

  // On values (in a Runtime), or on symbols in pl::function: x (B, ...) with the model's weights,
  // which a GradientTape watches.
  Tensor operator()(const Tensor& x, bool training = false);
  Tensors operator()(const Tensors& xs, bool training = false);  // of all inputs; all outputs
  // The weights themselves, as weights(): reading and assigning them is reading and assigning the
  // model's.
  std::vector<Variable> variables();
  std::vector<Variable> trainable_variables();

  // What regularizers and layers' add_loss() give, of the last call: of the forward pass, in a step
  // (where compute_loss() has them already).
  Tensors losses();

  // Keras's optimizer.iterations, Adam's t: updates since compile(). As many steps as
  // gradient_accumulation_steps says are one update; one that loss scaling left out is none.
  int64_t iterations() const;
  Optimizer& optimizer();  // its learning_rate may change between calls

 protected:
  Model();
  // The forward pass of a class derived from Model, made of layers that are its members and of op
  // functions. It is built by the first data it sees, and must use the same layers whatever these
  // are; fit() plans and runs it like any other model. The second form is for several inputs or
  // outputs, whose names are output_1, output_2, ... Integers stay integers (int32).
  virtual Tensor call(const Tensor& x, bool training);
  virtual Tensors call(const Tensors& xs, bool training);

  // One step of fit() and one of evaluate(), in Keras's words: a class derived from Model may say
  // what they are. They run on symbols, once for each batch size; fit() plans what they did like
  // any other step, within its budget. Weights are trainable_variables(); layers and models that
  // are members are called as in call(); optimizer() or others apply_gradients(). The answer has
  // figures by name, "loss" among them, which are shown as means over samples.
  virtual TensorLogs train_step(const StepData& data);
  virtual TensorLogs test_step(const StepData& data);
  // For these: compile()'s losses of a prediction, with what regularizers add; its metrics.
  Tensor compute_loss(const StepData& data, const Tensor& y_pred);
  Tensor compute_loss(const StepData& data, const Tensors& y_pred);
  TensorLogs compute_metrics(const StepData& data, const Tensor& y_pred);
  TensorLogs compute_metrics(const StepData& data, const Tensors& y_pred);
  std::shared_ptr<ModelState> state_;  // shared with models that were made of this one

 private:
  void bind();
};

// A plain stack of layers. Without an input shape it is built by the first data it sees.
class Sequential : public Model {
 public:
  Sequential() : Sequential(std::vector<LayerRef>()) {}
  Sequential(std::vector<LayerRef> layers);
  Sequential(const Shape& input, std::vector<LayerRef> layers);
  void add(LayerRef layer);  // throws UserError once built
};

}  // namespace pl
