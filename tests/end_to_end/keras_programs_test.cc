// Whole programs after the examples of keras.io, against what Keras shows for them
// (tests/golden/keras_programs.py, which has the same programs in Python, and keras_second.py).
// They are written as people write them: without a Runtime, with zip, trackers and members.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/data_files.h"
#include "tests/keras_program.h"
#include "tests/places.h"

namespace pl::test::keras_programs_test {
namespace {

void apply(Optimizer& optimizer, GradientTape& tape, const Tensor& loss,
           const std::vector<Variable>& weights) {
  optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights));
}

class Sampling : public Layer {
 public:
  const char* kind() const override { return "Sampling"; }
  Shape build(const std::vector<Shape>& in) override { return in[0]; }
  Tensor call(const LayerCall& call) const override {
    const Tensor &mean = call.in[0], &log_var = call.in[1];
    return mean + ops::exp(0.5 * log_var) * ops::sin(mean * 50.0);
  }
};

class VAE : public Model {
 public:
  VAE(Model& encoder, Model& decoder) : encoder_(encoder), decoder_(decoder) {}
  TensorLogs train_step(const StepData& data) override {
    const Tensor x = data.x();
    GradientTape tape;
    const Tensors code = encoder_(Tensors{x}, true);
    const Tensor &mean = code[0], &log_var = code[1];
    const Tensor p = ops::clip(decoder_(code[2], true), 1e-7, 1 - 1e-7);
    const Tensor bce = -(x * ops::log(p) + (1 - x) * ops::log(1 - p));
    const Tensor kl =
        ops::mean(ops::sum(-0.5 * (1 + log_var - ops::square(mean) - ops::exp(log_var)), 1));
    const Tensor loss = ops::mean(ops::sum(ops::mean(bce, -1), {1, 2})) + kl;
    apply(optimizer(), tape, loss, trainable_variables());
    total_.update_state(loss);
    kl_.update_state(kl);
    return {{"loss", total_.result()}, {"kl_loss", kl_.result()}};
  }

 private:
  Model &encoder_, &decoder_;
  metrics::Mean total_{"total_loss"}, kl_{"kl_loss"};
};

TEST(KerasPrograms, VariationalAutoencoder) {
  const Symbolic in = Input({12, 12, 1});
  Symbolic x = Conv2D(4, 3, {.strides = 2, .padding = "same", .activation = "relu"})(in);
  x = Dense(8, {.activation = "relu"})(Flatten()(x));
  const Symbolic mean = Dense(2, {.name = "z_mean"})(x), log_var = Dense(2, {.name = "z_var"})(x);
  Model encoder({in}, {mean, log_var, LayerRef(std::make_shared<Sampling>())({mean, log_var})});
  const Symbolic z = Input({2});
  x = Reshape({6, 6, 4})(Dense(6 * 6 * 4, {.activation = "relu"})(z));
  Model decoder(
      z, Conv2DTranspose(1, 3, {.strides = 2, .padding = "same", .activation = "sigmoid"})(x));
  encoder.set_name("encoder"), decoder.set_name("decoder");
  settle(encoder), settle(decoder);
  VAE vae(encoder, decoder);
  vae.compile({.optimizer = Adam()});
  Shown shown = vae.fit(wave({20, 12, 12, 1}, 0, 0.5) + 0.5, {}, with(8, 3)).history;
  shown["predict"] = {total(decoder.predict(wave({3, 2}, 1)))};
  expect_shown("vae", shown, 1e-3);  // sin(50 * mean) makes much of the last digits
}

class WGAN : public Model {
 public:
  WGAN(Model& critic, Model& generator) : critic_(critic), generator_(generator) {}
  void compile(const OptimizerRef& d, const OptimizerRef& g) {
    Model::compile({.optimizer = g});
    d_optimizer_ = d;
  }
  Tensor penalty(const Tensor& real, const Tensor& fake) {
    const Dim batch = real.shape()[0];
    const Tensor share = ops::reshape(ops::arange(batch) / batch, {batch, 1, 1, 1});
    const Tensor between = real + share * (fake - real);
    GradientTape tape;
    tape.watch(between);
    const Tensor slope = tape.gradient(critic_(between, true), {between})[0];
    return ops::mean(ops::square(ops::sqrt(ops::sum(ops::square(slope), {1, 2, 3})) - 1.0));
  }
  TensorLogs train_step(const StepData& data) override {
    const Tensor real = data.x(), noise = data.y();
    Tensor d_loss, g_loss;
    {
      GradientTape tape;
      const Tensor fake = generator_(noise, true);
      d_loss = ops::mean(critic_(fake, true)) - ops::mean(critic_(real, true));
      d_loss = d_loss + 10.0 * penalty(real, fake);
      apply(*d_optimizer_, tape, d_loss, critic_.trainable_variables());
    }
    {
      GradientTape tape;
      g_loss = -ops::mean(critic_(generator_(noise, true), true));
      apply(optimizer(), tape, g_loss, generator_.trainable_variables());
    }
    return {{"d_loss", d_loss}, {"g_loss", g_loss}};
  }

