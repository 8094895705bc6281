// Ours of bench/beside_torch.py: ops and layers on values, forward or with their gradient by a
// GradientTape. Reads lines and answers each with one:
//
//   beside_torch THREADS
//     case NAME            prepares one of the cases below ("NAME gradient": with its gradient)
//     round SECONDS        runs it for so long; answers the milliseconds of a call
#include "plimsoll.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

namespace {

using namespace pl;

// A function of inputs and parameters, all of them float32, and what it is called with.
struct Case {
  std::function<Tensor(const Tensors&)> call;
  Tensors in;
};

// In [-1, 1), by a counter hash.
double uniform(int64_t i) {
  auto x = static_cast<uint32_t>(i) * 0x9E3779B1u;
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return static_cast<double>(x ^ (x >> 16)) * 0x1p-31 - 1;
}
Tensor reals(Shape shape, double factor = 1) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(factor * uniform(i));
  return x;
}
Tensor indices(Shape shape, Dim below) {
  Tensor x({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<int32_t>()[i] =
        static_cast<int32_t>((uniform(i) + 1) / 2 * static_cast<double>(below));
  return x;
}

Case of_one(Shape shape, std::function<Tensor(const Tensor&)> call) {
  return {[call = std::move(call)](const Tensors& in) { return call(in[0]); },
          {reals(std::move(shape))}};
}

// On x (B, ...) with weights of its own.
Case of_layer(const LayerRef& layer, Shape shape) {
  layer->build({shape.without_front()});
  Case made{.call = {}, .in = {reals(std::move(shape))}};
  for (const Weight& weight : layer->weights()) made.in.push_back(reals(weight.shape, 0.05));
  const Tensor no_params;
  made.call = [layer, no_params](const Tensors& in) {
    const std::span<const Tensor> all(in);
    return layer->call({.in = all.first(1),
                        .weights = all.subspan(1),
                        .training = true,
                        .step_params = no_params,
                        .stream = 0});
  };
  return made;
}

using Make = std::function<Case()>;

const std::map<std::string, Make>& cases() {
  static const ops::Axis images{1, 2};
  static const std::map<std::string, Make> all = {
      {"transpose heads",
       [] {
         return of_one({16, 128, 12, 64}, [](auto& x) { return ops::transpose(x, {0, 2, 1, 3}); });
       }},
      {"transpose images",
       [] {
         return of_one({32, 64, 56, 56}, [](auto& x) { return ops::transpose(x, {0, 2, 3, 1}); });
       }},
      {"GroupNormalization",
       [] {
         return of_layer(GroupNormalization({.groups = 8}), {8, 32, 32, 64});
       }},
      {"sum axes",
       [] {
         return of_one({32, 64, 64, 64}, [](auto& x) { return ops::sum(x, images); });
       }},
      {"max axes",
       [] {
         return of_one({32, 64, 64, 64}, [](auto& x) { return ops::max(x, images); });
       }},
      {"max rows",
       [] {
         return of_one({4096, 768}, [](auto& x) { return ops::max(x, -1); });
       }},
      {"prod rows",
       [] {
         return of_one({4096, 64}, [](auto& x) { return ops::prod(x, -1); });
       }},
      {"GlobalMaxPooling",
       [] {
         return of_layer(GlobalMaxPooling2D(), {32, 32, 32, 128});
       }},
      {"sort rows",
       [] {
         return of_one({1024, 512}, [](auto& x) { return ops::sort(x); });
       }},
      {"sort one row", [] { return of_one({100000}, [](auto& x) { return ops::sort(x); }); }},
      {"top_k",
       [] {
         return of_one({16, 65536}, [](auto& x) { return ops::top_k(x, 100).values; });
       }},
      {"take_along_axis",
       [] {
         const Tensor chosen = indices({1024, 512}, 512);
         return of_one({1024, 512}, [chosen](auto& x) { return ops::take_along_axis(x, chosen); });
       }},
      {"SimpleRNN",
       [] {
         return of_layer(SimpleRNN(256, {.return_sequences = true}), {64, 128, 256});
       }},
  };
  return all;
}

std::function<void()> prepared(const std::string& name) {
  static const std::string kGradient = " gradient";
  const bool back = name.ends_with(kGradient);
  const auto found = cases().find(back ? name.substr(0, name.size() - kGradient.size()) : name);
  if (found == cases().end())
    throw UserError("[beside_torch] expected a case, received '" + name + "'");
  const Case made = found->second();
  if (!back) return [made] { made.call(made.in); };
  return [made, factors = reals(made.call(made.in).shape())] {
    GradientTape tape;
    for (const Tensor& tensor : made.in) tape.watch(tensor);
    const Tensor y = made.call(made.in);
    tape.gradient(y, made.in, {.output_gradient = factors});
  };
}

// Milliseconds of a call, of those that begin within so many seconds.
double time_of(const std::function<void()>& call, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::chrono::duration<double> spent{};
  int64_t calls = 0;
  for (; spent.count() < seconds; spent = Clock::now() - start, ++calls) call();
  return 1e3 * spent.count() / static_cast<double>(calls);
}

void run(int threads) {
  Runtime runtime({.threads = threads});
  std::function<void()> call;
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    const std::string word = line.substr(0, space), rest = line.substr(space + 1);
    if (word == "case") {
      call = nullptr;
      runtime.trim();
      call = prepared(rest);
      call();
      std::printf("ready\n");
    } else {
      std::printf("%.6f\n", time_of(call, std::atof(rest.c_str())));
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::atoi(argv[1]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
