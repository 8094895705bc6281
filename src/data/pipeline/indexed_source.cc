// Samples that can be got by index, as what training reads.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

#include "base/error.h"
#include "data/pipeline/element_source.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

// Samples by index, each made by one of a few threads straight for its place.
class IndexedSource final : public ElementSource {
 public:
  IndexedSource(const Dataset& dataset, const IndexedOptions& options)
      : ElementSource(dataset, false), options_(options), threads_(std::max(1, options.threads)) {
    for (size_t f = 0; f < std::min(fields_.size(), options.ranges.size()); ++f)
      fields_[f].range = options.ranges[f];
    const Stage& stage = *dataset.stage();
    puts_ = stage.puts();
    for (size_t f = 0; f < fields_.size(); ++f)
      puts_ = puts_ && fields_[f].sample.dtype == dataset.element_spec().fields[f].dtype;
    if (!stage.indexable() || stage.cardinality() < 1)
      throw UserError("[data] " + name() +
                      ": expected samples that can be got by index, received a stream or none; " +
                      "cache() does not make it one, an indexed source does");
    const Bytes each = stage.once(sizing());
    budget_ = threads_ * each;
    resident_ = kOverhead + budget_ + beside(stage) +
                (threads_ > 1 ? threads_ * SmallThread::kStack / 2 : 0);
  }
  ~IndexedSource() override {
    if (skipped_.size() > kNamed)
      std::fprintf(stderr, "plimsoll: %s: skipped %zu samples in all\n", name().c_str(),
                   skipped_.size());
  }
  std::string name() const override {
    return options_.name.empty() ? ElementSource::name() : options_.name;
  }
  int64_t size() const override { return dataset_.cardinality(); }
  void begin_epoch(int64_t epoch) override { epoch_ = static_cast<uint64_t>(epoch); }
  void expect(std::span<const int64_t> indices) override { dataset_.stage()->expect(indices); }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size(), "one destination for each field");
    if (!run_) {
      run_ = std::make_unique<Run>(dataset_.stage(), budget_, budget_, sizing(), threads_ - 1,
                                   dataset_.options().seed);
      run_->workers().set_priority(Priority::equal);  // nothing is computed meanwhile
    }
    Batch batch{indices, destinations};
    if (threads_ == 1) {
      const MemoryScope scope(run_->ledger().memory());
      for (size_t k = 0; k < indices.size(); ++k) put(batch, k);
      return;
    }
    std::vector<std::shared_ptr<Lane>> lanes;
    for (int t = 0; t < threads_; ++t) {
      lanes.push_back(std::make_shared<Lane>(*this, batch));
      if (t > 0) run_->workers().submit(lanes.back());
    }
    for (const auto& lane : lanes) run_->workers().finish(*lane);
    if (batch.error) std::rethrow_exception(batch.error);
  }

 private:
  struct Batch {
    std::span<const int64_t> indices;
    std::span<void* const> destinations;
    std::atomic<size_t> next{0};
    std::mutex mutex;  // of what follows: the error of the first sample that has one
    std::exception_ptr error = nullptr;
    size_t error_at = 0;
  };
  class Lane final : public Job {
   public:
    Lane(const IndexedSource& source, Batch& batch) : source_(source), batch_(batch) {}

   protected:
    void work() noexcept override {
      for (size_t k; (k = batch_.next++) < batch_.indices.size();) {
        try {
          source_.put(batch_, k);
        } catch (...) {
          const std::lock_guard lock(batch_.mutex);
          if (!batch_.error || k < batch_.error_at) {
            batch_.error = std::current_exception();
            batch_.error_at = k;
          }
        }
      }
    }

   private:
    const IndexedSource& source_;
    Batch& batch_;
  };

  static Sizing sizing() { return {.unknown = 64 * kKiB, .cache = 1 * kMiB}; }
  static Bytes beside(const Stage& stage) {
    Bytes sum = stage.beside();
    for (const StageRef& input : stage.inputs()) sum += beside(*input);
    return sum;
  }
  void put(Batch& batch, size_t k) const {
    constexpr int kTries = 1000;
    int64_t i = batch.indices[k];
    for (int attempt = 0; options_.skip_errors; ++attempt) {
      try {
        if (!known_bad(i)) return put_one(batch, k, i);
      } catch (const DataError& error) {
        if (attempt == kTries) throw;
        note(i, error.what());
      }
      i = (i + 1) % size();
    }
    put_one(batch, k, i);
  }
  void put_one(const Batch& batch, size_t k, int64_t i) const {
    std::array<char*, 3> to{};
    bool all = puts_ && !limited();
    for (size_t f = 0; f < fields_.size(); ++f) {
      all = all && batch.destinations[f];
      if (batch.destinations[f])
        to[f] = static_cast<char*>(batch.destinations[f]) +
                static_cast<Bytes>(k) * fields_[f].sample.bytes();
    }
    if (all) return dataset_.stage()->put(*run_, epoch_, i, {to.data(), fields_.size()});
    const Element element = dataset_.stage()->get(*run_, epoch_, i);
    for (size_t f = 0; f < fields_.size(); ++f)
      if (to[f]) copy(f, element[f], 1, to[f]);
  }
  bool known_bad(int64_t i) const {
    const std::lock_guard lock(skipped_mutex_);
    return skipped_.contains(i);
  }
  void note(int64_t i, const char* message) const {
    const std::lock_guard lock(skipped_mutex_);
    if (!skipped_.insert(i).second || skipped_.size() > kNamed) return;
    std::fprintf(stderr, "plimsoll: skipped: %s\n", message);
  }

  static constexpr Bytes kOverhead = 256 * kKiB;  // the run, the stages and their code
  static constexpr size_t kNamed = 16;
  const IndexedOptions options_;
  const int threads_;
  bool puts_ = false;  // samples go straight to their places
  mutable std::mutex skipped_mutex_;
  mutable std::set<int64_t> skipped_;
  Bytes budget_ = 0;
  uint64_t epoch_ = 0;
  std::unique_ptr<Run> run_;  // made at the first read
};

}  // namespace

std::unique_ptr<Source> indexed_source(const Dataset& samples, const IndexedOptions& options) {
  return std::make_unique<IndexedSource>(samples, options);
}

std::unique_ptr<Source> through_pipeline(std::unique_ptr<Source> source, OnError on_error) {
  IndexedOptions options{.name = source->name(), .skip_errors = on_error == OnError::skip};
  for (const Field& field : source->fields()) options.ranges.push_back(field.range);
  return indexed_source(source_dataset(std::move(source)), options);
}

}  // namespace pl