 private:
  Model &critic_, &generator_;
  OptimizerRef d_optimizer_;
};

Sequential critic(bool normalised) {
  std::vector<LayerRef> layers = {Conv2D(8, 5, {.strides = 2, .padding = "same"}), LeakyReLU(0.2),
                                  Conv2D(8, 5, {.strides = 2, .padding = "same"})};
  if (normalised) layers.push_back(BatchNormalization());
  for (const LayerRef& layer : {LeakyReLU(0.2), Flatten(), Dense(1)}) layers.push_back(layer);
  return Sequential(Shape{8, 8, 1}, layers);
}

TEST(KerasPrograms, GanWithAGradientPenalty) {
  Sequential d = critic(false);
  Sequential g(
      Shape{6},
      {Dense(64, {.use_bias = false}), BatchNormalization(), LeakyReLU(0.2), Reshape({2, 2, 16}),
       UpSampling2D(2), Conv2D(8, 3, {.padding = "same", .use_bias = false}), BatchNormalization(),
       LeakyReLU(0.2), UpSampling2D(2), Conv2D(1, 3, {.padding = "same", .activation = "tanh"})});
  d.set_name("critic"), g.set_name("generator");
  settle(d), settle(g);
  WGAN wgan(d, g);
  auto adam = [] { return Adam({.learning_rate = 2e-4, .beta_1 = 0.5, .beta_2 = 0.9}); };
  wgan.compile(adam(), adam());
  Shown shown = wgan.fit(wave({32, 8, 8, 1}, 0), wave({32, 6}, 1), with(8, 2)).history;
  shown["weights"] = {weight_sum(d) + weight_sum(g)};
  expect_shown("wgan_gp", shown);
}

TEST(KerasPrograms, SlopesOfAPenaltyThroughBatchNormalization) {
  const Json wanted = parse_json(test::read_bytes(golden("keras_second.json")), "second");
  Sequential model = critic(true);
  settle(model);
  const Tensor x = wave({8, 8, 8, 1}, 0);
  GradientTape outer;
  GradientTape inner;
  inner.watch(x);
  const Tensor slope = inner.gradient(model(x, true), {x})[0];
  const Tensor penalty =
      ops::mean(ops::square(ops::sqrt(ops::sum(ops::square(slope), {1, 2, 3})) - 1.0));
  EXPECT_NEAR(item(penalty), wanted.at("penalty", "second").as_real("penalty"), 1e-3);
  const auto weights = model.trainable_variables();
  const Tensors slopes = outer.gradient(penalty, weights);
  const auto& theirs = wanted.at("slopes", "second").as_array("slopes");
  ASSERT_EQ(slopes.size(), theirs.size());
  for (size_t i = 0; i < slopes.size(); ++i) {
    const double ours = slopes[i].defined() ? total(ops::abs(slopes[i])) : 0;
    const double their = theirs[i].as_real("slope");
    // A bias in front of the normalisation has no slope but rounding's.
    EXPECT_NEAR(ours, their, 1e-5 * their + 1e-2) << weights[i].name();
  }
}

TEST(KerasPrograms, SiameseTowers) {
  const Symbolic in = Input({12, 12, 1});
  Symbolic x = BatchNormalization()(in);
  x = AveragePooling2D(2)(Conv2D(4, 5, {.activation = "tanh"})(x));
  x = Dense(10, {.activation = "tanh"})(BatchNormalization()(Flatten()(x)));
  Model tower(in, x);
  tower.set_name("tower");
  const Symbolic a = Input({12, 12, 1}, "a"), b = Input({12, 12, 1}, "b");
  const Symbolic far = Lambda([](const Tensors& v) {
    return ops::sqrt(ops::maximum(ops::sum(ops::square(v[0] - v[1]), 1, true), 1e-7));
  })({tower(a), tower(b)});
  Model model({a, b}, {Dense(1, {.activation = "sigmoid"})(BatchNormalization()(far))});
  settle(model);
  auto contrastive = [](const Tensor& y, const Tensor& p) {
    return ops::mean((1 - y) * ops::square(p) + y * ops::square(ops::maximum(1.0 - p, 0)));
  };
  model.compile({.optimizer = "RMSprop", .loss = contrastive, .metrics = {"accuracy"}});
  const Tensor left = wave({48, 12, 12, 1}, 0), right = wave({48, 12, 12, 1}, 2);
  Tensor y({Dtype::float32, {48}});
  for (int i = 0; i < 48; ++i) y.data_as<float>()[i] = (i * 5 + 1) % 3 == 0 ? 1 : 0;
  FitOptions options = with(16, 3);
  options.validation_data = {{right, left}, y};
  Shown shown = model.fit({left, right}, y, options).history;
  shown["predict"] = {total(model.predict({left, right}))};
  expect_shown("siamese", shown);
}

