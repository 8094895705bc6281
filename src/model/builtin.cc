#include "model/builtin.h"

#include "base/error.h"
#include "model/densenet.h"
#include "model/gpt.h"
#include "model/layers.h"
#include "model/mobilenet.h"
#include "model/resnet.h"
#include "model/unet.h"
#include "model/vit.h"

namespace pl {
namespace {

Network mlp(const Shape& input, int64_t classes) {
  std::vector<LayerRef> layers;
  if (input.rank() != 1) layers.push_back(Flatten());
  layers.push_back(Dense(512, {.activation = "relu"}));
  layers.push_back(Dense(512, {.activation = "relu"}));
  layers.push_back(Dense(classes, {.activation = "softmax"}));
  return chain(input, layers);
}

Network cnn(const Shape& input, int64_t classes, int64_t units) {
  return chain(input,
               {Conv2D(32, 3, {.activation = "relu"}), MaxPooling2D(2),
                Conv2D(64, 3, {.activation = "relu"}), MaxPooling2D(2), Flatten(),
                Dense(units, {.activation = "relu"}), Dense(classes, {.activation = "softmax"})});
}

// A model that is a function of an image.
template <Symbolic (*make)(const Symbolic&, int64_t)>
Network of_image(const Shape& input, int64_t classes) {
  const Symbolic image = Input(input);
  return Network({image}, {make(image, classes)});
}

// `positions`: tokens of one sample.
template <const GptConfig& config>
BuiltinModel gpt_entry(const char* name, const char* summary, Dim positions) {
  return {name,
          summary,
          Shape{positions},
          config.vocabulary,
          [](const Shape& input, int64_t) { return gpt_network(config, input); },
          true};
}

}  // namespace

const std::vector<BuiltinModel>& builtin_models() {
  static const std::vector<BuiltinModel> models = {
      {"mlp", "Dense 512, 512, 10; ReLU, softmax", Shape{784}, 10, mlp},
      {"mnist-cnn", "Conv 32 3x3, pool, Conv 64 3x3, pool, Dense 64, Dense 10; ReLU, softmax",
       Shape{28, 28, 1}, 10,
       [](const Shape& input, int64_t classes) { return cnn(input, classes, 64); }},
      {"small-cnn", "mnist-cnn with Dense 128, for 64x64 colour images", Shape{64, 64, 3}, 10,
       [](const Shape& input, int64_t classes) { return cnn(input, classes, 128); }},
      {"resnet18", "ResNet-18 (v1, BatchNormalization)", Shape{224, 224, 3}, 1000,
       of_image<resnet18>},
      {"resnet50", "ResNet-50 (v1), as keras.applications has it", Shape{224, 224, 3}, 1000,
       of_image<resnet50>},
      {"mobilenet-v2", "MobileNetV2, as keras.applications has it", Shape{224, 224, 3}, 1000,
       of_image<mobilenet_v2>},
      {"densenet121", "DenseNet-121, as keras.applications has it", Shape{224, 224, 3}, 1000,
       of_image<densenet121>},
      {"unet", "U-Net, four levels of 32 to 256 channels and 512 below, a class for each pixel",
       Shape{256, 256, 3}, 3,
       [](const Shape& input, int64_t classes) {
         const Symbolic image = Input(input);
         return Network({image}, {unet(kUnet, image, classes)});
       }},
      {"vit-b16", "ViT-B/16, 12 layers of width 768, 12 heads", Shape{224, 224, 3}, 1000,
       [](const Shape& input, int64_t classes) { return vit_network(kVitB16, input, classes); }},
      {"lstm", "Embedding 128, LSTM 256, Dense; the next of 1,024 tokens", Shape{128}, 1024,
       [](const Shape& input, int64_t classes) {
         return chain(input, {Embedding(classes, 128), LSTM(256, {.return_sequences = true}),
                              Dense(classes)});
       },
       true},
      gpt_entry<kGptTiny>("gpt-tiny", "GPT, 4 layers of width 256, 4 heads", 256),
      gpt_entry<kGpt2>("gpt2", "GPT-2, 12 layers of width 768, 12 heads", 1024),
      gpt_entry<kGpt2Medium>("gpt2-medium", "GPT-2, 24 layers of width 1,024, 16 heads", 1024),
      gpt_entry<kGpt2Large>("gpt2-large", "GPT-2, 36 layers of width 1,280, 20 heads", 1024),
      gpt_entry<kGpt2Xl>("gpt2-xl", "GPT-2, 48 layers of width 1,600, 25 heads", 1024),
  };
  return models;
}

const BuiltinModel& find_builtin(const std::string& name) {
  std::string known;
  for (const BuiltinModel& model : builtin_models()) {
    if (name == model.name) return model;
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  throw UserError("[model] expected one of " + known + ", received '" + name +
                  "'; `plimsoll models` describes them");
}

}  // namespace pl
