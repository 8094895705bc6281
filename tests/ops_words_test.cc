// Every word of ops:: against the answers of Keras and NumPy in tests/golden/ops_words.txt: results
// and gradients, on values and through pl::function.
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>
#include <set>

#include "op/runtime.h"
#include "tests/data_files.h"
#include "tests/ops_words_check.h"

namespace pl::test::ops_words_test {
namespace {

class OpsWords : public ::testing::Test {
 protected:
  OpsWords() : runtime_({.memory = "64MiB", .threads = 1}) {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  }
  Runtime runtime_;
};

TEST_F(OpsWords, ElementByElementAgreeWithKeras) { expect_answers(words_made_by(add_elementwise)); }
TEST_F(OpsWords, OverAxesAgreeWithKeras) { expect_answers(words_made_by(add_reductions)); }
TEST_F(OpsWords, OfShapesAgreeWithKeras) { expect_answers(words_made_by(add_shapes)); }
TEST_F(OpsWords, OfProductsAgreeWithKeras) { expect_answers(words_made_by(add_products)); }
TEST_F(OpsWords, OfValuesAgreeWithKeras) { expect_answers(words_made_by(add_values)); }

TEST_F(OpsWords, AreAllCalled) {
  std::string text = read_bytes(source_dir() + "/src/op/ops.h");
  text = std::regex_replace(text.substr(text.find("namespace ops {")), std::regex("//[^\n]*"), "");
  const std::regex declaration("\n(?:inline )?(?:Tensors?|TopK) (\\w+)\\(");
  const Words words = words_of_ops();
  std::set<std::string> called;
  for (const WordCall& call : read_word_calls(golden("ops_words.txt"))) called.insert(call.word);
  size_t declared = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), declaration), end; at != end; ++at) {
    const std::string word = (*at)[1];
    EXPECT_TRUE(words.count(word)) << word << ": no line in tests/ops_words_table.h";
    EXPECT_TRUE(called.count(word)) << word << ": no call in tests/golden/ops_words_calls.py";
    ++declared;
  }
  EXPECT_GT(declared, 100u);
  for (const std::string& word : called) EXPECT_TRUE(words.count(word)) << word;
}

}  // namespace
}  // namespace pl::test::ops_words_test
