// Callbacks against Keras's own decisions (tests/golden/keras_callbacks.py), and what they write.
#include "train/callbacks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "model/layers.h"
#include "tests/data_files.h"
#include "tests/places.h"
#include "train/model.h"
#include "train/variables.h"

namespace pl::callbacks_test {
namespace {

using test::read_bytes;
using test::TempFolder;

struct Tiny {
  Tiny() : x({Dtype::float32, {8, 2}}), y({Dtype::float32, {8, 1}}), model(Shape{2}, {Dense(1)}) {
    for (int64_t i = 0; i < 16; ++i) x.data_as<float>()[i] = std::sin(static_cast<float>(i));
    for (int64_t i = 0; i < 8; ++i) y.data_as<float>()[i] = std::cos(static_cast<float>(i));
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mean_squared_error"});
  }
  History fit(int64_t epochs, std::vector<CallbackRef> callbacks) {
    return model.fit(x, y,
                     {.batch_size = 4,
                      .epochs = epochs,
                      .verbose = 0,
                      .callbacks = std::move(callbacks),
                      .threads = 1});
  }
  Tensor x, y;
  Sequential model;
};

// Puts the script's values into the logs, and notes what was decided on them.
struct Script : Callback {
  explicit Script(std::vector<double> script) : values(std::move(script)) {}
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    logs["val_figure"] = values[static_cast<size_t>(epoch)];
  }
  std::vector<double> values;
};
struct Notes : Callback {
  void on_epoch_end(int64_t, Logs&) override {
    rates.push_back(model->optimizer().learning_rate);
    Tensors copy;
    const Variables& variables = model->variables();
    for (size_t i = 0; i < variables.layout().entries.size(); ++i) {
      Tensor value(variables.layout().entries[i].meta);
      std::memcpy(value.data(), variables.at(i), static_cast<size_t>(value.meta().bytes()));
      copy.push_back(value);
    }
    weights.push_back(std::move(copy));
  }
  std::vector<double> rates;
  std::vector<Tensors> weights;
};

template <class T>
T option(const Json& options, const char* name, T otherwise) {
  const Json* found = options.find(name);
  if (!found) return otherwise;
  if constexpr (std::is_same_v<T, bool>)
    return found->as_bool(name);
  else if constexpr (std::is_same_v<T, int64_t>)
    return found->as_integer(name);
  else if constexpr (std::is_same_v<T, std::string>)
    return found->as_string(name);
  else
    return found->as_real(name);
}

std::optional<double> maybe(const Json& options, const char* name) {
  const Json* found = options.find(name);
  return found ? std::optional<double>(found->as_real(name)) : std::nullopt;
}

CallbackRef make(const std::string& name, const Json& o, const TempFolder& folder) {
  const std::string monitor = "val_figure", mode = option<std::string>(o, "mode", "auto");
  if (name == "EarlyStopping")
    return EarlyStopping({.monitor = monitor,
                          .min_delta = option(o, "min_delta", 0.0),
                          .patience = option<int64_t>(o, "patience", 0),
                          .mode = mode,
                          .baseline = maybe(o, "baseline"),
                          .restore_best_weights = option(o, "restore_best_weights", false),
                          .start_from_epoch = option<int64_t>(o, "start_from_epoch", 0)});
  if (name == "ReduceLROnPlateau")
    return ReduceLROnPlateau({.monitor = monitor,
                              .factor = option(o, "factor", 0.1),
                              .patience = option<int64_t>(o, "patience", 10),
                              .mode = mode,
                              .min_delta = option(o, "min_delta", 1e-4),
                              .cooldown = option<int64_t>(o, "cooldown", 0),
                              .min_lr = option(o, "min_lr", 0.0)});
  if (name == "ModelCheckpoint")
    return ModelCheckpoint(folder / "{epoch:02d}-{val_figure:.3f}.safetensors",
                           {.monitor = monitor,
                            .save_best_only = option(o, "save_best_only", false),
                            .save_weights_only = true,
                            .mode = mode,
                            .initial_value_threshold = maybe(o, "initial_value_threshold")});
  return LearningRateScheduler(
      [](int64_t epoch, double rate) { return epoch < 4 ? rate : rate * 0.5; });
}

bool equal(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())) != 0)
      return false;
  return a.size() == b.size();
}

