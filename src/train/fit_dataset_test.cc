// fit, evaluate and predict on a Dataset: the same numbers as on tensors, within the plan.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "data/pipeline/dataset.h"
#include "model/layers.h"
#include "tests/messages.h"
#include "train/model.h"

namespace pl::fit_dataset_test {
namespace {

struct Samples {
  Tensor x, y;
};

Samples samples(int64_t n) {
  Samples made{Tensor(Meta{Dtype::float32, Shape{n, 4}}), Tensor(Meta{Dtype::int64, Shape{n}})};
  for (int64_t i = 0; i < n * 4; ++i)
    made.x.data_as<float>()[i] = static_cast<float>((i * 37) % 17) / 17.0f - 0.5f;
  for (int64_t i = 0; i < n; ++i) made.y.data_as<int64_t>()[i] = (i * 5) % 3;
  return made;
}

Sequential classifier() {
  Sequential model(Shape{4},
                   {Dense(8, {.activation = "relu"}), Dense(3, {.activation = "softmax"})});
  model.compile(
      {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
  return model;
}

bool equal_weights(Model& a, Model& b) {
  const Tensors left = a.get_weights(), right = b.get_weights();
  for (size_t i = 0; i < left.size(); ++i)
    if (std::memcmp(left[i].data(), right[i].data(), static_cast<size_t>(left[i].meta().bytes())))
      return false;
  return true;
}

TEST(FitDataset, GivesTheBitsOfTensors) {
  const Samples data = samples(50);
  const Dataset batches = Dataset::from_tensor_slices({data.x, data.y})
                              .map([](const Element& e) { return e; }, {.num_parallel_calls = 3})
                              .batch(8)
                              .prefetch(AUTOTUNE)
                              .with_options({.memory = "1MiB", .threads = 2});
  Sequential a = classifier(), b = classifier();
  const FitOptions options{
      .batch_size = 8, .epochs = 3, .verbose = 0, .shuffle = false, .threads = 1};
  FitOptions with_validation = options;
  with_validation.validation_data = Data(batches);
  const History one = a.fit(data.x, data.y, options), two = b.fit(batches, with_validation);
  EXPECT_EQ(one.history.at("loss"), two.history.at("loss"));
  EXPECT_EQ(two.history.at("val_loss").size(), 3u);
  EXPECT_EQ(two.steps, 21);
  EXPECT_TRUE(equal_weights(a, b));
  EXPECT_EQ(a.evaluate(data.x, data.y, {.batch_size = 8}), b.evaluate(batches));
  const Tensor p = a.predict(data.x, {.batch_size = 8}), q = b.predict(batches);
  EXPECT_EQ(p.shape(), (Shape{50, 3}));
  EXPECT_EQ(std::memcmp(p.data(), q.data(), static_cast<size_t>(p.meta().bytes())), 0);
}

TEST(FitDataset, ShufflesAnewInEachEpochAndGoesOnWhereItStood) {
  const Samples data = samples(48);
  const Dataset batches = Dataset::from_tensor_slices({data.x, data.y}).shuffle().batch(8);
  Sequential a = classifier(), b = classifier();
  a.fit(batches, {.epochs = 4, .verbose = 0, .threads = 1});
  // Four calls of one epoch are the same four epochs.
  for (int i = 0; i < 4; ++i) b.fit(batches, {.epochs = 1, .verbose = 0, .threads = 1});
  EXPECT_TRUE(equal_weights(a, b));
}

TEST(FitDataset, DataWithoutEndNeedStepsAndGoOnAcrossEpochs) {
  const Samples data = samples(20);
  const Dataset endless = Dataset::from_tensor_slices({data.x, data.y}).repeat().batch(8);
  Sequential a = classifier(), b = classifier();
  EXPECT_NE(test::message_of([&] { a.fit(endless, {.verbose = 0}); }).find("steps_per_epoch"),
            std::string::npos);
  EXPECT_EQ(a.fit(endless, {.epochs = 2, .verbose = 0, .steps_per_epoch = 3, .threads = 1}).steps,
            6);
  // 6 batches of 8: the same as the 48 samples in a row.
  b.fit(Dataset::from_tensor_slices({data.x, data.y}).repeat().take(48).batch(8),
        {.verbose = 0, .threads = 1});
  EXPECT_TRUE(equal_weights(a, b));
}

TEST(FitDataset, EpochsOfFewerStepsGoOnInTheSamples) {
  const Samples data = samples(48);
  Sequential a = classifier(), b = classifier();
  FitOptions halves{.batch_size = 8, .epochs = 4, .verbose = 0, .shuffle = false, .threads = 1};
  FitOptions whole = halves;
  halves.steps_per_epoch = 3;  // of 6
  whole.epochs = 2;
  const History short_ones = a.fit(data.x, data.y, halves);
  b.fit(data.x, data.y, whole);
  EXPECT_EQ(short_ones.steps, 12);
  EXPECT_EQ(short_ones.history.at("loss").size(), 4u);
  EXPECT_TRUE(equal_weights(a, b));
}

TEST(FitDataset, StepsOfEvaluationAndPrediction) {
  const Samples data = samples(50), first = samples(16);
  Sequential model = classifier();
  const Results some = model.evaluate(data.x, data.y, {.batch_size = 8, .steps = 2, .threads = 1});
  EXPECT_EQ(some, model.evaluate(first.x, first.y, {.batch_size = 8, .threads = 1}));
  EXPECT_EQ(model.predict(data.x, {.batch_size = 8, .steps = 2}).shape(), (Shape{16, 3}));
  EXPECT_EQ(model.predict(data.x, {.batch_size = 8, .steps = 9}).shape(), (Shape{50, 3}));
  // Data without end can be validated on and predicted so.
  const Dataset endless = Dataset::from_tensor_slices({data.x, data.y}).repeat().batch(8);
  EXPECT_EQ(model.predict(endless, {.steps = 3}).shape(), (Shape{24, 3}));
  const History history = model.fit(data.x, data.y,
                                    {.batch_size = 8,
                                     .verbose = 0,
                                     .validation_data = Data(endless),
                                     .validation_steps = 2,
                                     .threads = 1});
  EXPECT_EQ(history.history.at("val_loss")[0],
            model.evaluate(first.x, first.y, {.batch_size = 8, .threads = 1})["loss"]);
  EXPECT_NE(test::message_of([&] {
              model.evaluate(data.x, data.y, {.steps = -1});
            }).find("[evaluate] steps: expected 0 or more, received -1"),
            std::string::npos);
}

TEST(FitDataset, LabelsAreCheckedAsTheyAreRead) {
  const Samples data = samples(16);
  data.y.data_as<int64_t>()[11] = 3;
  Sequential model = classifier();
  const std::string message = test::message_of([&] {
    model.fit(Dataset::from_tensor_slices({data.x, data.y}).batch(4), {.verbose = 0});
  });
  EXPECT_NE(message.find("from 0 to 2, received 3"), std::string::npos) << message;
}

TEST(FitDataset, RefusesWhatCannotBePlanned) {
  const Samples data = samples(16);
  const Dataset rows = Dataset::from_tensor_slices({data.x, data.y});
  Sequential model = classifier();
  EXPECT_NE(test::message_of([&] { model.fit(rows, {.verbose = 0}); }).find("batch()"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              model.fit(rows.repeat().batch(4), {.verbose = 0});
            }).find("without end"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              model.fit(rows.batch(4), {.verbose = 0, .validation_split = 0.2});
            }).find("validation_split"),
            std::string::npos);
}

TEST(FitDataset, TheLedgerIsOnTheBill) {
  const Samples data = samples(64);
  const Dataset batches = Dataset::from_tensor_slices({data.x, data.y}).batch(8).prefetch(100'000);
  Sequential model = classifier();
  const PlanReport small = model.plan(batches.with_options({.memory = "1MiB"}), {.threads = 1}),
                   large = model.plan(batches.with_options({.memory = "33MiB"}), {.threads = 1});
  // The first few may be what planning needed before and gave back.
  EXPECT_LE(large.process - small.process, 32 * kMiB);
  EXPECT_GT(large.process - small.process, 28 * kMiB);
  EXPECT_EQ(large.arena, small.arena);
  // What the stages cannot use is not on it.
  const PlanReport idle = model.plan(
      Dataset::from_tensor_slices({data.x, data.y}).batch(8).with_options({.memory = "33MiB"}),
      {.threads = 1});
  EXPECT_LE(idle.process, small.process);
  EXPECT_THROW(model.fit(batches.with_options({.memory = "33MiB"}),
                         {.verbose = 0, .memory = small.process + kMiB, .threads = 1}),
               DoesNotFit);
}

}  // namespace
}  // namespace pl::fit_dataset_test
