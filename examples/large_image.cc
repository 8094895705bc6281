// A U-Net on whole images of 4096 x 4096 pixels within 1.5 GiB, where its activations alone take
// several: one image is worked off in bands of rows, with the gradients of the whole.
//
//   large_image [pixels along a side] [memory]
#include "plimsoll.h"

#include <cstdio>
#include <cstdlib>

namespace {

using namespace pl;

Symbolic block(Symbolic x, int64_t filters) {
  for (int i = 0; i < 2; ++i) x = Conv2D(filters, 3, {.padding = "same", .activation = "relu"})(x);
  return x;
}

// Down to an eighth of the size and up again, each level joined with the one it came from.
Model unet(int64_t size, int64_t classes) {
  const Symbolic input = Input({size, size, 3});
  const Symbolic a = block(input, 8), b = block(MaxPooling2D(2)(a), 16),
                 c = block(MaxPooling2D(2)(b), 32);
  Symbolic x = block(MaxPooling2D(2)(c), 64);
  for (const auto& [skip, filters] : {std::pair{c, 32}, {b, 16}, {a, 8}})
    x = block(Concatenate()({skip, Conv2DTranspose(filters, 2, {.strides = 2})(x)}), filters);
  return Model(input, Conv2D(classes, 1, {.activation = "softmax"})(x));
}

void print_plan(const char* budget, const PlanReport& plan) {
  std::printf("%10s: %s, %lld bands, %s computed again, %.1f s a step\n", budget,
              plan.fits ? format_bytes(plan.process).c_str() : "does not fit",
              static_cast<long long>(plan.bands), format_bytes(plan.recomputed.bytes).c_str(),
              plan.step_ms / 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int64_t size = argc > 1 ? std::atoll(argv[1]) : 4096, classes = 4;
    const std::string memory = argc > 2 ? argv[2] : "1.5GiB";
    const auto images = synthetic_source({.x = {Dtype::uint8, {size, size, 3}},
                                          .y = {size, size},
                                          .classes = classes,
                                          .samples = 2});
    Model model = unet(size, classes);
    model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
    FitOptions options{.batch_size = 1, .memory = memory, .x_scale = 1.0 / 255};
    const History history = model.fit(*images, options);
    std::printf("%lld steps, loss %.4f, %.1f s each; memory: planned %s, measured %s\n",
                static_cast<long long>(history.steps), history.history.at("loss").back(),
                history.step_ms / 1e3, format_bytes(history.planned_process).c_str(),
                format_bytes(history.measured_process).c_str());
    // What other budgets would give. Asked for behind the training, which then holds no more than
    // it must.
    for (const std::string& budget : {memory, std::string("2GiB"), std::string("4GiB")}) {
      options.memory = budget;
      print_plan(budget.c_str(), model.plan(*images, options));
    }
    options.memory = {};
    print_plan("unlimited", model.plan(*images, options));
  } catch (const Error& error) {
    std::fprintf(stderr, "large_image: %s\n", error.what());
    return error.exit_code();
  }
}
