// Does mixed_bfloat16 train resnet18 to the same loss as float32? A run that can tell 2 %:
//
//   mixed_precision [seeds] [epochs]        8 and 3 by default; about nine minutes of two cores
//
// What is compared was fixed before it was first run. The first 8,192 images of Fashion-MNIST,
// 28x28, batch 32, three epochs (768 steps), Adam whose learning rate falls from 1e-3 to 0 by a
// cosine, so that the last steps no longer move the loss. The final loss is that of all 8,192
// images in inference mode behind the last step. For each seed (of weights and order) there are
// three runs: float32, mixed_bfloat16, and float32 on images brighter by one part in a million,
// which shows by how much two runs differ that nothing tells apart. A training run is chaotic:
// single runs differ by some percent whatever they compute in; so means over all seeds are
// compared, with the standard error of the mean difference beside them. The bar is |mean
// mixed_bfloat16 / mean float32 - 1| <= 2 %, float32 being both of its runs.
#include "plimsoll.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "model/resnet.h"

namespace {

using namespace pl;

constexpr int64_t kSamples = 8192, kBatch = 32;

struct Images {
  Tensor x{Meta{Dtype::uint8, {kSamples, 28, 28, 1}}};
  Tensor y{Meta{Dtype::int32, {kSamples}}};
};

Images first_images() {
  Images images;
  const auto source = fashion_mnist_source(Part::train);
  std::vector<int64_t> indices(kSamples);
  std::iota(indices.begin(), indices.end(), 0);
  const std::vector<void*> places = {images.x.data(), images.y.data()};
  source->read(indices, places);
  return images;
}

double final_loss(const Images& data, uint64_t seed, int64_t epochs, Policy dtype, bool shaken) {
  const Symbolic image = Input({28, 28, 1});
  Model model(image, resnet18(image, 10));
  const double steps = static_cast<double>(epochs * kSamples / kBatch);
  model.compile({.optimizer = Adam({.learning_rate = CosineDecay({1e-3, steps})}),
                 .loss = "sparse_categorical_crossentropy",
                 .dtype = dtype});
  model.fit(data.x, data.y,
            {.batch_size = kBatch,
             .epochs = epochs,
             .verbose = 0,
             .seed = seed,
             .x_scale = (shaken ? 1 + 1e-6 : 1) / 255});
  return model.evaluate(data.x, data.y, {.batch_size = 128}).at("loss");
}

double mean(const std::vector<double>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}

// mean(a) / mean(b) - 1 in percent, and the standard error of it, by pairs.
void compare(const char* name, const std::vector<double>& a, const std::vector<double>& b) {
  const double of = mean(b), difference = mean(a) - of;
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i] - difference, 2);
  const auto n = static_cast<double>(a.size());
  std::printf("%-28s %+.2f %%, standard error %.2f %%\n", name, 100 * difference / of,
              100 * std::sqrt(squares / (n - 1) / n) / of);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int seeds = argc > 1 ? std::atoi(argv[1]) : 8;
    const int64_t epochs = argc > 2 ? std::atoi(argv[2]) : 3;
    const Images data = first_images();
    std::vector<double> plain, shaken, mixed, both;
    for (int s = 0; s < seeds; ++s) {
      const auto seed = static_cast<uint64_t>(s);
      plain.push_back(final_loss(data, seed, epochs, Dtype::float32, false));
      shaken.push_back(final_loss(data, seed, epochs, Dtype::float32, true));
      mixed.push_back(final_loss(data, seed, epochs, kMixedBfloat16, false));
      both.push_back((plain.back() + shaken.back()) / 2);
      std::printf("seed %d: float32 %.5f, shaken %.5f, mixed_bfloat16 %.5f\n", s, plain.back(),
                  shaken.back(), mixed.back());
      std::fflush(stdout);
    }
    std::printf("means: float32 %.5f, shaken %.5f, mixed_bfloat16 %.5f\n", mean(plain),
                mean(shaken), mean(mixed));
    if (seeds < 2) return 0;
    compare("float32 shaken, float32", shaken, plain);
    compare("mixed_bfloat16, float32", mixed, both);
  } catch (const Error& error) {
    std::fprintf(stderr, "mixed_precision: %s\n", error.what());
    return error.exit_code();
  }
}
