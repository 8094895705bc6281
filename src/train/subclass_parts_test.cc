// What a class derived from Model may do in call(): several inputs and outputs, tokens, states,
// masks, penalties; and that its layers are seen by name. Each against a functional model.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plimsoll.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::subclass_parts_test {
namespace {

using test::message_of;
using test::pattern;
using test::same_bits;

Tensor tokens(Shape shape, int32_t below) {
  Tensor x({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<int32_t>()[i] = static_cast<int32_t>((i * 13 + 3) % below);
  return x;
}

const FitOptions kFit{.batch_size = 8, .epochs = 3, .verbose = 0, .threads = 1};

// Text and numbers to a class and a price.
class TwoByTwo : public Model {
 public:
  Tensors call(const Tensors& xs, bool) override {
    const Tensor text = pool(embed(xs[0]));
    const Tensor both = join(Tensors{text, dense(xs[1])});
    return {classes(both), price(both)};
  }
  LayerRef embed = Embedding(11, 4), pool = GlobalAveragePooling1D(),
           dense = Dense(5, {.activation = "tanh"}), join = Concatenate(),
           classes = Dense(3, {.activation = "softmax"}), price = Dense(1);
};

Model two_by_two() {
  const Symbolic text = Input({6}), numbers = Input({4});
  const Symbolic pooled = GlobalAveragePooling1D()(Embedding(11, 4)(text));
  const Symbolic both =
      Concatenate()({pooled, Dense(5, {.activation = "tanh", .name = "dense"})(numbers)});
  return Model({text, numbers}, {Dense(3, {.activation = "softmax", .name = "output_1"})(both),
                                 Dense(1, {.name = "output_2"})(both)});
}

CompileOptions two_losses() {
  return {.optimizer = "adam",
          .loss = {"sparse_categorical_crossentropy", "mse"},
          .loss_weights = {1.0, 0.5},
          .metrics = {{"output_1", {"accuracy"}}}};
}

// One layer for two inputs, and one behind itself: each has one set of weights, whose gradients of
// all uses add up.
class Siamese : public Model {
 public:
  Tensors call(const Tensors& xs, bool) override {
    const Tensor left = again(norm(tower(xs[0])));  // moves the averages first
    const Tensor right = again(norm(tower(xs[1])));
    return {head(subtract(left, right))};
  }
  Tensor again(const Tensor& x) const { return turn(turn(x)); }
  LayerRef tower = Dense(5, {.activation = "tanh", .name = "tower"}),
           norm = BatchNormalization({.momentum = 0.5, .name = "norm"}),
           turn = Dense(5, {.activation = "tanh", .name = "turn"}),
           head = Dense(1, {.name = "head"});
};

TEST(SubclassParts, LayersThatAreCalledTwiceShareTheirWeights) {
  const Tensor a = pattern({24, 4}, 1), b = pattern({24, 4}, 2), y = pattern({24, 1}, 3);
  const Symbolic left = Input({4}), right = Input({4});
  const LayerRef tower = Dense(5, {.activation = "tanh", .name = "tower"}),
                 norm = BatchNormalization({.momentum = 0.5, .name = "norm"}),
                 turn = Dense(5, {.activation = "tanh", .name = "turn"});
  Siamese subclass;
  Model other({left, right},
              {Dense(1, {.name = "head"})(
                  Subtract()({turn(turn(norm(tower(left)))), turn(turn(norm(tower(right))))}))});
  const CompileOptions options{.optimizer = "adam", .loss = "mse"};
  subclass.compile(options);
  other.compile(options);
  subclass.build({Shape{4}, Shape{4}});
  ASSERT_EQ(subclass.weights().size(), 10u);
  ASSERT_EQ(other.weights().size(), 10u);
  subclass.set_weights(other.get_weights());
  const History one = subclass.fit({a, b}, y, kFit), two = other.fit({a, b}, y, kFit);
  for (size_t e = 0; e < 3; ++e)
    EXPECT_NEAR(one.history.at("loss")[e], two.history.at("loss")[e], 1e-6);
  const Tensors mine = subclass.get_weights(), theirs = other.get_weights();
  for (size_t w = 0; w < mine.size(); ++w)
    for (int64_t i = 0; i < mine[w].meta().elements(); ++i)
      EXPECT_NEAR(mine[w].data_as<float>()[i], theirs[w].data_as<float>()[i], 1e-5)
          << subclass.weights()[w].path;
}

// States between batches, in call() as elsewhere.
class Remembers : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return head(lstm(x)); }
  LayerRef lstm = LSTM(4, {.stateful = true, .batch_size = 8, .name = "lstm"}),
           head = Dense(1, {.name = "head"});
};

TEST(SubclassParts, StatefulLayers) {
  const Tensor x = pattern({24, 5, 3}, 1), y = pattern({24, 1}, 2);
  Remembers subclass;
  Sequential other(Shape{5, 3}, {LSTM(4, {.stateful = true, .batch_size = 8, .name = "lstm"}),
                                 Dense(1, {.name = "head"})});
  const CompileOptions options{.optimizer = "sgd", .loss = "mse"};
  subclass.compile(options);
  other.compile(options);
  subclass.build(Shape{5, 3});
  subclass.set_weights(other.get_weights());
  FitOptions in_order = kFit;
  in_order.shuffle = false;
  const History one = subclass.fit(x, y, in_order), two = other.fit(x, y, in_order);
  for (size_t e = 0; e < 3; ++e)
    EXPECT_NEAR(one.history.at("loss")[e], two.history.at("loss")[e], 1e-6);
  const PredictOptions eight{.batch_size = 8, .threads = 1};
  const Tensor first = subclass.predict(x, eight), second = subclass.predict(x, eight);
  EXPECT_FALSE(same_bits(first, second)) << "the state goes on";
  subclass.reset_state("lstm");
  const Tensor anew = subclass.predict(x, eight);
  subclass.reset_state();
  EXPECT_TRUE(same_bits(anew, subclass.predict(x, eight)));
  EXPECT_NE(message_of([&] { subclass.predict(x, {.batch_size = 7}); })
                .find("lstm: expected batches of 8 samples, its batch_size as a stateful layer, "
                      "received 7"),
            std::string::npos);
  EXPECT_NE(message_of([&] { subclass.reset_state("head"); }).find("expected a stateful layer"),
            std::string::npos);
}

TEST(SubclassParts, SeveralInputsAndOutputs) {
  const Tensor text = tokens({24, 6}, 11), numbers = pattern({24, 4}, 1);
  const Tensor y = tokens({24}, 3), price = pattern({24, 1}, 2);
  TwoByTwo subclass;
  Model other = two_by_two();
  subclass.compile(two_losses());
  other.compile(two_losses());
  const Tensors first = subclass.predict_all({text, numbers}, {.threads = 1});
  ASSERT_EQ(first.size(), 2u);
  other.set_weights(subclass.get_weights());
  const History a = subclass.fit({text, numbers}, {y, price}, kFit);
  const History b = other.fit({text, numbers}, {y, price}, kFit);
  for (const char* name : {"loss", "output_1_loss", "output_2_loss", "output_1_accuracy"})
    EXPECT_EQ(a.history.at(name), b.history.at(name)) << name;
  EXPECT_LT(a.history.at("loss").back(), a.history.at("loss").front());
  EXPECT_EQ(a.planned_arena, a.used_arena);
  const Tensors ours = subclass.predict_all({text, numbers}),
                theirs = other.predict_all({text, numbers});
  for (size_t o = 0; o < 2; ++o) EXPECT_TRUE(same_bits(ours[o], theirs[o])) << o;
  Runtime runtime({.memory = "32MiB", .threads = 1});
  const Tensors values = subclass(Tensors{text, numbers});
  ASSERT_EQ(values.size(), 2u);
  EXPECT_TRUE(same_bits(values[1], ours[1]));
}

TEST(SubclassParts, TokensOutOfRangeAreRefused) {
  TwoByTwo model;
  model.compile(two_losses());
  const std::string text = message_of([&] {
    model.fit({tokens({24, 6}, 12), pattern({24, 4}, 1)}, {tokens({24}, 3), pattern({24, 1}, 2)},
              kFit);
  });
  EXPECT_NE(text.find("expected tokens from 0 to 10, received 11"), std::string::npos) << text;
}

// Integers that go into ops, not into an Embedding.
class OneHot : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return head(one_hot(x, 5)); }
  LayerRef head = Dense(2);
};

