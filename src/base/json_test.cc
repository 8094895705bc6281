#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/data_files.h"

namespace pl::json_test {
namespace {

using test::expect_data_error;

void expect_refused(const std::string& text, const std::string& part, JsonLimits limits = {}) {
  expect_data_error([&] { parse_json(text, "the text", limits); }, part);
  expect_data_error([&] { parse_json(text, "the text", limits); }, "the text");
}

TEST(Json, PrintsInInsertionOrder) {
  Json json;
  json.set("b", 1).set("a", true).set("list", Json::array().push(1.5).push("x").push(nullptr));
  json.set("b", 2);
  EXPECT_EQ(json.dump(), R"({"b":2,"a":true,"list":[1.5,"x",null]})");
  EXPECT_EQ(Json::object().set("k", Json::array().push(1)).dump(2), "{\n  \"k\": [\n    1\n  ]\n}");
  EXPECT_EQ(Json::array().dump(2), "[]");
}

TEST(Json, PrintsNumbersThatReadBack) {
  for (double value : {0.1, 1.0, -0.0, 1e300, 5e-324, 123456789.125, 1.0 / 3}) {
    const Json read = parse_json(Json(value).dump(), "number");
    ASSERT_EQ(read.kind(), Json::Kind::real) << Json(value).dump();
    EXPECT_EQ(read.as_real(""), value);
    EXPECT_EQ(std::signbit(read.as_real("")), std::signbit(value));
  }
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(INT64_MIN).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(UINT64_MAX).kind(), Json::Kind::real);
}

TEST(Json, EscapesStringsAndReplacesBadUtf8) {
  EXPECT_EQ(Json("a\"\\\n\t\x01\x7f").dump(), R"("a\"\\\n\t\u0001\u007f")");
  EXPECT_EQ(Json("caf\xC3\xA9 \xF0\x9F\x9A\xA2").dump(), "\"caf\xC3\xA9 \xF0\x9F\x9A\xA2\"");
  // A lone continuation, an overlong slash, a surrogate, a cut sequence.
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(Json("\x80").dump(), "\"" + mark + "\"");
  EXPECT_EQ(Json("\xC0\xAF").dump(), "\"" + mark + mark + "\"");
  EXPECT_EQ(Json("\xED\xA0\x80").dump(), "\"" + mark + mark + mark + "\"");
  EXPECT_EQ(Json("\xE2\x82").dump(), "\"" + mark + mark + "\"");
}

TEST(Json, ReadsWhatItPrints) {
  const std::string text = R"({"a":[1,-2,[],{}],"b":{"c":null,"d":"\u00e9"},"e":1e-7,"f":false})";
  const Json json = parse_json(text, "text");
  EXPECT_EQ(parse_json(json.dump(), "again"), json);
  EXPECT_EQ(parse_json(json.dump(3), "indented"), json);
  EXPECT_EQ(json.at("a", "").as_array("").size(), 4u);
  EXPECT_EQ(json.at("b", "").at("d", "").as_string(""), "\xC3\xA9");
  EXPECT_EQ(json.find("z"), nullptr);
  EXPECT_EQ(parse_json(" 7 ", "scalar").as_integer(""), 7);
}

TEST(Json, TypedReadsNameThePlace) {
  const Json json = parse_json(R"({"a":"text"})", "file");
  expect_data_error([&] { json.at("a", "").as_integer("entry a"); },
                    "entry a: expected an integer, received a string");
  expect_data_error([&] { json.at("b", "entry b"); }, "expected a key \"b\"");
  expect_data_error([&] { Json(1.5).as_integer("n"); }, "received a number");
}

TEST(Json, RefusesBrokenText) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":}", "nul", "1 2", "{} x", "[1] ]", "'a'",
                           "{\"a\" 1}", "\"\x01\"", "\"\xFF\"", "\"\\ud800\"", "01", "+1", "NaN"})
    expect_refused(text, "expected JSON");
  expect_refused(std::string("1\0", 2), "expected JSON");
}

TEST(Json, RefusesDuplicateKeys) {
  expect_refused(R"({"a":1,"b":2,"a":3})", "\"a\" twice");
  expect_refused(R"([{"k":{"x":1,"\u0078":2}}])", "\"x\" twice");
}

TEST(Json, RefusesNumbersOutOfRange) {
  EXPECT_EQ(parse_json("9223372036854775807", "n").as_integer(""), INT64_MAX);
  EXPECT_EQ(parse_json("-9223372036854775808", "n").as_integer(""), INT64_MIN);
  expect_refused("9223372036854775808", "64 bits");
  expect_refused("-9223372036854775809", "64 bits");
  expect_refused("123456789012345678901234567890", "64 bits");
  expect_refused("1e999", "");
}

TEST(Json, LimitsDepthBytesAndValues) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(64), "deep").is_array());
  expect_refused(nested(65), "64 levels");
  expect_refused(std::string(5'000'000, '['), "64 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_refused(objects, "64 levels");
  expect_refused("[1,2,3]", "at most 3 values", {.values = 3});
  expect_refused("[1,2,3]", "at most 6 bytes", {.bytes = 6});
}

TEST(Json, LongGarbageGivesAShortMessage) {
  try {
    parse_json("\"" + std::string(1'000'000, 'a'), "long");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_LT(std::string(error.what()).size(), 500u);
  }
}

}  // namespace
}  // namespace pl::json_test
