// The command line, parsed and checked. CLI11 stays inside options.cc.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "tensor/shape.h"

namespace pl {

// Options as they were given: "--batch" to "64", "model" to its name.
using RunWords = std::map<std::string, std::string>;

// Options of `plan` and `train`.
struct RunOptions {
  std::string model;
  int64_t batch = 32;
  bool batch_max = false;
  std::optional<Shape> input;
  std::optional<Bytes> memory;
  Policy dtype;
  std::string optimizer = "adam";
  std::optional<double> learning_rate;
  std::string data = "synthetic";
  bool skip_errors = false;  // of data: leave damaged samples out
  int threads = 0;           // 0: all cores
  std::string device = "cpu";
  std::optional<int> cuda;  // the GPU's number, where the device is one
  bool deterministic = true;
  bool offload = true;               // on a GPU: state and activations to the host where need be
  std::optional<Bytes> host_memory;  // the most for it
  bool memory_max = false;           // `memory` is what the system or the device can give
  bool json = false;
  std::optional<int64_t> split;  // parts of the batch; 1 never; none: as needed
  bool recompute = true;
  std::vector<std::string> remat;    // layers that are checkpointed by hand
  std::vector<std::string> what_if;  // changes of each layer that are planned beside
  bool frontier = false, curve = false;
  std::string graph;  // plan: a bare problem's file instead of a model; empty: none
  std::string calls;  // plan: a file of what a device's calls need and take; empty: none

  int64_t epochs = 1;
  std::optional<int64_t> steps;
  uint64_t seed = 0;
  bool shuffle = true;
  std::string run, resume, weights, save_weights;  // empty: none
  int64_t checkpoint_every = 0;                    // steps; 0: not
  int64_t keep_checkpoints = 2;
  RunWords words;  // for run.json
};

struct BenchOptions {
  std::string filter;
  bool json = false;
  int threads = 0;
};

// Of `data`: a pipeline alone.
struct DataOptions {
  std::string source;
  int64_t batch = 32;
  int64_t epochs = 1;
  std::optional<Bytes> memory;
  Shape input = {224, 224, 3};  // of images
  int threads = 0;              // 0: all cores
  uint64_t seed = 0;
  std::string html;  // a page to write; empty: none
  bool skip_errors = false;
  bool json = false;
};

// Of the hidden `calibrate`, which a first run starts.
struct CalibrateOptions {
  int threads = 0;
  Bytes room = 0;  // that it may take
};

struct ModelsOptions {
  std::string name;  // empty: list all
  bool json = false;
};

struct CommandLine {
  std::string
      command;  // "plan", "train", "models", "bench", "data", "calibrate"; empty: help was printed
  RunOptions run;
  BenchOptions bench;
  DataOptions data;
  ModelsOptions models;
  CalibrateOptions calibrate;
};

// Throws UserError (exit code 2) for anything that is not understood, not built yet, or out of
// range. Prints help or the version and returns an empty command when asked for it.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace pl
