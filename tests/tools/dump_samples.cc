// Writes every sample of the catalogue with its inputs, one JSON object a line, for
// tests/golden/op_answers.py. Usage: dump_samples > samples.jsonl
#include <cinttypes>
#include <cstdio>
#include <variant>

#include "op/sample.h"

namespace {

void print_list(const std::vector<int64_t>& list) {
  std::printf("[");
  for (size_t i = 0; i < list.size(); ++i) std::printf("%s%" PRId64, i ? ", " : "", list[i]);
  std::printf("]");
}

void print_attrs(const pl::Attrs& attrs) {
  const char* comma = "";
  std::printf("{");
  for (const auto& [name, value] : attrs.entries()) {
    std::printf("%s\"%s\": ", comma, name.c_str());
    comma = ", ";
    if (const auto* integer = std::get_if<int64_t>(&value))
      std::printf("%" PRId64, *integer);
    else if (const auto* real = std::get_if<double>(&value))
      std::printf("%.17g", *real);
    else if (const auto* text = std::get_if<std::string>(&value))
      std::printf("\"%s\"", text->c_str());
    else
      print_list(std::get<std::vector<int64_t>>(value));
  }
  std::printf("}");
}

double element(const pl::Tensor& tensor, int64_t i) {
  switch (tensor.dtype()) {
    case pl::Dtype::float32:
      return tensor.data_as<float>()[i];
    case pl::Dtype::int32:
      return tensor.data_as<int32_t>()[i];
    case pl::Dtype::int64:
      return static_cast<double>(tensor.data_as<int64_t>()[i]);
    default:
      return tensor.data_as<uint8_t>()[i];
  }
}

void print_tensor(const pl::Tensor& tensor) {
  std::printf("{\"dtype\": \"%s\", \"shape\": ", pl::name_of(tensor.dtype()).data());
  print_list(tensor.shape().dims());
  std::printf(", \"values\": [");
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    std::printf("%s%.17g", i ? ", " : "", element(tensor, i));
  std::printf("]}");
}

}  // namespace

int main() {
  for (const pl::Op* op : pl::catalogue()) {
    for (const pl::Sample& sample : op->samples()) {
      if (sample.benchmark) continue;
      std::printf("{\"op\": \"%s\", \"sample\": \"%s\", \"hash\": \"%016" PRIx64 "\", \"attrs\": ",
                  op->name, sample.name.c_str(), pl::sample_hash(*op, sample));
      print_attrs(sample.attrs);
      std::printf(", \"inputs\": [");
      const pl::Tensors inputs = pl::sample_inputs(*op, sample);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (i > 0) std::printf(", ");
        print_tensor(inputs[i]);
      }
      std::printf("]}\n");
    }
  }
}
