// DatasetIterator, the bill of a pipeline before it runs, and the report of one that does.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/processor.h"
#include "data/pipeline/dataset.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

constexpr Bytes kDefaultBudget = 64 * kMiB;
constexpr Bytes kMostBudget = Bytes{1} << 50;
constexpr Bytes kOverhead = 256 * kKiB;  // queues, handles, the stages themselves
// Bounds of elements whose size nobody said: the least that a budget is shared down to, the least
// where there is no budget, and the most.
constexpr Bytes kLeastUnknown = 4 * kKiB, kCommonUnknown = 64 * kKiB, kMostUnknown = kGiB;

// The consumer may hold an element while the next one is made.
Bytes floor_of(const Stage& root, const Sizing& sizing) {
  return root.floor(sizing) + root.out_bytes(sizing);
}

// The largest number of pages in [low, high] whose floor is within `room`; low if there is none.
template <class Make>
Bytes largest_share(const Stage& root, Bytes room, Bytes low, Bytes high, const Make& make) {
  if (high <= low || floor_of(root, make(high)) <= room) return std::max(low, high);
  while (high - low > granted(Bytes{1})) {
    const Bytes middle = granted(low + (high - low) / 2 - 1);
    if (middle >= high) break;
    (floor_of(root, make(middle)) <= room ? low : high) = middle;
  }
  return low;
}

Sizing least_sizing(Bytes unknown) { return {.unknown = unknown, .cache = 0}; }

// Elements of unknown size get an eighth of the budget, or less where stages hold many of them, so
// that a quarter stays for working ahead; a cache a quarter, or what the others leave.
Sizing sizing_for(const Stage& root, Bytes budget, Bytes least_unknown) {
  const Bytes room = budget - budget / 4;
  const Bytes most = std::min(granted(budget / 8), kMostUnknown);
  const bool roomy = floor_of(root, least_sizing(least_unknown)) <= room;
  Sizing sizing =
      least_sizing(largest_share(root, roomy ? room : budget, least_unknown, most, least_sizing));
  sizing.cache = largest_share(root, budget, 0, granted(budget / 4), [&](Bytes cache) {
    return Sizing{.unknown = sizing.unknown, .cache = cache};
  });
  return sizing;
}
Sizing sizing_for(const Dataset& data, Bytes budget) {
  return sizing_for(*data.stage(), budget,
                    data.options().memory.value() > 0 ? kLeastUnknown : kCommonUnknown);
}

// Stages whose elements have no bound although what goes into them has one.
std::string unsized_stages(const Stage& root) {
  const auto unsized = [](const Stage& node) {
    return node.out_bytes(least_sizing(kLeastUnknown)) != node.out_bytes(least_sizing(kGiB));
  };
  std::string names;
  for (const Stage* node : all_stages(root)) {
    bool first = unsized(*node);
    for (const StageRef& input : node->inputs()) first = first && !unsized(*input);
    if (first) names += (names.empty() ? "" : ", ") + node->name();
  }
  return names;
}

int threads_of(const DatasetOptions& options) {
  return options.threads > 0 ? options.threads : default_threads();
}

StageReport describe_stage(const Stage& node, const Sizing& sizing) {
  StageReport line{.name = node.name(),
                   .options = node.options(),
                   .spec = node.spec().text(),
                   .cardinality = node.cardinality()};
  line.floor = node.floor(sizing);
  for (const StageRef& input : node.inputs())
    line.floor -= std::min(line.floor, input->floor(sizing));
  line.element_bytes = node.out_bytes(sizing);
  return line;
}

std::string pad(std::string text, size_t width) {
  text.append(text.size() < width ? width - text.size() : 0, ' ');
  text.append(2, ' ');
  return text;
}

std::string floor_table(const Stage& root, const Sizing& sizing) {
  const std::vector<const Stage*> list = all_stages(root);
  std::string text;
  for (const Stage* node : list) {
    const StageReport line = describe_stage(*node, sizing);
    text += "\n  ";
    text += pad(line.name + (line.options.empty() ? "" : "(" + line.options + ")"), 28) +
            pad(format_bytes(line.floor), 11) + "element " +
            pad(format_bytes(line.element_bytes), 11) + line.spec;
  }
  text += "\n  ";
  return text + pad("the consumer", 28) + format_bytes(root.out_bytes(sizing));
}

constexpr int64_t kMostEndless = int64_t{1} << 48;

struct Position {
  char magic[8] = {'p', 'l', 'd', 'a', 't', 'a', '1', 0};
  uint64_t fingerprint = 0, epoch = 0;
  int64_t delivered = 0;
};
static_assert(sizeof(Position) == 32);

}  // namespace