TEST(SubclassParts, IntegersStayIntegers) {
  OneHot model;
  const Tensor x = tokens({6}, 5);
  const Tensor y = model.predict(x, {.threads = 1});
  EXPECT_EQ(y.shape(), (Shape{6, 2}));
  const Tensor kernel = model.get_weights()[0];
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(y.data_as<float>()[2 * i], kernel.data_as<float>()[2 * x.data_as<int32_t>()[i]]) << i;
}

// The same data into layers that compute: numbers, as in Keras.
class OfNumbers : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return head(scale(x, 0.5)); }
  LayerRef head = Dense(2);
};

TEST(SubclassParts, IntegersAreNumbersToOpsThatWantThem) {
  OfNumbers model;
  EXPECT_EQ(model.predict(tokens({6, 3}, 5), {.threads = 1}).shape(), (Shape{6, 2}));
}

class EncoderDecoder : public Model {
 public:
  Tensor call(const Tensor& x, bool) override {
    const Tensors encoded = encoder.all({x});  // sequence, h, c
    return head(decoder({encoded[0], encoded[1], encoded[2]}));
  }
  LayerRef encoder = LSTM(4, {.return_sequences = true, .return_state = true}), decoder = LSTM(4),
           head = Dense(1);
};

TEST(SubclassParts, StatesGoFromLayerToLayer) {
  const Tensor x = pattern({16, 5, 3}, 1), y = pattern({16, 1}, 2);
  EncoderDecoder subclass;
  const Symbolic in = Input({5, 3});
  const std::vector<Symbolic> encoded =
      LSTM(4, {.return_sequences = true, .return_state = true}).all({in});
  Model other(in, Dense(1)(LSTM(4)({encoded[0], encoded[1], encoded[2]})));
  for (Model* model : {static_cast<Model*>(&subclass), &other})
    model->compile({.optimizer = "adam", .loss = "mse"});
  subclass.predict(x, {.threads = 1});
  other.set_weights(subclass.get_weights());
  EXPECT_EQ(subclass.fit(x, y, kFit).history.at("loss"), other.fit(x, y, kFit).history.at("loss"));

  class Forgetful : public Model {
   public:
    Tensor call(const Tensor& x, bool) override { return lstm(x); }
    LayerRef lstm = LSTM(4, {.return_state = true});
  };
  Forgetful forgetful;
  const std::string text = message_of([&] { forgetful.predict(x); });
  EXPECT_NE(text.find("lstm: expected a layer with one result, received 3"), std::string::npos)
      << text;
}

