// DatasetIterator, the bill of a pipeline before it runs, and the report of one that does.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "data/pipeline/dataset.h"
#include "data/pipeline/stages.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

constexpr Bytes kDefaultBudget = 64 * kMiB;
constexpr Bytes kSmallestUnknown = 64 * kKiB;
constexpr Bytes kOverhead = 256 * kKiB;  // queues, handles, the stages themselves

Sizing sizing_for(Bytes budget) {
  return {.unknown = granted(std::max(budget / 8, kSmallestUnknown)), .cache = granted(budget / 4)};
}

// The consumer may hold an element while the next one is made.
Bytes floor_of(const Stage& root, const Sizing& sizing) {
  return root.floor(sizing) + root.out_bytes(sizing);
}

int threads_of(const DatasetOptions& options) {
  if (options.threads < 0 || options.threads > 1024)
    throw UserError("[data] threads: expected 0 to 1024, received " +
                    std::to_string(options.threads));
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads > 0 ? options.threads : std::max(1, cores);
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

struct Position {
  char magic[8] = {'p', 'l', 'd', 'a', 't', 'a', '1', 0};
  uint64_t fingerprint = 0, epoch = 0;
  int64_t delivered = 0;
};
static_assert(sizeof(Position) == 32);

}  // namespace

Bytes Dataset::minimum_bytes() const {
  // The bound of unknown elements is a share of the budget, so their floor is looked for.
  const Bytes asked = options_.memory.value() > 0 ? options_.memory.value() : kDefaultBudget;
  const Bytes known = floor_of(*node_, sizing_for(0));
  return std::min(known, floor_of(*node_, sizing_for(asked)));
}

Bytes Dataset::budget() const {
  const Bytes asked = options_.memory.value();
  if (asked <= 0) {
    if (floor_of(*node_, sizing_for(kDefaultBudget)) <= kDefaultBudget) return kDefaultBudget;
    Bytes budget = kDefaultBudget;
    for (int i = 0; i < 40 && floor_of(*node_, sizing_for(budget)) > budget; ++i)
      budget = floor_of(*node_, sizing_for(budget));
    if (floor_of(*node_, sizing_for(budget)) <= budget) return budget;
  } else if (floor_of(*node_, sizing_for(asked)) <= asked) {
    return asked;
  }
  const Sizing sizing = sizing_for(asked > 0 ? asked : kDefaultBudget);
  throw DoesNotFit("[data] " + node_->name() + ": expected memory of at least " +
                   format_bytes(floor_of(*node_, sizing)) +
                   " for one element at a time, received " + format_bytes(asked) +
                   "; raise it, make batches or buffers smaller, or give max_bytes where sizes are "
                   "unknown" +
                   floor_table(*node_, sizing));
}

Bytes Dataset::bill() const {
  const std::vector<const Stage*> list = all_stages(*node_);
  const int threads = threads_of(options_);
  const Bytes budget = this->budget();
  const Sizing sizing = sizing_for(budget);
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
  const Bytes budget = dataset.budget();
  const Sizing sizing = sizing_for(budget);
  run_ = std::make_unique<Run>(dataset.stage(), budget, floor_of(*dataset.stage(), sizing), sizing,
                               threads_of(dataset.options()), dataset.options().seed);
  start(epoch);
}

DatasetIterator::DatasetIterator(DatasetIterator&&) noexcept = default;
DatasetIterator& DatasetIterator::operator=(DatasetIterator&& other) noexcept {
  root_.reset();  // before what it runs on
  dataset_ = std::move(other.dataset_);
  run_ = std::move(other.run_);
  root_ = std::move(other.root_);
  epoch_ = other.epoch_;
  delivered_ = other.delivered_;
  current_ = std::move(other.current_);
  ended_ = other.ended_;
  return *this;
}
DatasetIterator::~DatasetIterator() { root_.reset(); }

void DatasetIterator::start(uint64_t epoch) {
  const MemoryScope scope(run_->ledger().memory());
  current_.clear();
  root_.reset();  // the old epoch's memory is the new one's
  root_ = dataset_.stage()->iterate(*run_, epoch);
  epoch_ = epoch;
  delivered_ = 0;
  ended_ = false;
}

bool DatasetIterator::next(Element& out) {
  const MemoryScope scope(run_->ledger().memory());
  out.clear();
  // An element that fails counts as delivered, so that a position behind it is one.
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
  const MemoryScope scope(run_->ledger().memory());
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
      position.delivered < 0)
    throw DataError("[data] position: expected one that save() gave, received something else");
  if (position.fingerprint != fingerprint(*dataset_.stage(), dataset_.options().seed))
    throw DataError(
        "[data] position: expected one of this pipeline, received that of another; stages, "
        "signatures, sizes and seed must be the same");
  start(position.epoch);
  if (const int64_t done = advance(position.delivered); done != position.delivered)
    throw DataError("[data] position: expected " + std::to_string(position.delivered) +
                    " elements before it, received " + std::to_string(done) +
                    "; the data have changed");
}

PipelineReport DatasetIterator::report() const {
  PipelineReport report{.ledger = run_->ledger().figures(), .threads = run_->threads()};
  const std::vector<const Stage*> list = all_stages(*dataset_.stage());
  for (const Stage* node : list) {
    StageReport line = describe_stage(*node, run_->sizing());
    const StageFigures& figures = run_->figures(*node);
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
