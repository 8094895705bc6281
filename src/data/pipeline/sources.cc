// Sources: tensors in memory, ranges, generators, and whatever reads by index.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

// Elements are whoever's they are given to: a copy of what the user holds, never a view of it.
Tensor copy_of(Meta meta, const void* from) {
  Tensor copy(std::move(meta));
  if (const Bytes bytes = copy.meta().bytes(); bytes > 0)
    std::memcpy(copy.data(), from, static_cast<size_t>(bytes));
  return copy;
}

uint64_t hash_of(const Tensors& tensors) {
  Xxh3 hash;
  for (const Tensor& tensor : tensors)
    hash.update(tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
  return hash.digest();
}

class TensorSlices final : public Stage {
 public:
  TensorSlices(ElementSpec spec, Tensors tensors)
      : Stage("tensor_slices", {}), tensors_(std::move(tensors)) {
    spec_ = std::move(spec);
    cardinality_ = tensors_[0].shape()[0];
    indexable_ = true;
    for (const FieldSpec& field : spec_.fields) row_bytes_.push_back(field.known_bytes());
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing); }
  Bytes beside() const override {
    Bytes sum = 0;
    for (const Tensor& tensor : tensors_) sum += tensor.meta().bytes();
    return sum;
  }
  uint64_t contents() const override { return hash_of(tensors_); }
  Element get(Run&, uint64_t, int64_t i) const override {
    Element out;
    out.reserve(tensors_.size());
    for (size_t f = 0; f < tensors_.size(); ++f)
      out.push_back(copy_of({spec_.fields[f].dtype, spec_.fields[f].shape},
                            tensors_[f].data_as<char>() + i * row_bytes_[f]));
    return out;
  }
  bool puts() const override { return true; }
  void put(Run&, uint64_t, int64_t i, std::span<char* const> to) const override {
    for (size_t f = 0; f < tensors_.size(); ++f)
      std::memcpy(to[f], tensors_[f].data_as<char>() + i * row_bytes_[f],
                  static_cast<size_t>(row_bytes_[f]));
  }

 private:
  Tensors tensors_;
  std::vector<Bytes> row_bytes_;
};

class OneElement final : public Stage {
 public:
  OneElement(ElementSpec spec, Tensors tensors)
      : Stage("tensors", {}), tensors_(std::move(tensors)) {
    spec_ = std::move(spec);
    cardinality_ = 1;
    indexable_ = true;
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing); }
  uint64_t contents() const override { return hash_of(tensors_); }
  Bytes beside() const override {
    Bytes sum = 0;
    for (const Tensor& tensor : tensors_) sum += tensor.meta().bytes();
    return sum;
  }
  Element get(Run&, uint64_t, int64_t) const override {
    Element out;
    out.reserve(tensors_.size());
    for (const Tensor& tensor : tensors_) out.push_back(copy_of(tensor.meta(), tensor.data()));
    return out;
  }

 private:
  Tensors tensors_;
};

class Range final : public Stage {
 public:
  Range(int64_t begin, int64_t end, int64_t step) : Stage("range", {}), begin_(begin), step_(step) {
    spec_ = {{{"x", Dtype::int64, Shape()}}};
    const bool empty = step > 0 ? end <= begin : end >= begin;
    // In unsigned numbers, since the distance may exceed int64.
    const auto low = static_cast<uint64_t>(step > 0 ? begin : end),
               high = static_cast<uint64_t>(step > 0 ? end : begin),
               size = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
    const uint64_t count = empty ? 0 : (high - low - 1) / size + 1;
    if (count > static_cast<uint64_t>(INT64_MAX))
      throw UserError("[data] range: expected fewer than 2^63 numbers, received " +
                      std::to_string(count) + "; give a larger step");
    cardinality_ = static_cast<int64_t>(count);
    indexable_ = true;
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing); }
  std::string decides() const override {
    return std::to_string(begin_) + "+" + std::to_string(step_);
  }
  Element get(Run&, uint64_t, int64_t i) const override {
    Tensor value(Meta{Dtype::int64, Shape()});
    *value.data_as<int64_t>() = begin_ + i * step_;
    Element out;
    out.push_back(std::move(value));
    return out;
  }

 private:
  int64_t begin_, step_;
};

