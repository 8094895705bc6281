// Runs the built `plimsoll` as a user would: a process of its own, its output, exit code and peak.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json.h"
#include "tests/data_files.h"
#include "tests/places.h"

namespace pl::test {

// The sanitizer's shadow is on nobody's bill.
inline constexpr bool kSanitized = PLIMSOLL_SANITIZED;

using Words = std::vector<std::string>;
using ::pl::test::TempFolder;

struct Finished {
  int exit = -1;   // -1: ended by a signal
  int signal = 0;  // 0: ended by itself
  std::string out, err;
  Bytes peak = 0;  // resident, from outside; run_measured only

  // stdout as JSON, one value a line. A line that is not JSON fails the test.
  std::vector<Json> lines() const {
    std::vector<Json> list;
    for (size_t begin = 0; begin < out.size();) {
      const size_t end = std::min(out.find('\n', begin), out.size());
      try {
        list.push_back(parse_json(out.substr(begin, end - begin), "stdout"));
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what() << "\nin " << out.substr(begin, end - begin);
      }
      begin = end + 1;
    }
    return list;
  }
  // The event of that name, or null.
  Json event(const std::string& name) const {
    for (const Json& line : lines())
      if (const Json* kind = line.find("event"); kind && *kind == Json(name)) return line;
    return {};
  }
};

// Runs `words`, stdout and stderr into files in `folder`.
inline Finished run_words(const Words& words, const TempFolder& folder) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string out = folder / "stdout", err = folder / "stderr";
  const pid_t child = ::fork();
  if (child == 0) {
    const int in = ::open("/dev/null", O_RDONLY);
    const int to = ::open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    const int errors = ::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (::dup2(in, 0) < 0 || ::dup2(to, 1) < 0 || ::dup2(errors, 2) < 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Finished result;
  if (WIFEXITED(status)) result.exit = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = ::pl::test::read_bytes(out);
  result.err = ::pl::test::read_bytes(err);
  return result;
}

// plimsoll with these arguments.
inline Finished plimsoll(Words arguments) {
  const TempFolder folder;
  arguments.insert(arguments.begin(), ::pl::test::binary());
  return run_words(arguments, folder);
}

// The same below a small parent that reads the peak.
// `through`: a tool that starts it.
inline Finished plimsoll_measured(const Words& arguments, const Words& through = {}) {
  const TempFolder folder;
  const std::string report = folder / "peak.json";
  Words words{::pl::test::tool("peak"), "-o", report};
  words.insert(words.end(), through.begin(), through.end());
  words.push_back(::pl::test::binary());
  words.insert(words.end(), arguments.begin(), arguments.end());
  Finished result = run_words(words, folder);
  EXPECT_EQ(result.exit, 0) << "peak itself: " << result.err;
  const Json json = parse_json(::pl::test::read_bytes(report), "peak");
  result.exit = static_cast<int>(json.at("exit", "peak").as_integer("exit"));
  result.signal = static_cast<int>(json.at("signal", "peak").as_integer("signal"));
  result.peak = json.at("peak_bytes", "peak").as_integer("peak_bytes");
  return result;
}

inline int64_t integer_at(const Json& object, const std::string& key) {
  return object.at(key, "answer").as_integer(key);
}

}  // namespace pl::test
