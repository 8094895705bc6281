// Reads tests/golden/op_answers.txt: for each sample of the catalogue, outputs that
// tests/golden/op_answers.py computed without this engine.
//
// A sample is a line "op sample hash outputs", then for each output a line "elements stride
// values...": every stride-th element, beginning with the first. Lines that begin with # are
// comments.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "op/sample.h"

namespace pl::test {

struct Answer {
  struct Output {
    int64_t elements = 0, stride = 1;
    std::vector<double> values;
  };
  uint64_t hash = 0;  // of the sample it was computed for: sample_hash
  std::vector<Output> outputs;
};

inline std::map<std::string, Answer> read_answers(const std::string& path) {
  std::map<std::string, Answer> answers;
  std::ifstream file(path);
  std::string line, op, sample, hash;
  while (std::getline(file, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream head(line);
    size_t outputs = 0;
    head >> op >> sample >> hash >> outputs;
    Answer& answer = answers[op + "/" + sample];
    answer.hash = std::strtoull(hash.c_str(), nullptr, 16);
    for (size_t o = 0; o < outputs && std::getline(file, line); ++o) {
      Answer::Output output;
      char* at = line.data();
      output.elements = std::strtoll(at, &at, 10);
      output.stride = std::strtoll(at, &at, 10);
      for (char* end = at;; at = end) {
        const double value = std::strtod(at, &end);  // reads nan and inf too
        if (end == at) break;
        output.values.push_back(value);
      }
      answer.outputs.push_back(std::move(output));
    }
  }
  return answers;
}

}  // namespace pl::test
