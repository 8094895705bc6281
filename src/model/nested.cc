#include "model/nested.h"

#include "base/error.h"
#include "model/weight_home.h"

namespace pl {
namespace {

class NestedLayer final : public Layer {
 public:
  NestedLayer(const std::string& given, const char* kind, NetworkFor network,
              std::optional<bool> training)
      : kind_(kind), network_(std::move(network)), training_(training) {
    name = given;
  }
  const char* kind() const override { return kind_; }

  std::vector<Symbolic> connect(const std::shared_ptr<Layer>&,
                                const std::vector<Symbolic>& in) override {
    const std::string own = name.empty() ? snake_case(kind_) : name;
    std::vector<Symbolic> slots = in;
    std::vector<Shape> samples;
    for (const Symbolic& symbol : in) samples.push_back(symbol.shape());
    const Network& network = network_(samples);
    if (in.size() != network.input_shapes().size())
      throw UserError("[build] " + own + ": expected " +
                      std::to_string(network.input_shapes().size()) + " inputs, received " +
                      std::to_string(in.size()));
    for (const Network::Call& call : network.calls()) {
      std::vector<Symbolic> operands;
      std::vector<Shape> shapes;
      for (int slot : call.in) {
        operands.push_back(slots[index(slot)]);
        shapes.push_back(operands.back().shape());
      }
      const std::string path = own + "/" + call.path;
      try {
        slots.emplace_back(std::make_shared<Symbolic::Origin>(
            Symbolic::Origin{.layer = call.layer,
                             .in = operands,
                             .shape = build_layer(*call.layer, shapes),
                             .path = path,
                             .training = training_ ? training_ : call.training}));
      } catch (const UserError& error) {
        throw build_error(path, error);
      }
    }
    std::vector<Symbolic> out;
    for (int slot : network.output_slots()) out.push_back(slots[index(slot)]);
    return out;
  }

  // connect() leaves no call of the layer itself.
  Shape build(const std::vector<Shape>&) override {
    throw UserError("expected a model to be called as a layer");
  }
  Tensor call(const LayerCall&) const override {
    throw UserError("[" + name + "] expected a model to be called as a layer");
  }

 private:
  const char* kind_;
  NetworkFor network_;
  std::optional<bool> training_;
};

}  // namespace

LayerRef nested_layer(const std::string& name, const char* kind, NetworkFor network,
                      std::optional<bool> training) {
  return LayerRef(std::make_shared<NestedLayer>(name, kind, std::move(network), training));
}

}  // namespace pl
