// Recurrent layers through the C++ face: they learn, in bfloat16 too, draw dropout, and what is
// refused.
#include <gtest/gtest.h>

#include <cmath>

#include "plimsoll.h"
#include "tests/messages.h"

namespace pl::recurrent_test {
namespace {

// 48 sequences of 12 numbers; the class says whether the third is positive.
struct Task {
  Tensor x{{Dtype::float32, {48, 12, 2}}}, y{{Dtype::int32, {48}}};
  Task() {
    for (int i = 0; i < 48 * 24; ++i)
      x.data_as<float>()[i] = static_cast<float>((i * 37 + i / 24 * 11) % 17) / 8 - 1;
    for (int i = 0; i < 48; ++i)
      y.data_as<int32_t>()[i] = x.data_as<float>()[i * 24 + 4] > 0 ? 1 : 0;
  }
};

Model classifier(const LayerRef& layer, Policy policy = {}) {
  const Symbolic in = Input({12, 2});
  Model model(in, Dense(2, {.activation = "softmax"})(layer(in)));
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .dtype = policy});
  return model;
}

TEST(Recurrent, LayersRememberAnEarlyStep) {
  const Task task;
  for (const LayerRef& layer :
       {LSTM(8), GRU(8), GRU(8, {.reset_after = false}), SimpleRNN(8, {.go_backwards = true}),
        Bidirectional(LSTM(5), {.merge_mode = "sum"})}) {
    Model model = classifier(layer);
    const History history =
        model.fit(task.x, task.y, {.batch_size = 16, .epochs = 40, .verbose = 0, .threads = 1});
    EXPECT_GT(model.evaluate(task.x, task.y)["accuracy"], 0.95) << layer->kind();
    EXPECT_EQ(history.used_arena, history.planned_arena);
  }
}

TEST(Recurrent, MixedBfloat16Learns) {
  const Task task;
  for (const LayerRef& layer : {LSTM(8), GRU(8)}) {
    Model model = classifier(layer, kMixedBfloat16);
    model.fit(task.x, task.y, {.batch_size = 16, .epochs = 40, .verbose = 0, .threads = 1});
    EXPECT_GT(model.evaluate(task.x, task.y)["accuracy"], 0.9) << layer->kind();
  }
}

TEST(Recurrent, DropoutIsForTrainingAlone) {
  const Task task;
  for (double recurrent : {0.0, 0.5}) {
    Model model = classifier(LSTM(8, {.dropout = 0.5, .recurrent_dropout = recurrent}));
    const History first =
        model.fit(task.x, task.y, {.batch_size = 16, .epochs = 3, .verbose = 0, .threads = 1});
    for (double loss : first.history.at("loss")) EXPECT_TRUE(std::isfinite(loss));
    // Inference draws nothing.
    const Tensor a = model.predict(task.x), b = model.predict(task.x);
    for (int i = 0; i < 96; ++i) EXPECT_EQ(a.data_as<float>()[i], b.data_as<float>()[i]);
  }
}

TEST(Recurrent, NamesWhatIsWrong) {
  EXPECT_NE(test::message_of([] {
              LSTM(0);
            }).find("[LSTM] units: expected a positive number, received 0"),
            std::string::npos);
  EXPECT_NE(test::message_of([] { GRU(4, {.activation = "softmix"}); }).find("received 'softmix'"),
            std::string::npos);
  EXPECT_NE(test::message_of([] {
              LSTM(4, {.stateful = true});
            }).find("[LSTM] batch_size: expected the number of samples of every batch with "),
            std::string::npos);
  EXPECT_NE(test::message_of([] {
              LSTM(4, {.name = "r"})(Input({5}));
            }).find("[build] r: expected a sequence (steps, features), received (5,)"),
            std::string::npos);
  EXPECT_NE(test::message_of([] {
              LSTM(4, {.name = "r"})({Input({5, 3}), Input({4})});
            }).find("expected a sequence, or it and 2 states, received 2 inputs"),
            std::string::npos);
  EXPECT_NE(test::message_of([] {
              Bidirectional(Dense(3));
            }).find("[Bidirectional] expected an LSTM, GRU or SimpleRNN, received Dense"),
            std::string::npos);
  EXPECT_NE(test::message_of([] {
              Bidirectional(GRU(3), {.merge_mode = "max"});
            }).find("merge_mode: expected concat, sum, mul or ave, received 'max'"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::recurrent_test
