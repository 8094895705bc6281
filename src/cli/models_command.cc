#include <cstdio>

#include "base/json.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "model/builtin.h"

namespace pl {
namespace {

std::string dims_text(const Shape& shape) {
  std::string out;
  for (Dim dim : shape) out += (out.empty() ? "" : "x") + std::to_string(dim);
  return out;
}

Json dims_json(const Shape& shape) {
  Json list = Json::array();
  for (Dim dim : shape) list.push(dim);
  return list;
}

Json describe_json(const BuiltinModel& model, const Network& network) {
  Json layers = Json::array(), weights = Json::array();
  for (const auto& call : network.calls())
    layers.push(Json::object()
                    .set("name", call.layer->name)
                    .set("kind", call.layer->kind())
                    .set("output_shape", dims_json(call.shape))
                    .set("parameters", call.layer->parameters()));
  for (const auto& weight : network.weights())
    weights.push(Json::object()
                     .set("name", weight.path)
                     .set("shape", dims_json(weight.shape))
                     .set("dtype", "float32")
                     .set("trainable", weight.trainable));
  return Json::object()
      .set("name", model.name)
      .set("summary", model.summary)
      .set("input", dims_json(model.input))
      .set("input_dtype", network.vocabulary() > 0 ? "int32" : "float32")
      .set("classes", model.classes)
      .set("parameters", network.parameters())
      .set("layers", layers)
      .set("weights", weights);
}

void print_model(const BuiltinModel& model, const Network& network) {
  std::FILE* out = human_stream();
  std::fprintf(out, "%s: %s\ninput %s%s, %lld classes\n\n", model.name, model.summary,
               dims_text(model.input).c_str(), network.vocabulary() > 0 ? " tokens" : "",
               static_cast<long long>(model.classes));
  std::fprintf(out, "  %-20s %-20s %-16s %12s\n", "layer", "kind", "output", "parameters");
  for (const auto& call : network.calls())
    std::fprintf(out, "  %-20s %-20s %-16s %12lld\n", call.layer->name.c_str(), call.layer->kind(),
                 dims_text(call.shape).c_str(), static_cast<long long>(call.layer->parameters()));
  int64_t fixed = 0;
  for (const auto& weight : network.weights())
    if (!weight.trainable) fixed += weight.shape.elements();
  auto total = [&](const char* what, int64_t count) {
    std::fprintf(out, "  %-20s %-20s %-16s %12lld\n", what, "", "", static_cast<long long>(count));
  };
  total("total", network.parameters());
  if (fixed > 0) {
    total("trainable", network.parameters() - fixed);
    total("non-trainable", fixed);
  }
  std::fprintf(out, "\n");
  for (const auto& weight : network.weights())
    std::fprintf(out, "  %-28s %s%s\n", weight.path.c_str(), weight.shape.text().c_str(),
                 weight.trainable ? "" : "  non-trainable");
}

}  // namespace

int run_models(const ModelsOptions& options) {
  if (!options.name.empty()) {
    const BuiltinModel& model = find_builtin(options.name);
    const Network network = model.build(model.input, model.classes);
    if (options.json) {
      std::printf("%s\n", describe_json(model, network).dump().c_str());
    } else {
      print_model(model, network);
    }
    return 0;
  }
  Json list = Json::array();
  for (const BuiltinModel& model : builtin_models()) {
    const Network network = model.build(model.input, model.classes);
    list.push(Json::object()
                  .set("name", model.name)
                  .set("summary", model.summary)
                  .set("input", dims_json(model.input))
                  .set("parameters", network.parameters()));
    if (!options.json)
      std::fprintf(human_stream(), "  %-12s %-10s %12lld parameters   %s\n", model.name,
                   dims_text(model.input).c_str(), static_cast<long long>(network.parameters()),
                   model.summary);
  }
  if (options.json) std::printf("%s\n", list.dump().c_str());
  return 0;
}

}  // namespace pl