TEST(Callbacks, DecideAsKerasDoes) {
  const Json cases = parse_json(read_bytes(::pl::test::golden("keras_callbacks.json")), "cases");
  for (const Json& c : cases.as_array("cases")) {
    SCOPED_TRACE(c.dump());
    const TempFolder folder;
    std::vector<double> values;
    for (const Json& value : c.at("values", "case").as_array("values"))
      values.push_back(value.as_real("value"));
    const auto notes = std::make_shared<Notes>();
    Tiny tiny;
    const std::string name = c.at("callback", "case").as_string("callback");
    tiny.fit(
        static_cast<int64_t>(values.size()),
        {std::make_shared<Script>(values), make(name, c.at("options", "case"), folder), notes});

    const Json::Array& rates = c.at("rates", "case").as_array("rates");
    ASSERT_EQ(notes->rates.size(), rates.size());
    for (size_t e = 0; e < rates.size(); ++e)
      EXPECT_NEAR(notes->rates[e], rates[e].as_real("rate"), 1e-6 * notes->rates[e]) << e;
    if (const Json& restored = c.at("restored", "case"); !restored.is_null()) {
      EXPECT_TRUE(equal(tiny.model.get_weights(),
                        notes->weights[static_cast<size_t>(restored.as_integer("restored"))]));
    }
    std::vector<std::string> wanted, found;
    for (const Json& saved : c.at("saved", "case").as_array("saved"))
      wanted.push_back(saved.as_array("saved")[1].as_string("name") + ".safetensors");
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(found, wanted);
  }
}

// Writes down every hook, for the order.
struct Diary : Callback {
  void on_train_begin(const Logs&) override { text += "T("; }
  void on_train_end(const Logs&) override { text += ")T"; }
  void on_epoch_begin(int64_t e, const Logs&) override { text += "E" + std::to_string(e) + "("; }
  void on_epoch_end(int64_t, Logs& logs) override {
    EXPECT_EQ(logs.count("val_loss"), 1u);
    text += ")E";
  }
  void on_train_batch_begin(int64_t b, const Logs&) override { text += std::to_string(b) + "<"; }
  void on_train_batch_end(int64_t, const Logs& logs) override {
    EXPECT_EQ(logs.count("loss"), 1u);
    text += ">";
  }
  void on_test_begin(const Logs&) override { text += "V("; }
  void on_test_end(const Logs&) override { text += ")V"; }
  void on_test_batch_begin(int64_t b, const Logs&) override { text += std::to_string(b) + "["; }
  void on_test_batch_end(int64_t, const Logs&) override { text += "]"; }
  void on_predict_begin(const Logs&) override { text += "P("; }
  void on_predict_end(const Logs&) override { text += ")P"; }
  void on_predict_batch_begin(int64_t b, const Logs&) override { text += std::to_string(b) + "{"; }
  void on_predict_batch_end(int64_t, const Logs&) override { text += "}"; }
  std::string text;
};

TEST(Callbacks, HooksComeInKerasOrder) {
  Tiny tiny;
  const auto diary = std::make_shared<Diary>();
  tiny.model.fit(tiny.x, tiny.y,
                 {.batch_size = 4,
                  .epochs = 2,
                  .verbose = 0,
                  .callbacks = {diary},
                  .validation_data = {tiny.x, tiny.y},
                  .threads = 1});
  EXPECT_EQ(diary->text, "T(E0(0<>1<>V(0[]1[])V)EE1(0<>1<>V(0[]1[])V)E)T");
}

TEST(Callbacks, SeeEvaluationAndPrediction) {
  Tiny tiny;
  const auto diary = std::make_shared<Diary>();
  const EvaluateOptions options{.batch_size = 4, .callbacks = {diary}, .threads = 1};
  const Results results = tiny.model.evaluate(tiny.x, tiny.y, options);
  EXPECT_EQ(diary->text, "V(0[]1[])V");
  diary->text.clear();
  const Tensor out = tiny.model.predict(tiny.x, options);
  EXPECT_EQ(diary->text, "P(0{}1{})P");
  EXPECT_EQ(diary->model, nullptr) << "gone when the call has returned";
  EXPECT_EQ(results, tiny.model.evaluate(tiny.x, tiny.y, {.batch_size = 4, .threads = 1}));
  EXPECT_TRUE(equal({out}, {tiny.model.predict(tiny.x, {.batch_size = 4, .threads = 1})}));
}

TEST(Callbacks, StopTrainingEndsTheEpochAfterTheBatch) {
  Tiny tiny;
  const auto diary = std::make_shared<Diary>();
  const auto stop = LambdaCallback(
      {.on_train_batch_end = [&](int64_t, const Logs&) { diary->model->stop_training = true; }});
  const History history = tiny.model.fit(tiny.x, tiny.y,
                                         {.batch_size = 4,
                                          .epochs = 3,
                                          .verbose = 0,
                                          .callbacks = {diary, stop},
                                          .validation_data = {tiny.x, tiny.y},
                                          .threads = 1});
  EXPECT_EQ(diary->text, "T(E0(0<>V(0[]1[])V)E)T");
  EXPECT_EQ(history.steps, 1);
}

TEST(Callbacks, AScheduleIsInTheHistory) {
  Tiny tiny;
  const History history =
      tiny.fit(3, {LearningRateScheduler([](int64_t, double rate) { return rate / 2; })});
  const std::vector<double> wanted{0.05, 0.025, 0.0125};
  EXPECT_EQ(history.history.at("learning_rate"), wanted);
}