// Padding is no part of the loss, whatever the labels there.
class Tagger : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return tag(embed(x)); }
  LayerRef embed = Embedding(7, 4, {.mask_zero = true}),
           tag = TimeDistributed(Dense(3, {.activation = "softmax"}));
};

TEST(SubclassParts, MasksReachTheLoss) {
  const Tensor x = tokens({8, 5}, 7), y = tokens({8, 5}, 3);
  Tagger subclass;
  Sequential other(
      {Embedding(7, 4, {.mask_zero = true}), TimeDistributed(Dense(3, {.activation = "softmax"}))});
  for (Model* model : {static_cast<Model*>(&subclass), static_cast<Model*>(&other)})
    model->compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"});
  subclass.predict(x, {.threads = 1});
  other.predict(x, {.threads = 1});
  other.set_weights(subclass.get_weights());
  const double loss = subclass.evaluate(x, y).at("loss");
  EXPECT_EQ(loss, other.evaluate(x, y).at("loss"));
  Tensor elsewhere = tokens({8, 5}, 3);
  for (int64_t i = 0; i < 40; ++i)
    if (int32_t& label = elsewhere.data_as<int32_t>()[i]; x.data_as<int32_t>()[i] == 0)
      label = (label + 1) % 3;
  EXPECT_FALSE(same_bits(elsewhere, y));
  EXPECT_EQ(loss, subclass.evaluate(x, elsewhere).at("loss"));
}

