#include "data/pipeline/dataset_source.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <set>

#include "base/error.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

int64_t integer_at(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::int32:
      return static_cast<const int32_t*>(data)[i];
    case Dtype::int64:
      return static_cast<const int64_t*>(data)[i];
    default:
      return static_cast<const uint8_t*>(data)[i];
  }
}

struct Limit {
  std::string what;
  int64_t count = 0;
  std::optional<int64_t> allowed;
};

// What both kinds share: what elements are to a model, labels checked and converted as they come.
class ElementSource : public Source {
 public:
  const std::vector<Field>& fields() const override { return fields_; }
  std::string name() const override { return dataset_.stage()->name(); }
  Bytes resident_bytes() const override { return resident_; }
  bool require_below(size_t field, const std::string& what, int64_t count,
                     std::optional<int64_t> allowed) override {
    limits_[field] = Limit{what, count, allowed};
    return true;
  }

 protected:
  ElementSource(const Dataset& dataset, bool batches) : dataset_(dataset) {
    const ElementSpec& spec = dataset_.element_spec();
    if (spec.fields.empty() || spec.fields.size() > 3)
      throw UserError("[data] " + name() +
                      ": expected x, or x and y, or x, y and sample weights, received " +
                      spec.text());
    for (size_t f = 0; f < spec.fields.size(); ++f) add_field(spec.fields[f], f, batches);
    limits_.resize(fields_.size());
  }

  // Rows of `tensor` to `to`.
  void copy(size_t f, const Tensor& tensor, int64_t rows, void* to) const {
    const Field& field = fields_[f];
    const int64_t elements = rows * field.sample.elements();
    if (limits_[f].count > 0) check_limit(limits_[f], tensor, elements);
    if (tensor.dtype() == field.sample.dtype) {
      std::memcpy(to, tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
      return;
    }
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
      if (value < std::numeric_limits<int32_t>::min() ||
          value > std::numeric_limits<int32_t>::max())
        throw DataError("[data] " + name() + ": " + field.name +
                        ": expected labels below 2^31, received " + std::to_string(value));
      static_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
    }
  }

  const Dataset dataset_;
  std::vector<Field> fields_;
  Bytes resident_ = 0;

  // Whether values are to be checked as they are read.
  bool limited() const {
    return std::any_of(limits_.begin(), limits_.end(), [](const Limit& l) { return l.count > 0; });
  }

 private:
  void add_field(const FieldSpec& given, size_t f, bool batches) {
    Field field{.name = given.name, .sample = {}, .range = {}, .role = static_cast<Role>(f)};
    if (batches && given.shape.rank() < 1)
      throw UserError("[data] " + name() + ": expected batches, received " + given.text() +
                      "; end the pipeline with batch()");
    field.sample = {given.dtype, batches ? given.shape.without_front() : given.shape};
    for (Dim dim : field.sample.shape)
      if (dim == kUnknown)
        throw UserError("[data] " + name() + ": expected samples of one known shape, received " +
                        given.text() + "; pad or resize to one");
    if (field.role == Role::y && !is_floating(given.dtype)) {
      if (field.sample.shape == Shape{1}) field.sample.shape = Shape();
      field.sample.dtype = Dtype::int32;
    }
    fields_.push_back(std::move(field));
  }

  void check_limit(const Limit& limit, const Tensor& tensor, int64_t elements) const {
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
      if ((value >= 0 && value < limit.count) || value == limit.allowed) continue;
      throw DataError("[data] " + name() + ": expected " + limit.what + " from 0 to " +
                      std::to_string(limit.count - 1) + ", received " + std::to_string(value));
    }
  }

  std::vector<Limit> limits_;
};

class DatasetSource final : public ElementSource {
 public:
  DatasetSource(const Dataset& dataset, int64_t steps) : ElementSource(dataset, true) {
    const Stage::Rows rows = dataset.stage()->rows();
    if (rows.batch < 1)
      throw UserError(
          "[data] " + name() + ": expected batches of a known number of samples, received " +
          dataset.element_spec().text() + "; end the pipeline with batch()" + " or batch(n, true)");
    batch_ = rows.batch;
    endless_ = rows.endless;
    samples_ = endless_ && steps == 0 ? -1 : rows.samples;
    if (steps > 0 && (endless_ || samples_ < 0)) {
      whole_ = true;
      samples_ = steps * batch_;
    }
    if (samples_ < 0 && endless_)
      throw UserError("[data] " + name() +
                      ": expected to know how many batches an epoch has, received data without "
                      "end; give steps_per_epoch or take(n)");
    if (samples_ < 0) samples_ = count();
    if (samples_ < 1) throw DataError("[data] " + name() + ": expected batches, received none");
    resident_ = dataset.bill();
  }