class Distiller : public Model {
 public:
  Distiller(Model& student, Model& teacher) : student_(student), teacher_(teacher) {}
  Tensor call(const Tensor& x, bool training) override { return student_(x, training); }
  TensorLogs train_step(const StepData& data) override {
    const Tensor teacher = teacher_(data.x(), false);
    GradientTape tape;
    const Tensor p = (*this)(data.x(), true);
    const Tensor distilled =
        losses::KLDivergence()(ops::softmax(teacher / 10, 1), ops::softmax(p / 10, 1)) * 100;
    const Tensor loss = 0.1 * compute_loss(data, p) + 0.9 * distilled;
    apply(optimizer(), tape, loss, student_.trainable_variables());
    TensorLogs logs = compute_metrics(data, p);
    logs["loss"] = loss, logs["distillation_loss"] = distilled;
    return logs;
  }

 private:
  Model &student_, &teacher_;
};

TEST(KerasPrograms, Distillation) {
  auto net = [](const char* name, int64_t a, int64_t b) {
    Sequential model(Shape{14, 14, 1},
                     {Conv2D(a, 3, {.strides = 2, .padding = "same"}), LeakyReLU(0.2),
                      MaxPooling2D(2, {.strides = 1, .padding = "same"}),
                      Conv2D(b, 3, {.strides = 2, .padding = "same"}), Flatten(), Dense(10)});
    model.set_name(name);
    settle(model);
    return model;
  };
  Sequential teacher = net("teacher", 16, 16), student = net("student", 4, 8);
  const Tensor x = wave({60, 14, 14, 1}, 0), y = labels(60, 10);
  const Loss loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  teacher.compile({.optimizer = Adam(), .loss = loss});
  Shown shown = teacher.fit(x, y, with(20, 2)).history;
  Distiller distiller(student, teacher);
  distiller.compile(
      {.optimizer = Adam(), .loss = loss, .metrics = {metrics::SparseCategoricalAccuracy()}});
  for (const auto& [name, numbers] : distiller.fit(x, y, with(20, 3)).history)
    if (name != "loss") shown[name] = numbers;
  shown["weights"] = {weight_sum(student) + weight_sum(teacher)};
  expect_shown("distillation", shown);
}

