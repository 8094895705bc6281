#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <map>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "cli/help_text.h"
#include "cli/mistakes.h"
#include "cli/run_folder.h"
#include "train/optimizers.h"

namespace pl {
namespace {

// Every value arrives as text and is read here, so that all messages have one form.
int64_t parse_integer(const std::string& text, const char* option, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    throw UserError("[options] " + std::string(option) + ": expected a whole number from " +
                    std::to_string(low) + " to " + std::to_string(high) + ", received '" + text +
                    "'");
  return value;
}

double parse_real(const std::string& text, const char* option, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high))
    throw UserError("[options] " + std::string(option) + ": expected a number from " +
                    std::to_string(low) + " to 1e30" + ", received '" + text + "'");
  return value;
}

std::vector<std::string> parse_names(const std::string& text, const char* option) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    if (names.back().empty())
      throw UserError("[options] " + std::string(option) + ": expected NAME,..., received '" +
                      text + "'");
    begin = end + 1;
  }
  return names;
}

Shape parse_shape(const std::string& text) {
  std::vector<Dim> dims;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('x', begin), text.size());
    dims.push_back(
        parse_integer(text.substr(begin, end - begin), "--input (HxWxC or T)", 1, 1 << 24));
    begin = end + 1;
  }
  if (dims.size() > 4)
    throw UserError("[options] --input: expected at most 4 dimensions, received '" + text + "'");
  return Shape(std::move(dims));
}