Dataset Dataset::with_options(const DatasetOptions& options) const {
  if (options.threads < 0 || options.threads > 1024)
    throw UserError(
        "[data] with_options: threads: expected 1 to 1024, or 0 for the cores, "
        "received " +
        std::to_string(options.threads));
  if (options.memory.value() > kMostBudget)
    throw UserError("[data] with_options: memory: expected at most 1 PiB, received " +
                    std::to_string(options.memory.value()) + " bytes; leave it out for none");
  Dataset made(node_);
  made.options_ = options;
  made.budget();
  return made;
}

Bytes Dataset::minimum_bytes() const { return floor_of(*node_, least_sizing(kLeastUnknown)); }

Bytes Dataset::budget() const {
  const Bytes asked = options_.memory.value(), least = minimum_bytes();
  if (asked <= 0) return std::max(kDefaultBudget, floor_of(*node_, least_sizing(kCommonUnknown)));
  if (asked >= least) return asked;
  const std::string unsized = unsized_stages(*node_);
  throw DoesNotFit(
      "[data] " + node_->name() + ": expected memory of at least " + format_bytes(least) +
      " for one element at a time, received " + format_bytes(asked) + "; " +
      (unsized.empty() ? ""
                       : "say how large elements are at most (max_bytes of " + unsized +
                             ", here taken for " + format_bytes(kLeastUnknown) + "), or ") +
      "make batches or buffers smaller, or raise memory" +
      floor_table(*node_, least_sizing(kLeastUnknown)));
}

Bytes Dataset::bill() const {
  const std::vector<const Stage*> list = all_stages(*node_);
  const int threads = threads_of(options_);
  const Bytes budget = this->budget();
  const Sizing sizing = sizing_for(*this, budget);
  Bytes bytes = kOverhead;
  bool workers = false;
  for (const Stage* stage : list) {
    bytes += stage->beside();
    workers = workers || stage->uses_workers();
  }
  // A thread's touched stack and its part of the heap.
  if (workers) bytes += threads * (SmallThread::kStack / 2);
  return bytes + std::min(budget, floor_of(*node_, sizing) + node_->ahead(sizing, threads));
}

DatasetIterator::DatasetIterator(const Dataset& dataset, uint64_t epoch) : dataset_(dataset) {
  make_run();
  start(epoch);
}

void DatasetIterator::make_run() {
  const Bytes budget = dataset_.budget();
  const Sizing sizing = sizing_for(dataset_, budget);
  run_ = std::make_unique<Run>(dataset_.stage(), budget, floor_of(*dataset_.stage(), sizing),
                               sizing, threads_of(dataset_.options()), dataset_.options().seed);
}

// The next loop's epoch, and what the last loop's caches held.
struct Dataset::Loops {
  std::mutex mutex;
  uint64_t next = 0;
  std::unique_ptr<Run> resting;
};

std::shared_ptr<Dataset::Loops> Dataset::new_loops() { return std::make_shared<Loops>(); }

DatasetIterator Dataset::begin() const {
  DatasetIterator iterator(*this);
  uint64_t epoch = 0;
  {
    const std::lock_guard lock(loops_->mutex);
    epoch = loops_->next++;
    iterator.run_ = std::move(loops_->resting);
  }
  iterator.loop_ = true;
  if (!iterator.run_) iterator.make_run();
  iterator.start(epoch);
  return std::move(++iterator);
}

DatasetIterator::DatasetIterator(const Dataset& dataset) : dataset_(dataset) {}
DatasetIterator::DatasetIterator(DatasetIterator&& other) noexcept = default;
DatasetIterator& DatasetIterator::operator=(DatasetIterator&& other) noexcept {
  finish();
  dataset_ = std::move(other.dataset_);
  run_ = std::move(other.run_);
  root_ = std::move(other.root_);
  epoch_ = other.epoch_;
  delivered_ = other.delivered_;
  current_ = std::move(other.current_);
  ended_ = other.ended_;
  loop_ = other.loop_;
  return *this;
}
DatasetIterator::~DatasetIterator() { finish(); }

void DatasetIterator::finish() noexcept {
  current_.clear();
  root_.reset();  // before what it runs on
  if (!loop_ || !run_ || !run_->keeps()) return;
  const std::lock_guard lock(dataset_.loops_->mutex);
  if (!dataset_.loops_->resting) dataset_.loops_->resting = std::move(run_);
}

Run& DatasetIterator::running() const {
  if (!run_)
    throw UserError(
        "[data] " + dataset_.stage()->name() +
        ": expected an iterator, received one that was moved from; use the one it was moved to");
  return *run_;
}

void DatasetIterator::expect_started() const {
  if (!root_)
    throw UserError(
        "[data] " + dataset_.stage()->name() +
        ": expected an epoch that has begun, received one that failed to; start(epoch)");
}

void DatasetIterator::start(uint64_t epoch) {
  const MemoryScope scope(running().ledger().memory());
  current_.clear();
  root_.reset();  // the old epoch's memory is the new one's
  root_ = dataset_.stage()->iterate(*run_, epoch);
  epoch_ = epoch;
  delivered_ = 0;
  ended_ = false;
}

