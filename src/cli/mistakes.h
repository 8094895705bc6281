// What was wrong with a command line, in our words, with the word that was probably meant.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pl {

// The nearest of `known` to `word`, when it is near enough to be meant; empty otherwise.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

// The message for arguments that `app` refused with `error`.
std::string explain(const CLI::ParseError& error, const CLI::App& app,
                    const std::vector<std::string>& arguments);

}  // namespace pl