TEST(Callbacks, CSVLoggerWritesKerasFiles) {
  const TempFolder folder;
  Tiny tiny;
  const auto script = std::make_shared<Script>(std::vector<double>{0.5, 0.1, 1e-5});
  tiny.fit(1, {LambdaCallback({.on_epoch_end = [](int64_t, Logs& logs) { logs["loss"] = 0.25; }}),
               CSVLogger(folder / "a.csv")});
  EXPECT_EQ(read_bytes(folder / "a.csv"), "epoch,loss,val_loss\r\n0,0.25,NA\r\n");
  tiny.fit(2, {LambdaCallback({.on_epoch_end = [](int64_t, Logs& logs) { logs["loss"] = 1e-5; }}),
               script, CSVLogger(folder / "a.csv", {.separator = ";", .append = true})});
  EXPECT_EQ(read_bytes(folder / "a.csv"),
            "epoch,loss,val_loss\r\n0,0.25,NA\r\n0;1e-05;0.5\r\n1;1e-05;0.1\r\n");
  tiny.fit(1, {script, CSVLogger(folder / "a.csv")});
  EXPECT_EQ(read_bytes(folder / "a.csv").find("epoch,loss,val_figure\r\n0,"), 0u);
}

TEST(Callbacks, TerminateOnNaNReturnsAndWithoutItFitThrows) {
  Tiny tiny;
  for (int64_t i = 0; i < 8; ++i) tiny.y.data_as<float>()[i] = 1e30f;
  EXPECT_THROW(tiny.fit(2, {}), BackendError);
  EXPECT_EQ(tiny.fit(2, {TerminateOnNaN()}).steps, 1);
  EXPECT_THROW(tiny.fit(2, {TerminateOnNaN(true)}), BackendError);
}

TEST(Callbacks, ModelCheckpointSavesEveryFewBatches) {
  const TempFolder folder;
  Tiny tiny;  // two batches an epoch
  tiny.fit(3, {ModelCheckpoint(folder / "{epoch}-{batch}", {.save_freq = 3})});
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  const std::vector<std::string> wanted{"2-1", "3-2"};
  EXPECT_EQ(found, wanted);
  const Tensors trained = tiny.model.get_weights();
  Tiny other;
  other.model.load_checkpoint(folder / "3-2");
  EXPECT_TRUE(equal(other.model.get_weights(), trained));
  EXPECT_EQ(other.model.iterations(), 6);
}

// Weights and their averages, epoch by epoch, as the callbacks in front of and behind it see them.
TEST(Callbacks, SwapEMAWeightsShowsTheAverages) {
  Tiny tiny;
  tiny.model.compile(
      {.optimizer = SGD({.learning_rate = 0.1, .use_ema = true, .ema_momentum = 0.5}),
       .loss = "mean_squared_error"});
  const auto before = std::make_shared<Notes>(), after = std::make_shared<Notes>();
  tiny.fit(2, {before, SwapEMAWeights(true), after});
  const auto& entries = before->weights;
  ASSERT_EQ(entries.size(), 2u);
  // kernel, bias, then their averages.
  ASSERT_EQ(entries[0].size(), 4u);
  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.meta().bytes())) == 0;
  };
  EXPECT_FALSE(same(entries[0][0], entries[0][2]));
  EXPECT_TRUE(same(after->weights[0][0], entries[0][2]));
  EXPECT_TRUE(same(after->weights[0][2], entries[0][0]));
  EXPECT_TRUE(same(tiny.model.get_weights()[0], entries[1][2]));
  Tiny plain;
  EXPECT_THROW(plain.fit(1, {SwapEMAWeights()}), UserError);
}

TEST(Callbacks, MisuseIsExplained) {
  EXPECT_THROW(EarlyStopping({.monitor = "val_figure"}), UserError);  // up or down?
  EXPECT_THROW(EarlyStopping({.mode = "best"}), UserError);
  EXPECT_THROW(ReduceLROnPlateau({.factor = 1.5}), UserError);
  EXPECT_THROW(ModelCheckpoint("x.weights.h5", {.save_weights_only = true}), UserError);
  EXPECT_THROW(BackupAndRestore(""), UserError);
  EXPECT_THROW(SaveFreq("batch"), UserError);
  EXPECT_THROW(SaveFreq(0), UserError);
  Tiny tiny;
  EXPECT_THROW(tiny.fit(1, {nullptr}), UserError);
  tiny.model.compile(
      {.optimizer =
           SGD({.learning_rate = CosineDecay({.initial_learning_rate = 0.1, .decay_steps = 10})}),
       .loss = "mean_squared_error"});
  EXPECT_THROW(tiny.fit(1, {ReduceLROnPlateau()}), UserError);
}

TEST(Callbacks, TheCopyOfEarlyStoppingIsOnTheBill) {
  Sequential model(Shape{256}, {Dense(16384), Dense(10, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  const Bytes without = model.plan({.threads = 1}).process;
  const FitOptions options{.callbacks = {EarlyStopping({.restore_best_weights = true})},
                           .threads = 1};
  EXPECT_GE(model.plan(options).process - without, model.count_params() * 4);
  EXPECT_LE(model.plan(options).process - without, model.count_params() * 4 + 4096);
}

}  // namespace
}  // namespace pl::callbacks_test