TEST(KerasPrograms, SequencesToSequences) {
  constexpr Dim kIn = 6, kOut = 7, kWords = 9, kUnits = 12;
  const Symbolic encoder_in = Input({kIn, kWords}), decoder_in = Input({kOut, kWords});
  const auto encoded = LSTM(kUnits, {.return_state = true}).all({encoder_in});
  const Symbolic h = encoded[1], c = encoded[2];
  const LayerRef lstm = LSTM(kUnits, {.return_sequences = true, .return_state = true});
  const LayerRef dense = Dense(kWords, {.activation = "softmax"});
  Model model({encoder_in, decoder_in}, {dense(lstm.all({decoder_in, h, c})[0])});
  settle(model);
  model.compile(
      {.optimizer = "rmsprop", .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
  auto hot = [](const Shape& shape, int64_t k) { return ops::one_hot(tokens(shape, k), kWords); };
  const Tensor ex = hot({40, kIn}, 9), dx = hot({40, kOut}, 8), dy = hot({40, kOut}, 7);
  FitOptions options = with(16, 3);
  options.validation_split = 0.2;
  Shown shown = model.fit({ex, dx}, dy, options).history;

  Model encoder({encoder_in}, {h, c});
  const Symbolic one = Input({1, kWords}), ih = Input({kUnits}), ic = Input({kUnits});
  const auto step = lstm.all({one, ih, ic});
  Model decoder({one, ih, ic}, {dense(step[0]), step[1], step[2]});
  Tensors states = encoder.predict_all(ex);
  Tensor target = hot({40, 1}, 5);
  for (int i = 0; i < 3; ++i) {
    const Tensors out = decoder.predict_all({target, states[0], states[1]});
    shown["steps"].push_back(total(ops::max(out[0], -1)));
    target = ops::one_hot(ops::argmax(out[0], -1), kWords);
    states = {out[1], out[2]};
  }
  shown["state"] = {total(states[0])};
  expect_shown("seq2seq", shown);
}

TEST(KerasPrograms, TransferLearning) {
  const Symbolic in = Input({16, 16, 3});
  Symbolic x = BatchNormalization()(Conv2D(8, 3, {.padding = "same", .name = "first"})(in));
  x = Conv2D(8, 3, {.padding = "same"})(MaxPooling2D()(ReLU()(x)));
  Model base(in, ReLU()(BatchNormalization()(x)));
  base.set_name("base");
  settle(base);
  base.set_trainable(false);
  const Symbolic image = Input({16, 16, 3});
  x = GlobalAveragePooling2D()(base.as_layer(false)(Rescaling(2.0, -0.5)(image)));
  Model model(image, Dense(1)(x));
  settle(model);
  const Tensor data = wave({48, 16, 16, 3}, 0), y = ops::cast(labels(48, 2), "float32");
  Shown shown;
  for (const auto& [stage, rate] : {std::pair{"head_", 1e-3}, {"fine_", 1e-5}}) {
    model.compile({.optimizer = Adam({.learning_rate = rate}),
                   .loss = losses::BinaryCrossentropy({.from_logits = true}),
                   .metrics = {metrics::BinaryAccuracy(0.5)}});
    for (const auto& [name, numbers] : model.fit(data, y, with(16, 2)).history)
      shown[stage + name] = numbers;
    for (const LayerRef& layer : base.layers())
      layer->trainable =
          layer->name != "first" && layer->kind() != std::string("BatchNormalization");
  }
  shown["weights"] = {weight_sum(model)};
  expect_shown("transfer", shown);
}

class MixUp : public Sequential {
 public:
  using Sequential::Sequential;
  TensorLogs train_step(const StepData& data) override {
    const Tensor share = ops::reshape(ops::linspace(0.1, 0.9, data.x().shape()[0]), {-1, 1});
    const Tensor of_x = ops::reshape(share, {-1, 1, 1, 1});
    StepData mixed = data;
    mixed.xs[0] = of_x * data.x() + (1 - of_x) * ops::flip(data.x(), 0);
    mixed.ys[0] = share * data.y() + (1 - share) * ops::flip(data.y(), 0);
    return Sequential::train_step(mixed);
  }
};

TEST(KerasPrograms, MixUp) {
  MixUp model(Shape{14, 14, 1},
              {Conv2D(8, 3, {.activation = "gelu"}), GlobalMaxPooling2D(), Dense(10)});
  settle(model);
  const Loss loss = losses::CategoricalCrossentropy({.from_logits = true, .label_smoothing = 0.1});
  model.compile({.optimizer = AdamW({.learning_rate = 2e-3, .weight_decay = 1e-2}),
                 .loss = loss,
                 .metrics = {"accuracy"}});
  FitOptions options = with(16, 3);
  options.validation_data = {wave({20, 14, 14, 1}, 1), ops::one_hot(labels(20, 10), 10)};
  expect_shown(
      "mixup",
      model.fit(wave({64, 14, 14, 1}, 0), ops::one_hot(labels(64, 10), 10), options).history);
}

TEST(KerasPrograms, CallbacksTogether) {
  Sequential model;
  model.add(Dense(16, {.activation = "relu", .kernel_regularizer = "l2"}));
  model.add(Dense(3, {.activation = "softmax"}));
  model.build({8});
  settle(model);
  model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  FitOptions options = with(10, 25);
  options.callbacks = {
      EarlyStopping({.monitor = "val_loss", .patience = 6, .restore_best_weights = true}),
      ReduceLROnPlateau({.monitor = "val_loss", .factor = 0.5, .patience = 2, .min_lr = 1e-4}),
      LearningRateScheduler(
          [](int64_t epoch, double rate) { return epoch < 2 ? rate : rate * 0.99; })};
  options.validation_data = {wave({30, 8}, 5), labels(30, 3)};
  Shown shown = model.fit(wave({90, 8}, 0), labels(90, 3), options).history;
  shown["weights"] = {weight_sum(model)};
  expect_shown("callbacks", shown, 1e-4);
}

}  // namespace
}  // namespace pl::test::keras_programs_test
