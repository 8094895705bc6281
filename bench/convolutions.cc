// How fast are the convolutions of a network? Times each distinct one, forward and both gradients,
// through the kernels that a plan would use:
//
//     convolutions [--set resnet18|mobilenet-v2] [--batch N] [--threads N] [--runs N]
//                  [--dtype float32|bfloat16] [--cpu] [--all] [--json]
//
// Prints milliseconds, GFLOP/s (counting only taps that do not fall on padding) and the sum over a
// step. --cpu counts processor time over all threads instead of the clock's, for machines that are
// busy; --all times every variant that supports a call. bench/convolutions_torch.py does the same
// with PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/conv2d.h"
#include "tensor/bfloat16.h"

namespace pl {
namespace {

struct Layer {
  const char* name;
  int count;  // in one step
  Dim size, channels, kernel, filters, stride, groups = 1;
  bool first = false;  // reads the input: no input gradient
};

// 64x64 images, as in torchvision: pads of half the kernel on all sides.
constexpr Layer kResnet18[] = {
    {"stem 7x7/2 3-64 @64", 1, 64, 3, 7, 64, 2, 1, true},
    {"3x3 64-64 @16", 4, 16, 64, 3, 64, 1},
    {"3x3/2 64-128 @16", 1, 16, 64, 3, 128, 2},
    {"1x1/2 64-128 @16", 1, 16, 64, 1, 128, 2},
    {"3x3 128-128 @8", 3, 8, 128, 3, 128, 1},
    {"3x3/2 128-256 @8", 1, 8, 128, 3, 256, 2},
    {"1x1/2 128-256 @8", 1, 8, 128, 1, 256, 2},
    {"3x3 256-256 @4", 3, 4, 256, 3, 256, 1},
    {"3x3/2 256-512 @4", 1, 4, 256, 3, 512, 2},
    {"1x1/2 256-512 @4", 1, 4, 256, 1, 512, 2},
    {"3x3 512-512 @2", 3, 2, 512, 3, 512, 1},
};
constexpr Layer kMobilenet[] = {
    {"stem 3x3/2 3-32 @64", 1, 64, 3, 3, 32, 2, 1, true},
    {"dw 3x3 32 @32", 1, 32, 32, 3, 32, 1, 32},
    {"1x1 32-16 @32", 1, 32, 32, 1, 16, 1},
    {"1x1 16-96 @32", 1, 32, 16, 1, 96, 1},
    {"dw 3x3/2 96 @32", 1, 32, 96, 3, 96, 2, 96},
    {"dw 3x3 144 @16", 1, 16, 144, 3, 144, 1, 144},
    {"dw 3x3/2 144 @16", 1, 16, 144, 3, 144, 2, 144},
    {"dw 3x3 192 @8", 2, 8, 192, 3, 192, 1, 192},
    {"dw 3x3/2 192 @8", 1, 8, 192, 3, 192, 2, 192},
    {"dw 3x3 384 @4", 4, 4, 384, 3, 384, 1, 384},
    {"dw 3x3 576 @4", 2, 4, 576, 3, 576, 1, 576},
    {"dw 3x3/2 576 @4", 1, 4, 576, 3, 576, 2, 576},
    {"dw 3x3 960 @2", 3, 2, 960, 3, 960, 1, 960},
};

struct Settings {
  std::string set = "resnet18";
  Dim batch = 32;
  int threads = 2, runs = 20;
  bool cpu = false, all = false, json = false;
  Dtype dtype = Dtype::float32;
};

// Pairs of an output position and a tap that is not padding, along one axis.
double real_taps(const WindowAxis& a) {
  double taps = 0;
  for (Dim o = 0; o < a.out; ++o)
    for (Dim k = 0; k < a.kernel; ++k) {
      const Dim i = o * a.stride - a.before + k * a.dilation;
      taps += i >= 0 && i < a.in;
    }
  return taps;
}

double flops_of(const Conv2dForm& f) {
  return 2.0 * static_cast<double>(f.batch * f.filters * (f.channels / f.groups)) *
         real_taps(f.window.h) * real_taps(f.window.w);
}

double now_ms(bool cpu) {
  timespec t{};
  clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

// The least time of one run, or below 0 where the variant does not support the call.
double time_ms(const Op& op, Backend& backend, const Metas& in, const Attrs& attrs,
               const char* variant, const Settings& s, std::string& key) {
  const Metas out = op.infer(in, attrs);
  auto kernel = prepare(op, {backend, in, out, attrs}, variant);
  if (!kernel) return -1;
  key = kernel->key;
  Tensors tensors;
  std::vector<void*> in_data, out_data;
  for (const Meta& meta : in) {
    tensors.emplace_back(meta);
    for (int64_t i = 0; i < meta.elements(); ++i) {
      const float value = static_cast<float>((i * 7919) % 1024 - 512) / 512;
      if (meta.dtype == Dtype::bfloat16)
        tensors.back().data_as<Bfloat16>()[i] = Bfloat16(value);
      else
        tensors.back().data_as<float>()[i] = value;
    }
    in_data.push_back(tensors.back().data());
  }
  for (const Meta& meta : out) {
    tensors.emplace_back(meta);
    out_data.push_back(tensors.back().data());
  }
  Buffer workspace(kernel->workspace_bytes);
  double best = 1e30;
  for (int run = 0; run <= s.runs; ++run) {
    const double start = now_ms(s.cpu);
    kernel->run(in_data.data(), out_data.data(), workspace.data());
    if (run > 0) best = std::min(best, now_ms(s.cpu) - start);
  }
  return s.cpu ? best / s.threads : best;
}

struct Total {
  double ms = 0, flops = 0;
};

void time_direction(const Layer& layer, const char* direction, const Op& op, Backend& backend,
                    const Metas& in, const Attrs& attrs, double flops, const Settings& s,
                    Total& total) {
  std::vector<const char*> variants{nullptr};
  if (s.all) {
    variants.clear();
    for (const Variant& variant : op.variants)
      if (std::strcmp(variant.name, "reference") != 0) variants.push_back(variant.name);
  }
  for (const char* variant : variants) {
    std::string key;
    const double ms = time_ms(op, backend, in, attrs, variant, s, key);
    if (ms < 0) continue;
    if (s.json)
      std::printf(
          "{\"layer\": \"%s\", \"direction\": \"%s\", \"count\": %d, \"ms\": %.4f, "
          "\"gflops\": %.1f, \"variant\": \"%s\", \"key\": \"%s\"}\n",
          layer.name, direction, layer.count, ms, flops / ms * 1e-6, variant ? variant : "",
          key.c_str());
    else
      std::printf("%-22s %-8s x%d %9.3f ms %8.1f GFLOP/s  %s %s\n", layer.name, direction,
                  layer.count, ms, flops / ms * 1e-6, variant ? variant : "", key.c_str());
    std::fflush(stdout);
    if (variant == variants.front()) {
      total.ms += layer.count * ms;
      total.flops += layer.count * flops;
    }
  }
}

void time_layer(const Layer& l, Backend& backend, const Settings& s, Total& total) {
  const Dim pad = l.kernel / 2;
  Attrs attrs{{"strides", std::vector<int64_t>{l.stride, l.stride}},
              {"padding", std::string("explicit")},
              {"pads", std::vector<int64_t>{pad, pad, pad, pad}}};
  if (l.groups > 1) attrs.set("groups", l.groups);
  const Meta x{s.dtype, {s.batch, l.size, l.size, l.channels}},
      w{s.dtype, {l.kernel, l.kernel, l.channels / l.groups, l.filters}};
  const Meta y = kConv2d.infer({x, w}, attrs)[0];
  const double flops = flops_of(conv2d_form({x, w}, attrs));
  time_direction(l, "forward", kConv2d, backend, {x, w}, attrs, flops, s, total);
  Attrs input = attrs, weight = attrs;
  input.set("input_shape", x.shape.dims());
  weight.set("kernel_shape", w.shape.dims());
  if (s.dtype != Dtype::float32) weight.set("dtype", std::string(name_of(Dtype::float32)));
  if (!l.first)
    time_direction(l, "input", kConv2dInputGradient, backend, {w, y}, input, flops, s, total);
  time_direction(l, "weight", kConv2dWeightGradient, backend, {x, y}, weight, flops, s, total);
}

Settings read(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    auto value = [&] {
      if (i + 1 == argc) throw UserError("[convolutions] " + name + ": expected a value");
      return std::string(argv[++i]);
    };
    if (name == "--set")
      s.set = value();
    else if (name == "--batch")
      s.batch = std::atoll(value().c_str());
    else if (name == "--threads")
      s.threads = std::atoi(value().c_str());
    else if (name == "--runs")
      s.runs = std::atoi(value().c_str());
    else if (name == "--dtype")
      s.dtype = value() == "bfloat16" ? Dtype::bfloat16 : Dtype::float32;
    else if (name == "--cpu")
      s.cpu = true;
    else if (name == "--all")
      s.all = true;
    else if (name == "--json")
      s.json = true;
    else
      throw UserError("[convolutions] expected an option, received '" + name + "'");
  }
  return s;
}

void run(const Settings& s) {
  CpuBackend backend(s.threads);
  backend.use();
  Total total;
  std::vector<Layer> layers(std::begin(kResnet18), std::end(kResnet18));
  if (s.set == "mobilenet-v2") layers.assign(std::begin(kMobilenet), std::end(kMobilenet));
  for (const Layer& layer : layers) time_layer(layer, backend, s, total);
  if (!s.json)
    std::printf("step: %.2f ms, %.2f GFLOP, %.1f GFLOP/s\n", total.ms, total.flops * 1e-9,
                total.flops / total.ms * 1e-6);
}

}  // namespace
}  // namespace pl

int main(int argc, char** argv) {
  try {
    pl::run(pl::read(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
