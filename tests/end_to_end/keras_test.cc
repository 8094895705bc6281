// Ten training losses against Keras's, from the same weights on the same batch.
// tests/golden/keras_losses.py made the answers; weights and batch come from the same counter hash.
#include <cmath>

#include "data/safetensors.h"
#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::keras_test {
namespace {

using ::pl::test::little;

uint32_t hashed(uint32_t salt, uint32_t i) {
  uint32_t x = i + salt * 0x9E3779B1u;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

Shape shape_of(const Json& list) {
  std::vector<Dim> dims;
  for (const Json& dim : list.as_array("shape")) dims.push_back(dim.as_integer("shape"));
  return Shape(std::move(dims));
}

std::string bytes_of(double value, Dtype dtype) {
  if (dtype == Dtype::float64) return little(std::bit_cast<uint64_t>(value), 8);
  return little(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
}

std::string tuple(const Shape& shape) {
  std::string out = "(";
  for (Dim dim : shape) out += std::to_string(dim) + ", ";
  return out + ")";
}

class Keras {
 public:
  Keras(size_t index, Dtype dtype)
      : answers_(parse_json(::pl::test::read_bytes(::pl::test::golden("keras_losses.json")),
                            "keras_losses.json")),
        case_(answers_.at("cases", "answers").as_array("cases")[index]),
        dtype_(dtype) {
    write_weights();
    write_batch();
  }

  std::vector<double> answer() const {
    std::vector<double> losses;
    for (const Json& loss : case_.at(name_of(dtype_), "case").as_array("losses"))
      losses.push_back(loss.as_real("loss"));
    return losses;
  }

  // One batch is one epoch.
  std::vector<double> ours() const {
    const Finished done = plimsoll(
        {"train", text("model"), "--optimizer", text("optimizer"), "--learning-rate",
         case_.at("learning_rate", "case").dump(), "--dtype", std::string(name_of(dtype_)),
         "--batch", std::to_string(integer_at(answers_, "batch")), "--epochs", "10", "--shuffle",
         "off", "--weights", folder_ / "w.safetensors", "--data", folder_ / "batch.npz", "--json"});
    EXPECT_EQ(done.exit, 0) << done.err;
    std::vector<double> losses;
    for (const Json& line : done.lines())
      if (line.at("event", "line") == Json("step"))
        losses.push_back(line.at("loss", "step").as_real("loss"));
    return losses;
  }

 private:
  std::string text(const char* key) const { return case_.at(key, "case").as_string(key); }

  void write_weights() {
    std::vector<std::string> data;
    std::vector<NamedBytes> tensors;
    const auto& list = case_.at("weights", "case").as_array("weights");
    for (const Json& weight : list) {
      const auto salt = static_cast<uint32_t>(data.size());
      const Meta meta{dtype_, shape_of(weight.at("shape", "weight"))};
      const auto exponent = static_cast<int>(integer_at(weight, "exponent"));
      std::string bytes;
      for (int64_t i = 0; i < meta.elements(); ++i) {
        const double whole = static_cast<double>(hashed(salt, static_cast<uint32_t>(i)) >> 8);
        bytes += bytes_of(std::ldexp(whole - 8388608.0, exponent - 23), dtype_);
      }
      data.push_back(std::move(bytes));
      tensors.push_back({weight.at("name", "weight").as_string("name"), meta, nullptr});
    }
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = data[i].data();
    write_safetensors(folder_ / "w.safetensors", tensors);
  }

  void write_batch() {
    const Dim rows = integer_at(answers_, "batch");
    const Shape shape = shape_of(case_.at("input", "case")).with_front(rows);
    const auto x_salt = static_cast<uint32_t>(integer_at(answers_, "input_salt"));
    const auto y_salt = static_cast<uint32_t>(integer_at(answers_, "label_salt"));
    const auto classes = static_cast<uint32_t>(integer_at(answers_, "classes"));
    std::string x, y;
    for (int64_t i = 0; i < shape.elements(); ++i)
      x += bytes_of(std::ldexp(hashed(x_salt, static_cast<uint32_t>(i)) >> 8, -24), dtype_);
    for (Dim i = 0; i < rows; ++i)
      y += little(hashed(y_salt, static_cast<uint32_t>(i)) % classes, 4);
    ::pl::test::write_bytes(
        folder_ / "batch.npz",
        ::pl::test::zip({{"x.npy", ::pl::test::npy_of(dtype_ == Dtype::float64 ? "<f8" : "<f4",
                                                      tuple(shape), x)},
                         {"y.npy", ::pl::test::npy_of("<i4", tuple(Shape{rows}), y)}}));
  }

  Json answers_, case_;
  Dtype dtype_;
  TempFolder folder_;
};

void expect_agreement(size_t index, Dtype dtype, double tolerance) {
  const Keras keras(index, dtype);
  const std::vector<double> answer = keras.answer(), ours = keras.ours();
  ASSERT_EQ(answer.size(), 10u);
  ASSERT_EQ(ours.size(), answer.size());
  EXPECT_LT(answer[9], answer[0]) << "an answer without training is none";
  double worst = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    const double relative = std::fabs(ours[i] / answer[i] - 1);
    worst = std::max(worst, relative);
    EXPECT_LE(relative, tolerance)
        << "step " << i + 1 << ": " << ours[i] << ", Keras " << answer[i];
  }
  std::printf("largest relative difference %.2g\n", worst);
  ::testing::Test::RecordProperty("largest_relative_difference", std::to_string(worst));
}

TEST(KerasLosses, OfMlpWithAdam) { expect_agreement(0, Dtype::float32, 1e-5); }
TEST(KerasLosses, OfMlpWithSgd) { expect_agreement(1, Dtype::float32, 1e-5); }
TEST(KerasLosses, OfMnistCnnWithAdam) { expect_agreement(2, Dtype::float32, 1e-5); }
TEST(KerasLosses, OfMlpWithAdamInFloat64) { expect_agreement(0, Dtype::float64, 1e-9); }
TEST(KerasLosses, OfMlpWithSgdInFloat64) { expect_agreement(1, Dtype::float64, 1e-9); }
TEST(KerasLosses, OfMnistCnnWithAdamInFloat64) { expect_agreement(2, Dtype::float64, 1e-9); }

}  // namespace
}  // namespace pl::test::keras_test
