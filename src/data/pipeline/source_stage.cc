// The samples of a Source as the first stage of a pipeline.
#include <mutex>

#include "base/error.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

class SourceStage final : public Stage {
 public:
  SourceStage(std::shared_ptr<Source> source, SourceFacts facts)
      : Stage("source", {}), source_(std::move(source)), facts_(std::move(facts)) {
    for (const Field& field : source_->fields())
      spec_.fields.push_back({field.name, field.sample.dtype, field.sample.shape});
    cardinality_ = source_->size();
    indexable_ = true;
  }
  Bytes once(const Sizing& sizing) const override { return out_bytes(sizing); }
  Bytes beside() const override { return source_->resident_bytes(); }
  std::string decides() const override { return facts_.key; }
  uint64_t contents() const override { return facts_.contents; }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    Element out;
    std::vector<char*> places;
    for (const FieldSpec& field : spec_.fields)
      places.push_back(out.emplace_back(Meta{field.dtype, field.shape}).data_as<char>());
    put(run, epoch, i, places);
    return out;
  }
  void expect(std::span<const int64_t> indices) const override {
    const std::lock_guard lock(mutex_);
    source_->expect(indices);
  }
  bool puts() const override { return true; }
  void put(Run&, uint64_t, int64_t i, std::span<char* const> to) const override {
    guarded(name_, i, [&] {
      const std::lock_guard lock(mutex_);
      places_.assign(to.begin(), to.end());
      source_->read({&i, 1}, places_);
    });
  }

 private:
  const std::shared_ptr<Source> source_;
  const SourceFacts facts_;
  mutable std::mutex mutex_;  // of the source and what follows
  mutable std::vector<void*> places_;
};

}  // namespace

StageRef source_stage(std::shared_ptr<Source> source, SourceFacts facts) {
  return std::make_shared<SourceStage>(std::move(source), std::move(facts));
}

Dataset source_dataset(std::shared_ptr<Source> source, const std::string& key) {
  return Dataset(source_stage(std::move(source), {.key = key}));
}

}  // namespace pl