  int64_t size() const override { return samples_; }
  int64_t batch() const override { return batch_; }
  void begin_epoch(int64_t epoch) override {
    epoch_ = epoch;
    pass_ = 0;
    at_ = -1;
  }

  void read(std::span<const int64_t> indices, std::span<void* const> destinations) override {
    check(destinations.size() == fields_.size() && !indices.empty(), "a batch of the data set");
    const int64_t step = indices[0] / batch_, rows = static_cast<int64_t>(indices.size());
    check(indices[0] % batch_ == 0 && indices.back() == indices[0] + rows - 1,
          "a whole batch in order");
    if (step != at_) load(step);
    for (size_t f = 0; f < fields_.size(); ++f) {
      if (in_hand_[f].shape()[0] != rows)
        throw DataError("[data] " + name() + ": expected a batch of " + std::to_string(rows) +
                        " samples, received " + in_hand_[f].meta().text());
      if (destinations[f]) copy(f, in_hand_[f], rows, destinations[f]);
    }
  }

 private:
  // One pass over data of unknown number, before anything is planned: the last batch may be
  // smaller.
  int64_t count() {
    DatasetIterator iterator(dataset_, 0);
    int64_t samples = 0;
    const auto begin = std::chrono::steady_clock::now();
    bool said = false;
    for (Element element; iterator.next(element); element.clear()) {
      if (samples % batch_ != 0)
        throw DataError("[data] " + name() + ": expected batches of " + std::to_string(batch_) +
                        " samples but for the last, received a smaller one before it");
      samples += element[0].shape()[0];
      if (said || std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) continue;
      said = true;
      std::fprintf(stderr,
                   "plimsoll: [data] %s: counting the batches of an epoch, which nobody told; "
                   "assert_cardinality(n) or steps_per_epoch begins at once\n",
                   name().c_str());
    }
    return samples;
  }

  // Data without end are one long pass, epochs follow each other in it. Others start anew.
  void load(int64_t step) {
    in_hand_.clear();
    if (!iterator_) iterator_.emplace(dataset_, 0);
    const bool follows = step == at_ + 1 && running_ == epoch_;
    if (whole_ && endless_) {
      const int64_t place = std::max<int64_t>(0, epoch_ - 1) * (samples_ / batch_) + step;
      if (place < iterator_->delivered()) iterator_->start(0);
      iterator_->advance(place - iterator_->delivered());
    } else if (!follows || at_ < 0) {
      if (running_ == epoch_ && step == 0 && at_ >= 0) ++pass_;
      iterator_->start(static_cast<uint64_t>(epoch_) + (static_cast<uint64_t>(pass_) << 32));
      iterator_->advance(step);
    }
    running_ = epoch_;
    at_ = -1;
    if (!iterator_->next(in_hand_))
      throw DataError("[data] " + name() + ": expected batch " + std::to_string(step) +
                      " of the epoch, received the end of the data; lower steps_per_epoch or " +
                      "repeat() them");
    at_ = step;
  }

  int64_t batch_ = 0, samples_ = 0;
  bool endless_ = false, whole_ = false;
  std::optional<DatasetIterator> iterator_;  // made at the first read
  Element in_hand_;
  int64_t epoch_ = 0, running_ = -1, pass_ = 0, at_ = -1;  // at_: the batch in hand
};

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

std::unique_ptr<Source> dataset_source(const Dataset& dataset, int64_t steps) {
  return std::make_unique<DatasetSource>(dataset, steps);
}

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

std::unique_ptr<Source> indexed_source(const Dataset& samples, const IndexedOptions& options) {
  return std::make_unique<IndexedSource>(samples, options);
}

std::unique_ptr<Source> through_pipeline(std::unique_ptr<Source> source) {
  IndexedOptions options{.name = source->name()};
  for (const Field& field : source->fields()) options.ranges.push_back(field.range);
  return indexed_source(source_dataset(std::move(source)), options);
}

}  // namespace pl