std::string one_of(const std::string& text, const char* option,
                   std::initializer_list<const char*> allowed) {
  std::string known;
  for (const char* word : allowed) {
    if (text == word) return text;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw UserError("[options] " + std::string(option) + ": expected one of " + known +
                  ", received '" + text + "'");
}

[[noreturn]] void not_built(const std::string& what) {
  throw UserError("[options] " + what + " is not built yet; README.md lists what works");
}

using Texts = RunWords;

// Options whose part does not exist yet: they are known, so that the refusal can say so.
constexpr const char* kLaterValues[] = {"--disk", "--allow", "--html", "--profile"};

// `--memory "$UNSET"` is a mistake, not the default.
std::string not_empty(const std::string& given) {
  return given.empty() ? "expected a value, received an empty one" : "";
}

void add_run_options(CLI::App& app, Texts& texts, RunOptions& run) {
  auto text = [&](const char* name, const char* help) {
    return app.add_option(name, texts[name], help)->type_name("")->check(not_empty, "", "");
  };
  app.add_option("model", run.model, "built-in model (see `plimsoll models`)")->type_name("");
  text("--batch", "samples per step, or `max`: the largest that fits [32]");
  text("--input", "shape of one sample, as HxWxC or T [the model's own]");
  text("--memory", "budget for the whole process: 4GiB, 500MiB, 2GB, bytes, or `max` [none]");
  text("--device", "cpu, or cuda[:N]: a GPU [cpu]");
  text("--deterministic",
       "on or off: off allows a GPU algorithms whose bits differ between runs [on]");
  text("--dtype", "float32, float64, mixed_bfloat16 or mixed_float16 [float32]");
  text("--optimizer", (optimizer_names() + " [adam]").c_str());
  text("--learning-rate", "step size [the optimiser's Keras default]");
  text("--data",
       "synthetic, fashion-mnist, FILE.npz (arrays x, y), FILE.txt (characters, for models of "
       "tokens), a folder of JPEG, PNG or BMP images with a folder for each class (or with train "
       "and val that hold them), of IDX files (train-images-idx3-ubyte and its fellows) or of "
       "CIFAR's .bin files, FILE.tar or a folder or 'pattern*' of such shards (WebDataset: images "
       "and .cls) [synthetic]");
  text("--on-error",
       "stop at an image that is damaged, or skip: the next good one takes its place, and it is "
       "named and counted [stop]");
  text("--threads", "threads of the computation [$PLIMSOLL_THREADS, all cores]");
  text("--epochs", "passes over the data [1]");
  text("--steps", "stop after so many steps [synthetic: 100]");
  text("--seed", "of weights, shuffling, dropout and synthetic data [0]");
  text("--shuffle", "on or off [on]");
  text("--split",
       "auto, off, or K: work the batch off in K parts, which moves the last bits of sums; off "
       "keeps them at every budget [auto]; a multiple of the batch means bands of image rows");
  text("--recompute", "auto or off: compute activations again instead of keeping them [auto]");
  text("--remat",
       "NAME,...: layers whose activations are always computed again, such as block_*; or full");
  text("--offload",
       "auto or off: on a GPU, optimiser state lies in pinned memory of the host, and activations "
       "go there between two uses, where the budget asks for it [auto]");
  text("--host-memory", "the most host memory for that [half of what is free]");
  text("--checkpoint-every",
       "save all that going on needs after so many steps, beside training if the budget (with a "
       "GPU: the host) has room for a copy of it; needs --run [after each epoch, with --run]");
  app.add_flag("--json", run.json, "print JSON on stdout and nothing else there");
  for (const char* name : kLaterValues)
    app.add_option(name, texts[name], "not built yet")->group("");
  text("--graph", "plan: a bare scheduling problem in this JSON file instead of a model");
  text("--calls",
       "plan: with a GPU, writes what its kernels need and take to this file; without one, plans "
       "for that GPU from it");
  text("--what-if",
       "activation,dtype,size: what the plan would be if a layer's activations were computed "
       "again, its dtype another or its size half; a plan for each layer");
  app.add_flag("--frontier", run.frontier, "every plan worth having, memory against time");
  app.add_flag("--curve", run.curve, "batch size against memory and throughput");
}

// With --resume: what was not given is as the run began.
Texts with_saved_words(Texts texts) {
  std::erase_if(texts, [](const auto& word) { return word.second.empty(); });
  const auto resume = texts.find("--resume");
  if (resume == texts.end()) return texts;
  const std::string folder = resume->second;
  const bool other_budget = texts.contains("--memory");
  for (const auto& [name, value] : saved_words(folder))
    if (name != "--resume" && !(name == "--split" && other_budget)) texts.emplace(name, value);
  // The run stays in its folder unless another is given now; where it was begun does not matter.
  texts.emplace("--run", folder);
  return texts;
}

// Options that are words as they are.
void read_paths(const Texts& texts, RunOptions& run) {
  const auto word = [&](const char* name) {
    const auto at = texts.find(name);
    return at == texts.end() ? std::string() : at->second;
  };
  run.model = word("model");
  run.run = word("--run");
  run.resume = word("--resume");
  run.weights = word("--weights");
  run.save_weights = word("--save-weights");
  run.words = texts;
  for (const char* name : {"--run", "--resume", "--what-if"}) run.words.erase(name);
}

// "cpu", "cuda" or "cuda:1".
void read_device(const std::string& text, RunOptions& run) {
  run.device = text;
  if (text == "cpu") return;
  if (text.starts_with("null:")) not_built("--device " + text);
  if (text == "cuda")
    run.cuda = 0;
  else if (text.starts_with("cuda:"))
    run.cuda = static_cast<int>(parse_integer(text.substr(5), "--device cuda:N", 0, 63));
  else
    one_of(text, "--device", {"cpu", "cuda", "cuda:N"});
}

const std::string* given_in(const Texts& texts, const char* name) {
  const auto at = texts.find(name);
  return at == texts.end() || at->second.empty() ? nullptr : &at->second;
}

// How it trains, and on what.
void read_training(const Texts& texts, RunOptions& run) {
  const auto given = [&](const char* name) { return given_in(texts, name); };
  if (const auto* text = given("--dtype")) {
    run.dtype = *policy_from_name(
        one_of(*text, "--dtype", {"float32", "float64", "mixed_bfloat16", "mixed_float16"}));
  }
  if (const auto* text = given("--optimizer")) run.optimizer = *text;
  if (const auto* text = given("--learning-rate"))
    run.learning_rate = parse_real(*text, "--learning-rate", 0, 1e30);
  if (const auto* text = given("--data")) run.data = *text;
  if (const auto* text = given("--on-error"))
    run.skip_errors = one_of(*text, "--on-error", {"stop", "skip"}) == "skip";
  if (const auto* text = given("--threads"))
    run.threads = static_cast<int>(parse_integer(*text, "--threads", 1, 1024));
  if (const auto* text = given("--epochs"))
    run.epochs = parse_integer(*text, "--epochs", 1, 1000000000);
  if (const auto* text = given("--steps"))
    run.steps = parse_integer(*text, "--steps", 1, int64_t{1} << 40);
  if (const auto* text = given("--seed"))
    run.seed = static_cast<uint64_t>(
        parse_integer(*text, "--seed", 0, std::numeric_limits<int64_t>::max()));
  if (const auto* text = given("--shuffle"))
    run.shuffle = one_of(*text, "--shuffle", {"on", "off"}) == "on";
  if (const auto* text = given("--checkpoint-every"))
    run.checkpoint_every = parse_integer(*text, "--checkpoint-every", 1, int64_t{1} << 40);
  if (const auto* text = given("--keep-checkpoints"))
    run.keep_checkpoints = parse_integer(*text, "--keep-checkpoints", 1, 1000000);
}

void read_run_options(const Texts& texts, RunOptions& run) {
  const auto given = [&](const char* name) { return given_in(texts, name); };
  for (const char* name : kLaterValues)
    if (given(name)) not_built(name);
  read_paths(texts, run);
  if (const auto* text = given("--split"); text && *text != "auto")
    run.split = *text == "off" ? 1 : parse_integer(*text, "--split (auto, off or K)", 1, 1 << 30);
  if (const auto* text = given("--recompute"))
    run.recompute = one_of(*text, "--recompute", {"auto", "off"}) == "auto";
  if (const auto* text = given("--remat")) run.remat = parse_names(*text, "--remat");
  if (const auto* text = given("--what-if"))
    for (const std::string& change : parse_names(*text, "--what-if"))
      run.what_if.push_back(one_of(change, "--what-if", {"activation", "dtype", "size"}));
  if (const auto* text = given("--device")) read_device(*text, run);
  if (const auto* text = given("--offload"))
    run.offload = one_of(*text, "--offload", {"auto", "off"}) == "auto";
  if (const auto* text = given("--host-memory"))
    run.host_memory = parse_bytes(*text, "--host-memory");
  if (!run.cuda && run.offload && (given("--offload") || run.host_memory))
    not_built("--offload without a GPU");
  if (const auto* text = given("--deterministic"))
    run.deterministic = one_of(*text, "--deterministic", {"on", "off"}) == "on";
  if (const auto* text = given("--batch")) {
    run.batch_max = *text == "max";
    if (!run.batch_max) run.batch = parse_integer(*text, "--batch", 1, (int64_t{1} << 31) - 1);
  }
  if (const auto* text = given("--input")) run.input = parse_shape(*text);
  if (const auto* text = given("--memory")) {
    run.memory_max = *text == "max";
    if (!run.memory_max)
      run.memory = parse_bytes(*text, "--memory");
    else if (!run.cuda)
      run.memory = host_room().least();
  }
  read_training(texts, run);
  if (const auto* text = given("--graph")) run.graph = *text;
  if (const auto* text = given("--calls")) run.calls = *text;
  if (!run.cuda && !run.calls.empty())
    throw UserError(
        "[options] --calls: expected --device cuda, whose calls it is about, received cpu; leave "
        "it out, or name the device");
  if (!run.graph.empty() && !run.model.empty())
    throw UserError("[options] --graph: expected a file or a model, received both");
  if (run.model.empty() && run.graph.empty())
    throw UserError(
        "[options] expected the name of a model, received none; `plimsoll models` lists them");
}

void read_data_options(const Texts& texts, DataOptions& options) {
  const auto given = [&](const char* name) { return given_in(texts, name); };
  if (const auto* text = given("--batch"))
    options.batch = parse_integer(*text, "--batch", 1, 1 << 24);
  if (const auto* text = given("--epochs"))
    options.epochs = parse_integer(*text, "--epochs", 1, 1000000);
  if (const auto* text = given("--memory")) options.memory = parse_bytes(*text, "--memory");
  if (const auto* text = given("--input")) options.input = parse_shape(*text);
  if (const auto* text = given("--threads"))
    options.threads = static_cast<int>(parse_integer(*text, "--threads", 1, 1024));
  if (const auto* text = given("--seed"))
    options.seed = static_cast<uint64_t>(parse_integer(*text, "--seed", 0, INT64_MAX));
  if (const auto* text = given("--html")) options.html = *text;
  if (const auto* text = given("--on-error"))
    options.skip_errors = one_of(*text, "--on-error", {"stop", "skip"}) == "skip";
}

CLI::App* add_train_command(CLI::App& app, Texts& texts, RunOptions& run) {
  CLI::App* train = app.add_subcommand(
      "train",
      "Plan, reserve, then train.\nWeights, plan, logs and checkpoints go to --run FOLDER.");
  add_run_options(*train, texts, run);
  auto text = [&](const char* name, const char* help) {
    train->add_option(name, texts[name], help)->type_name("")->check(not_empty, "", "");
  };
  text("--run",
       "folder for plan.json, log.jsonl, log.csv, TensorBoard's files, checkpoints and "
       "weights.safetensors");
  text("--resume",
       "go on with the run in this folder, in the middle of an epoch if need be; options that are "
       "not given are as they were");
  text("--keep-checkpoints", "so many of the last, and the best, stay [2]");
  text("--weights", "start from this safetensors file");
  text("--save-weights", "write the trained weights to this safetensors file");
  return train;
}

CLI::App* add_data_command(CLI::App& app, Texts& texts, DataOptions& options) {
  CLI::App* data = app.add_subcommand(
      "data",
      "Run an input pipeline alone: samples a second, what each stage holds, and who waits.\n"
      "SOURCE is synthetic, fashion-mnist, a file or 'pattern*' of .npz, .npy, .tfrecord, .csv, "
      ".txt,\n"
      ".tar (WebDataset), .bin (CIFAR) or IDX files, or a folder: of images with a folder for "
      "each\n"
      "class (or with train and val that hold them), of IDX or CIFAR files, or of shards.");
  data->add_option("source", options.source, "what to read")->type_name("")->required();
  for (const auto& [name, help] : std::initializer_list<std::pair<const char*, const char*>>{
           {"--batch", "samples a batch [32]"},
           {"--epochs", "passes [1]"},
           {"--memory",
            "the most that the pipeline may hold [64MiB, or the least that it runs in]"},
           {"--input", "images are brought to this size [224x224x3]"},
           {"--threads", "threads that read and decode [$PLIMSOLL_THREADS, all cores]"},
           {"--seed", "of the order [0]"},
           {"--on-error",
            "stop at a damaged sample, or skip it: skipped ones are counted and named [stop]"},
           {"--html", "write a page with sample batches and the stages' figures"}})
    data->add_option(name, texts[name], help)->type_name("")->check(not_empty, "", "");
  data->add_flag("--json", options.json, "print JSON");
  return data;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app{kAbout, "plimsoll"};
  app.footer(kEnvironment);
  app.set_version_flag("--version", "plimsoll 0.1.0");
  CommandLine line;
  Texts texts, data_texts;
  std::string bench_threads;
  auto* plan = app.add_subcommand(
      "plan",
      "Say what training would use, to the byte, without training.\n"
      "Exits 3 when it does not fit, with the smallest budget, what fills it and what would help.");
  add_run_options(*plan, texts, line.run);
  auto* train = add_train_command(app, texts, line.run);
  auto* models =
      app.add_subcommand("models", "List the built-in models, or one's layers and weights.");
  models->add_option("name", line.models.name, "a model")->type_name("");
  models->add_flag("--json", line.models.json, "print JSON");
  auto* bench = app.add_subcommand("bench", "Time kernels and steps on this machine.");
  bench->add_option("filter", line.bench.filter, "only names that contain this")->type_name("");
  bench->add_option("--threads", bench_threads, "threads [$PLIMSOLL_THREADS, all cores]")
      ->type_name("")
      ->check(not_empty, "", "");
  bench->add_flag("--json", line.bench.json, "print JSON");
  auto* calibrate = app.add_subcommand("calibrate", "measure this machine's rates")->group("");
  calibrate->add_option("--threads", line.calibrate.threads)->check(CLI::Range(1, 1024));
  calibrate->add_option("--room", line.calibrate.room)->check(CLI::NonNegativeNumber);
  auto* report = app.add_subcommand("report", "not built yet")->group("");
  auto* data = add_data_command(app, data_texts, line.data);
  report->allow_extras();
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      app.exit(error);  // help or version
      return {};
    }
    throw UserError("[options] " + explain(error, app, arguments));
  }
  if (report->parsed()) not_built("`plimsoll report`");
  for (auto* command : {plan, train, models, bench, data, calibrate})
    if (command->parsed()) line.command = command->get_name();
  if (line.command.empty()) {
    std::fputs(app.help().c_str(), stdout);
    return {};
  }
  if (line.command == "plan" || line.command == "train") {
    if (!line.run.model.empty()) texts["model"] = line.run.model;
    read_run_options(with_saved_words(texts), line.run);
  }
  if (line.command == "data") read_data_options(data_texts, line.data);
  if (line.command == "train" && !line.run.graph.empty())
    throw UserError("[options] --graph: a bare problem can be planned, not trained");
  if (!bench_threads.empty())
    line.bench.threads = static_cast<int>(parse_integer(bench_threads, "--threads", 1, 1024));
  return line;
}

}  // namespace pl