bool DatasetIterator::next(Element& out) {
  const MemoryScope scope(running().ledger().memory());
  out.clear();
  // An element that fails counts as delivered, so that a position behind it is one.
  expect_started();
  ++delivered_;
  if (root_->next(out)) return true;
  --delivered_;
  ended_ = true;
  return false;
}

std::optional<Element> DatasetIterator::next() {
  Element out;
  if (!next(out)) return {};
  return out;
}

int64_t DatasetIterator::advance(int64_t count) {
  if (count < 0)
    throw UserError("[data] advance: expected 0 or more elements, received " +
                    std::to_string(count) + "; start(epoch) goes back to the beginning");
  // Places are numbers, and those of data without end would not be any more.
  if (dataset_.cardinality() == kInfiniteCardinality && count > kMostEndless - delivered_)
    throw UserError("[data] advance: expected a place below 2^48 in data without end, received " +
                    std::to_string(count) + " more; take(n) gives them an end");
  const MemoryScope scope(running().ledger().memory());
  expect_started();
  const int64_t done = root_->advance(count);
  delivered_ += done;
  return done;
}

DatasetIterator& DatasetIterator::operator++() {
  if (!next(current_)) current_.clear();
  return *this;
}

std::string DatasetIterator::save() const {
  Position position;
  position.fingerprint = fingerprint(*dataset_.stage(), dataset_.options().seed);
  position.epoch = epoch_;
  position.delivered = delivered_;
  return std::string(reinterpret_cast<const char*>(&position), sizeof(position));
}

void DatasetIterator::restore(const std::string& text) {
  Position position;
  const Position wanted;
  if (text.size() != sizeof(position))
    throw DataError("[data] position: expected " + std::to_string(sizeof(position)) +
                    " bytes, received " + std::to_string(text.size()));
  std::memcpy(&position, text.data(), sizeof(position));
  if (std::memcmp(position.magic, wanted.magic, sizeof(wanted.magic)) != 0 ||
      position.delivered < 0 || position.delivered > (int64_t{1} << 62))
    throw DataError("[data] position: expected one that save() gave, received something else");
  if (position.fingerprint != fingerprint(*dataset_.stage(), dataset_.options().seed))
    throw DataError(
        "[data] position: expected one of this pipeline, received that of another; stages, "
        "signatures, options that decide elements and seed must be the same");
  start(position.epoch);
  if (dataset_.cardinality() == kInfiniteCardinality && position.delivered > kMostEndless)
    throw DataError("[data] position: expected one that save() gave, received something else");
  if (const int64_t done = advance(position.delivered); done != position.delivered)
    throw DataError("[data] position: expected " + std::to_string(position.delivered) +
                    " elements before it, received " + std::to_string(done) +
                    "; the data have changed");
}

PipelineReport DatasetIterator::report() const {
  PipelineReport report{.ledger = running().ledger().figures(), .threads = running().threads()};
  const std::vector<const Stage*> list = all_stages(*dataset_.stage());
  for (const Stage* node : list) {
    StageReport line = describe_stage(*node, running().sizing());
    const StageFigures& figures = running().figures(*node);
    line.elements = figures.elements;
    line.waited_ns = figures.waited_ns;
    line.parallel = figures.parallel;
    line.buffer = figures.buffer;
    line.held_peak = figures.held_peak;
    line.skipped = figures.skipped;
    line.messages = skipped_messages(*run_, *node);
    report.stages.push_back(std::move(line));
  }
  return report;
}

std::string PipelineReport::text() const {
  std::string text = pad("stage", 28) + pad("elements", 10) + pad("floor", 11) +
                     pad("element", 11) + pad("parallel", 8) + pad("ahead", 7) + "waited";
  for (const StageReport& stage : stages) {
    char waited[32];
    std::snprintf(waited, sizeof(waited), "%.1f ms", static_cast<double>(stage.waited_ns) / 1e6);
    text += "\n";
    text += pad(stage.name + (stage.options.empty() ? "" : "(" + stage.options + ")"), 28) +
            pad(std::to_string(stage.elements), 10) + pad(format_bytes(stage.floor), 11) +
            pad(format_bytes(stage.element_bytes), 11) +
            pad(stage.parallel > 0 ? std::to_string(stage.parallel) : "", 8) +
            pad(stage.held_peak > 0 ? std::to_string(stage.held_peak) : "", 7) +
            (stage.waited_ns > 0 ? waited : "");
    for (const std::string& message : stage.messages) text += "\n  skipped: " + message;
    if (stage.skipped > static_cast<int64_t>(stage.messages.size()))
      text += "\n  skipped in all: " + std::to_string(stage.skipped);
  }
  return text + "\nmemory: " + format_bytes(ledger.payload_peak) + " at most, of " +
         format_bytes(ledger.budget) + " (" + format_bytes(ledger.floor) + " for one at a time, " +
         format_bytes(ledger.ahead_peak) + " lent for working ahead)\n";
}

}  // namespace pl