// A layer with a loss of its own.
class Spread : public Layer {
 public:
  const char* kind() const override { return "Spread"; }
  Shape build(const std::vector<Shape>& in) override { return in[0]; }
  Tensor call(const LayerCall& call) const override {
    call.add_loss(scale(reduce_mean(multiply(call.in[0], call.in[0])), 0.25));
    return call.in[0];
  }
};

class Penalised : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return head(spread(layer(x))); }
  LayerRef layer = Dense(4, {.activity_regularizer = "l2", .name = "layer"}),
           spread = std::make_shared<Spread>(), head = Dense(1);
};

TEST(SubclassParts, PenaltiesOfItsLayersCount) {
  const Tensor x = pattern({16, 3}, 1), y = pattern({16, 1}, 2);
  Penalised subclass;
  Sequential other(
      {Dense(4, {.activity_regularizer = "l2"}), std::make_shared<Spread>(), Dense(1)}),
      plain({Dense(4), Dense(1)});
  for (Model* model :
       {static_cast<Model*>(&subclass), static_cast<Model*>(&other), static_cast<Model*>(&plain)}) {
    model->compile({.optimizer = "sgd", .loss = "mse"});
    model->predict(x, {.threads = 1});
    model->set_weights(subclass.get_weights());
  }
  EXPECT_GT(subclass.evaluate(x, y).at("loss"), plain.evaluate(x, y).at("loss") + 1e-4);
  EXPECT_EQ(subclass.evaluate(x, y).at("loss"), other.evaluate(x, y).at("loss"));
  EXPECT_EQ(subclass.fit(x, y, kFit).history.at("loss"), other.fit(x, y, kFit).history.at("loss"));
}

TEST(SubclassParts, LayersAreSeenByName) {
  Penalised model;
  model.compile({.optimizer = "adam", .loss = "mse", .remat = {"layer"}});
  model.build(Shape{3});
  EXPECT_EQ(model.get_layer("layer").get(), model.layer.get());
  EXPECT_EQ(model.get_layer("model/dense").get(), model.head.get());
  const std::string text = model.summary({.threads = 1});
  for (const char* row : {"model/layer (Dense)", "model/spread (Spread)", "model/dense (Dense)",
                          "(None, 4)", "Total params: 21"})
    EXPECT_NE(text.find(row), std::string::npos) << row << " in\n" << text;
  EXPECT_NO_THROW(model.plan({.threads = 1}));
  model.compile({.optimizer = "adam", .loss = "mse", .remat = {"layers"}});
  const std::string refused = message_of([&] { model.plan({.threads = 1}); });
  EXPECT_NE(refused.find("received 'layers'"), std::string::npos) << refused;
}

TEST(SubclassParts, MessagesNameLayersAndRemedies) {
  Penalised model;
  EXPECT_EQ(message_of([&] { model.summary(); }),
            "[summary] model: expected a model that is built; call build() with the shape of one "
            "sample, or fit() or predict(), first");
  class Wrong : public Model {
   public:
    Tensor call(const Tensor& x, bool) override { return conv(x); }
    LayerRef conv = Conv2D(3, {3, 3}, {.name = "stem"});
  };
  Wrong wrong;
  const std::string text = message_of([&] { wrong.build(Shape{5}); });
  EXPECT_TRUE(text.starts_with("[build] model/stem: expected")) << text;
  EXPECT_EQ(text.find("[build]", 1), std::string::npos) << text;
  class Fickle : public Model {
   public:
    Tensor call(const Tensor& x, bool training) override {
      return training ? Dense(3)(x) : first(x);
    }
    LayerRef first = Dense(3);
  };
  Fickle fickle;
  fickle.compile({.optimizer = "sgd", .loss = "mse"});
  const std::string other = message_of([&] {
    fickle.fit(pattern({4, 2}, 1), pattern({4, 3}, 1), kFit);
  });
  EXPECT_TRUE(other.starts_with("[call] Dense: expected a layer that call() used")) << other;
}

}  // namespace
}  // namespace pl::subclass_parts_test
