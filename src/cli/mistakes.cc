#include "cli/mistakes.h"

#include <algorithm>
#include <numeric>

namespace pl {
namespace {

// Letters to insert, remove or replace, two neighbours swapped counting one.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) rows[i][0] = i;
  std::iota(rows[0].begin(), rows[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
    }
  return rows[a.size()][b.size()];
}

const CLI::App* command_of(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? nullptr : parsed.front();
}

std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (option->nonpositional() && !option->get_group().empty())
      names.push_back(option->get_name());
  return names;
}

std::string with_hint(const std::string& text, const std::string& near, const std::string& help) {
  return text + (near.empty() ? "" : "; did you mean " + near + "?") +
         (near.empty() ? "; see " : " See ") + help;
}

// The message for an option that was given more than once; empty: there is none.
std::string given_twice(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 1)
      return option->get_name() + ": expected once, received it given twice; leave one out";
  return "";
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known)
    if (const size_t d = distance(word, candidate); d < least) least = d, best = candidate;
  return best;
}

std::string explain(const CLI::ParseError& error, const CLI::App& app,
                    const std::vector<std::string>& arguments) {
  const CLI::App* command = command_of(app);
  const std::string help = "plimsoll " + (command ? command->get_name() + " " : "") + "--help";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    if (const std::string twice = given_twice(command ? *command : app); !twice.empty())
      return twice;
    const std::string text = error.what();
    return text.substr(0, text.find(':')) + ": expected a value, received none; see " + help;
  }
  if (!dynamic_cast<const CLI::ExtrasError*>(&error))
    return std::string(error.what()) + "; see " + help;
  if (!command) {
    std::vector<std::string> names;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
      if (!one->get_group().empty()) names.push_back(one->get_name());
    const std::string& word = arguments.front();
    return with_hint("expected a command, received '" + word + "'", nearest_word(word, names),
                     help);
  }
  const std::vector<std::string> names = options_of(*command);
  for (const std::string& argument : arguments) {
    const std::string word = argument.substr(0, argument.find('='));
    const bool option = word.size() > 1 && word[0] == '-' &&
                        std::string("0123456789.").find(word[1]) == std::string::npos;
    if (option && !command->get_option_no_throw(word))
      return with_hint(word + ": expected an option that `plimsoll " + command->get_name() +
                           "` has, received this one",
                       nearest_word(word, names), help);
  }
  return "expected one model and options, received more words: " +
         std::string(error.what()).substr(std::string(error.what()).find(':') + 2) + "; see " +
         help;
}

}  // namespace pl
