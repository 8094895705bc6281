// Model and Sequential: the C++ face, in Keras's words. fit() plans, says what it will use, trains,
// and gives transient memory back to the system; weights, optimiser state and step count stay with
// the model until the next call.
//
//   Sequential model({Dense(64, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
//   model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
//   model.fit(x, y, {.epochs = 5, .memory = "128MiB"});
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "model/layer.h"
#include "model/loss.h"
#include "trace/variable.h"
#include "train/budget.h"
#include "train/optimizer.h"

namespace pl {

// An optimiser, or the name of one with Keras's defaults.
struct OptimizerChoice {
  OptimizerChoice() = default;
  OptimizerChoice(OptimizerRef optimizer) : value(std::move(optimizer)) {}
  OptimizerChoice(const char* name) : value(optimizer_from_name(name ? name : "")) {}
  OptimizerChoice(const std::string& name) : value(optimizer_from_name(name)) {}
  OptimizerRef value;
};

struct LossChoice {
  LossChoice() = default;
  LossChoice(Loss loss);  // such as {"sparse_categorical_crossentropy", .from_logits = true}
  LossChoice(const char* name) : value(loss_from_name(name ? name : "")) {}
  LossChoice(const std::string& name) : value(loss_from_name(name)) {}
  std::optional<Loss> value;
};

struct CompileOptions {
  OptimizerChoice optimizer = {};  // required: Keras's default, RMSprop, is not built yet
  LossChoice loss = {};            // required
  std::vector<std::string> metrics = {};
  Policy dtype = Dtype::float32;  // float32, float64 or kMixedBfloat16
};

// Samples with targets: two tensors, or a Source, which must outlive the call.
struct Data {
  Data() = default;  // none
  Data(Tensor x_values, Tensor y_values) : x(std::move(x_values)), y(std::move(y_values)) {}
  Data(Source& samples) : source(&samples) {}
  bool empty() const { return !source && !x.defined() && !y.defined(); }
  Tensor x, y;
  Source* source = nullptr;
};

struct FitOptions {
  int64_t batch_size = 32;
  int64_t epochs = 1;
  Budget memory = {};     // "128MiB": the most that the whole process may hold
  bool recompute = true;  // to stay within it, activations may be computed a second time
  int64_t split =
      0;  // and the batch be worked off in parts: 0 as needed, 1 never, or so many parts
  Data validation_data = {};
  double validation_split = 0;  // share of samples kept for validation: the last ones
  bool shuffle = true;
  uint64_t seed = 0;  // of shuffles and dropout, and of the weights if these do not exist yet
  int verbose = 1;    // 0 silent, 1 progress bar, 2 one line per epoch
  int threads = 0;    // 0: as in the last call; all cores at first
  std::optional<double> x_scale = {};  // multiplies x; default: as in the last call, 1 at first
};

struct EvaluateOptions {
  int64_t batch_size = 32;
  Budget memory = {};
  int threads = 0;
  std::optional<double> x_scale = {};
};
using PredictOptions = EvaluateOptions;

struct SummaryOptions {
  int64_t batch_size = 32;
  int threads = 0;
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
  History fit(const Tensor& x, const Tensor& y, const FitOptions& options = {});
  History fit(Source& data, const FitOptions& options = {});

  Results evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {});
  Results evaluate(Source& data, const EvaluateOptions& options = {});

  Tensor predict(const Tensor& x, const PredictOptions& options = {});
  Tensor predict(Source& data, const PredictOptions& options = {});  // reads x only

  // What fit() with these arguments would use, to the byte. Reserves and trains nothing.
  PlanReport plan(const Tensor& x, const Tensor& y, const FitOptions& options = {});
  PlanReport plan(Source& data, const FitOptions& options = {});
  // The same before there are data: whole batches of x in the model's dtype, no validation.
  PlanReport plan(const FitOptions& options = {});

  // Keras's table of layers, with the bytes that training takes.
  std::string summary(const SummaryOptions& options = {});

  // Safetensors, with the names of the command line: "conv2d/kernel".
  void save_weights(const std::string& path);
  void load_weights(const std::string& path);

  std::vector<WeightInfo> weights();  // in creation order
  Tensors get_weights();              // copies, as weights()
  void set_weights(const Tensors& values);
  int64_t count_params() const;

  // On values (in a Runtime), or on symbols in pl::function: x (B, ...) with the model's weights,
  // which a GradientTape watches.
  Tensor operator()(const Tensor& x, bool training = false);
  // The weights themselves, as weights(): reading and assigning them is reading and assigning the
  // model's.
  std::vector<Variable> variables();
  std::vector<Variable> trainable_variables();

  int64_t iterations() const;  // updates since compile(): Adam's t
  Optimizer& optimizer();      // its learning_rate may change between calls

 protected:
  Model();
  // The forward pass of a class derived from Model, made of layers that are its members and of op
  // functions. It is built by the first data it sees, and must use the same layers whatever these
  // are; fit() plans and runs it like any other model.
  virtual Tensor call(const Tensor& x, bool training);
  std::unique_ptr<ModelState> state_;

 private:
  void bind();
};

// A plain stack of layers. Without an input shape it is built by the first data it sees.
class Sequential : public Model {
 public:
  Sequential() : Sequential(std::vector<LayerRef>()) {}
  Sequential(std::vector<LayerRef> layers);
  Sequential(const Shape& input, std::vector<LayerRef> layers);
  void add(LayerRef layer);        // throws UserError once built
  void build(const Shape& input);  // shape of one sample
};

}  // namespace pl