class ReaderNode final : public Stage {
 public:
  ReaderNode(const std::string& kind, ElementSpec spec, int64_t count, Reader read,
             SourceFacts facts)
      : Stage(kind, {}), read_(std::move(read)), facts_(std::move(facts)) {
    spec_ = std::move(spec);
    cardinality_ = count;
    indexable_ = true;
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    return bound_of(spec_, facts_.max_bytes, sizing);
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing) + facts_.scratch; }
  Bytes beside() const override { return facts_.beside; }
  std::string decides() const override { return facts_.key; }
  uint64_t contents() const override { return facts_.contents; }
  Element get(Run& run, uint64_t, int64_t i) const override {
    return guarded(name_, i, [&] {
      Element out = read_(i);
      check_element(spec_, out, name_);
      check_bound(run, out);
      return out;
    });
  }

 private:
  void check_bound(Run& run, const Element& out) const {
    const Bytes bound = out_bytes(run.sizing());
    if (spec_.known() || granted(out) <= bound) return;
    throw DataError("expected an element of at most " + format_bytes(bound) + ", received " +
                    format_bytes(granted(out)) + "; give the source a larger max_bytes");
  }

  Reader read_;
  SourceFacts facts_;
};

class GeneratorNode final : public Stage {
 public:
  GeneratorNode(ElementSpec spec, std::function<Pull()> factory, SourceFacts facts)
      : Stage("generator", {}), factory_(std::move(factory)), facts_(std::move(facts)) {
    spec_ = std::move(spec);
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    const Bytes bound = bound_of(spec_, facts_.max_bytes, sizing);
    return facts_.most > 0 && !spec_.known() ? std::min(bound, granted(facts_.most)) : bound;
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing); }
  std::string decides() const override { return facts_.key; }
  uint64_t contents() const override { return facts_.contents; }

  IteratorRef iterate(Run& run, uint64_t) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const GeneratorNode& node, Run& run)
          : node_(node), bound_(node.out_bytes(run.sizing())), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        if (ended_) return false;
        out.clear();
        const int64_t at = at_++;
        // What has thrown cannot go on, and is not asked again; unless it says that it can.
        ended_ = !node_.facts_.goes_on;
        guarded(node_.name(), at, [&] {
          if (!pull_) pull_ = node_.factory_();
          std::optional<Element> made = pull_();
          if (!made) {
            ended_ = true;
            return;
          }
          out = std::move(*made);
          ended_ = false;
          check_element(node_.spec(), out, node_.name());
          if (granted(out) > bound_)
            throw DataError("expected an element of at most " + format_bytes(bound_) +
                            ", received " + format_bytes(granted(out)) +
                            "; give the generator a larger max_bytes");
        });
        if (!ended_) ++figures_.elements;
        return !ended_;
      }

     private:
      const GeneratorNode& node_;
      const Bytes bound_;
      StageFigures& figures_;
      Pull pull_;
      int64_t at_ = 0;
      bool ended_ = false;
    };
    return std::make_unique<Iterate>(*this, run);
  }

 private:
  std::function<Pull()> factory_;
  SourceFacts facts_;
};

}  // namespace

StageRef tensor_slices_stage(ElementSpec spec, Tensors tensors) {
  return std::make_shared<TensorSlices>(std::move(spec), std::move(tensors));
}
StageRef tensors_stage(ElementSpec spec, Tensors tensors) {
  return std::make_shared<OneElement>(std::move(spec), std::move(tensors));
}
StageRef range_stage(int64_t begin, int64_t end, int64_t step) {
  return std::make_shared<Range>(begin, end, step);
}
StageRef reader_stage(const std::string& kind, ElementSpec spec, int64_t count, Reader read,
                      SourceFacts facts) {
  return std::make_shared<ReaderNode>(kind, std::move(spec), count, std::move(read),
                                      std::move(facts));
}
StageRef generator_stage(ElementSpec spec, std::function<Pull()> factory, SourceFacts facts) {
  return std::make_shared<GeneratorNode>(std::move(spec), std::move(factory), std::move(facts));
}

}  // namespace pl
