// Characters of a text, learned by gpt-tiny and made up again.
//
//   build/examples/generate --data book.txt --epochs 3 --save weights.safetensors --prompt "The "
//   build/examples/generate --data book.txt --weights weights.safetensors --temperature 0.8
//
// The text also says which character each token is, so it is needed with trained weights too.
#include "generate/sampler.h"

#include <charconv>
#include <cstdio>
#include <cstring>

#include "plimsoll.h"

namespace {

using namespace pl;

struct Options {
  std::string data, weights, save, prompt = "\n", memory;
  int64_t epochs = 1, batch = 16, window = 256, length = 400;
  pl::SamplerOptions sampler;
};

[[noreturn]] void usage(const std::string& wrong) {
  throw UserError(
      "[generate] " + wrong +
      "; options: --data FILE.txt [--weights FILE | --epochs N --batch N --memory SIZE --save "
      "FILE] "
      "[--window N] [--prompt TEXT] [--length N] [--temperature X] [--top-k N] [--seed N]");
}

template <class T>
void parse(const std::string& name, const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end)
    usage(name + ": expected a number, received '" + text + "'");
}

Options options_of(int count, char** words) {
  Options options;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (i + 1 == count) usage(name + ": expected a value behind it");
    const std::string value = words[i + 1];
    if (name == "--data")
      options.data = value;
    else if (name == "--weights")
      options.weights = value;
    else if (name == "--save")
      options.save = value;
    else if (name == "--prompt")
      options.prompt = value;
    else if (name == "--memory")
      options.memory = value;
    else if (name == "--epochs")
      parse(name, value, options.epochs);
    else if (name == "--batch")
      parse(name, value, options.batch);
    else if (name == "--window")
      parse(name, value, options.window);
    else if (name == "--length")
      parse(name, value, options.length);
    else if (name == "--temperature")
      parse(name, value, options.sampler.temperature);
    else if (name == "--top-k")
      parse(name, value, options.sampler.top_k);
    else if (name == "--seed")
      parse(name, value, options.sampler.seed);
    else
      usage("unknown option " + name);
  }
  if (options.data.empty()) usage("expected --data");
  if (options.window < 1) usage("--window: expected a positive number");
  return options;
}

int run(const Options& options) {
  const Symbolic tokens = Input({options.window});
  Model model(tokens, gpt(kGptTiny, tokens));
  model.compile({.optimizer = Adam(),
                 .loss = Loss{"sparse_categorical_crossentropy", true},
                 .metrics = {"accuracy"}});
  if (options.weights.empty()) {
    const Sources text = text_sources(options.data, options.window, kGptTiny.vocabulary);
    FitOptions fit{
        .batch_size = options.batch, .epochs = options.epochs, .seed = options.sampler.seed};
    if (!options.memory.empty()) fit.memory = options.memory;
    if (text.test) fit.validation_data = *text.test;
    model.fit(*text.train, fit);
  } else {
    model.load_weights(options.weights);
  }
  if (!options.save.empty()) model.save_weights(options.save);
  const std::string made = generate(model, options.window, text_characters(options.data),
                                    options.prompt, options.length, options.sampler);
  std::printf("%s%s\n", options.prompt.c_str(), made.c_str());
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(options_of(count, words));
  } catch (const pl::Error& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return error.exit_code();
  }
}
