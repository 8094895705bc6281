#include "train/batch_facts.h"

#include "base/error.h"

namespace pl {
namespace {

// An input of samples as numbers.
struct Numbers {
  Meta meta;  // with the batch
  const void* data;

  double operator[](int64_t i) const {
    switch (meta.dtype) {
      case Dtype::float32:
        return static_cast<double>(static_cast<const float*>(data)[i]);
      case Dtype::float64:
        return static_cast<const double*>(data)[i];
      case Dtype::int32:
        return static_cast<double>(static_cast<const int32_t*>(data)[i]);
      case Dtype::int64:
        return static_cast<double>(static_cast<const int64_t*>(data)[i]);
      default:
        return static_cast<double>(static_cast<const uint8_t*>(data)[i]);
    }
  }
  int64_t count() const { return meta.elements(); }
};

Numbers input(Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  return {graph.values[index(graph.inputs[i])].meta, session.input(signature, i)};
}

bool all_binary(const Numbers& y) {
  for (int64_t i = 0; i < y.count(); ++i)
    if (y[i] != 0 && y[i] != 1) return false;
  return true;
}

// What the sum of a loss's values is divided by: the weights' sum, the number of values that
// count, or the weights' sum over these.
double divisor(const Loss& loss, const Numbers& y, const Numbers* weights) {
  const bool by_weights = weights && loss.reduction == "mean_with_sample_weight";
  const bool masked = loss.options.has("ignore_class");
  double sum = 0;
  if (!masked) {
    for (int64_t i = 0; i < weights->count(); ++i) sum += (*weights)[i];
    return sum;
  }
  const auto ignored = static_cast<double>(loss.options.integer("ignore_class"));
  const int64_t each = by_weights ? y.count() / weights->count() : 1;  // positions of a weight
  for (int64_t i = 0; i < y.count(); ++i)
    if (y[i] != ignored) sum += by_weights ? (*weights)[i / each] : 1;
  return sum;
}

}  // namespace

void write_facts(Session& session, size_t signature, size_t first) {
  const std::vector<HostFact>& facts = session.plan().step.facts;
  for (size_t f = 0; f < facts.size(); ++f) {
    const HostFact& fact = facts[f];
    const Numbers y = input(session, signature, fact.target);
    double value;
    if (fact.kind == HostFact::Kind::binary) {
      value = all_binary(y) ? 1 : 0;
    } else {
      Numbers weights;
      if (fact.weight) weights = input(session, signature, *fact.weight);
      const double sum = divisor(fact.loss, y, fact.weight ? &weights : nullptr);
      value = sum != 0 ? 1 / sum : 0;
    }
    void* to = session.input(signature, first + f);
    if (input(session, signature, first + f).meta.dtype == Dtype::float64) {
      *static_cast<double*>(to) = value;
    } else {
      *static_cast<float*>(to) = static_cast<float>(value);
    }
  }
}

KeptNumbers::KeptNumbers(const Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  const Meta& meta = graph.values[index(graph.keep[i])].meta;
  check(meta.dtype == Dtype::float32 || meta.dtype == Dtype::float64, "kept numbers");
  data_ = session.kept(signature, i);
  wide_ = meta.dtype == Dtype::float64;
  count_ = meta.elements();
}

}  // namespace pl
