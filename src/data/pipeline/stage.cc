#include "data/pipeline/stage.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "data/pipeline/workers.h"

namespace pl {
namespace {

int count_kind(const Stage& node, const std::string& kind) {
  int count = 0;
  const std::string& name = node.name();
  if (name == kind || (name.starts_with(kind + "_") &&
                       name.find_first_not_of("0123456789", kind.size() + 1) == std::string::npos))
    ++count;
  for (const StageRef& input : node.inputs()) count += count_kind(*input, kind);
  return count;
}

class IndexIterator final : public Iterator {
 public:
  IndexIterator(const Stage& node, Run& run, uint64_t epoch)
      : node_(node), run_(run), epoch_(epoch), figures_(run.figures(node)) {}
  bool next(Element& out) override {
    if (node_.cardinality() >= 0 && at_ >= node_.cardinality()) return false;
    out.clear();  // its memory may be wanted for the next
    out = node_.get(run_, epoch_, at_++);
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    if (node_.cardinality() >= 0) count = std::min(count, node_.cardinality() - at_);
    at_ += count;
    return count;
  }

 private:
  const Stage& node_;
  Run& run_;
  const uint64_t epoch_;
  StageFigures& figures_;
  int64_t at_ = 0;
};

void list_stages(const Stage& node, std::vector<const Stage*>& list) {
  for (const StageRef& input : node.inputs()) list_stages(*input, list);
  if (std::find(list.begin(), list.end(), &node) == list.end()) list.push_back(&node);
}

}  // namespace

int64_t Iterator::advance(int64_t count) {
  Element passed;
  int64_t done = 0;
  for (; done < count; ++done) {
    try {
      if (!next(passed)) break;
    } catch (const DataError&) {  // its place is one
    }
  }
  return done;
}

Stage::Stage(const std::string& kind, std::vector<StageRef> inputs) : inputs_(std::move(inputs)) {
  int same = 0;
  for (const StageRef& input : inputs_) same += count_kind(*input, kind);
  name_ = same == 0 ? kind : kind + "_" + std::to_string(same);
}

Bytes Stage::bound_of(const ElementSpec& spec, Bytes max_bytes, const Sizing& sizing) const {
  if (spec.known()) return granted(spec);
  return max_bytes > 0 ? granted(max_bytes) : sizing.unknown;
}

Bytes Stage::out_bytes(const Sizing& sizing) const { return bound_of(spec_, 0, sizing); }

Bytes Stage::ahead(const Sizing& sizing, int threads) const {
  Bytes sum = 0;
  for (const StageRef& input : inputs_) sum += input->ahead(sizing, threads);
  return sum;
}

Stage::Rows Stage::rows() const {
  Rows rows;
  for (const FieldSpec& field : spec_.fields) {
    if (field.shape.rank() < 1 || field.shape[0] == kUnknown) return {};
    if (rows.batch != 0 && field.shape[0] != rows.batch) return {};
    rows.batch = field.shape[0];
  }
  if (cardinality_ >= 0) rows.samples = checked_mul(cardinality_, rows.batch).value_or(-1);
  rows.endless = cardinality_ == kInfiniteCardinality;
  return rows;
}

Element Stage::get(Run&, uint64_t, int64_t) const {
  throw InternalError("[data] " + name_ + ": its elements come one after another");
}

void Stage::put(Run&, uint64_t, int64_t, std::span<char* const>) const {
  throw InternalError("[data] " + name_ + ": its elements cannot be written to a place");
}

IteratorRef Stage::iterate(Run& run, uint64_t epoch) const {
  check(indexable_, "a stage that iterates or can be indexed");
  return std::make_unique<IndexIterator>(*this, run, epoch);
}

Run::Run(StageRef root, Bytes budget, Bytes floor, Sizing sizing, int threads, uint64_t seed)
    : root_(std::move(root)),
      ledger_(budget, floor),
      sizing_(sizing),
      threads_(threads),
      seed_(seed),
      workers_(std::make_unique<Workers>(threads, ledger_.memory())) {
  std::vector<const Stage*> open{root_.get()};
  while (!open.empty()) {
    const Stage* node = open.back();
    open.pop_back();
    figures_.emplace(node, std::make_unique<StageFigures>());
    for (const StageRef& input : node->inputs()) open.push_back(input.get());
  }
  uint64_t drawing = 0;  // stages that draw, the first by the seed itself
  for (const Stage* node : all_stages(*root_))
    if (node->draws() &&
        seeds_.emplace(node, drawing == 0 ? seed_ : random_key(seed_, 0, drawing)).second)
      ++drawing;
}

Run::~Run() {
  const std::vector<const Stage*> list = all_stages(*root_);
  for (auto node = list.rbegin(); node != list.rend(); ++node) keeps_.erase(*node);
}

uint64_t Run::seed(const Stage& node) const {
  if (const auto at = seeds_.find(&node); at != seeds_.end()) return at->second;
  const std::lock_guard lock(keep_mutex_);
  const auto at = inner_.find(&node);
  return at == inner_.end() ? seed_ : at->second.seed;
}

uint64_t Run::first_pass(const Stage& node) const {
  const std::lock_guard lock(keep_mutex_);
  const auto at = inner_.find(&node);
  return at == inner_.end() ? 0 : at->second.first_pass;
}

InnerStages::InnerStages(Run& run, StageRef root, uint64_t first_pass)
    : run_(&run), root_(std::move(root)) {
  const std::lock_guard lock(run.keep_mutex_);
  uint64_t drawing = 0;
  for (const Stage* node : all_stages(*root_)) {
    if (run.figures_.contains(node)) continue;  // the pipeline's own
    held_.push_back(node);
    Run::Inner& inner = run.inner_[node];
    const uint64_t own = drawing == 0 ? run.seed_ : random_key(run.seed_, 0, drawing);
    drawing += node->draws() ? 1 : 0;
    if (inner.holders++ == 0) inner = {1, first_pass, own};
  }
}

InnerStages& InnerStages::operator=(InnerStages&& other) noexcept {
  release();
  run_ = std::exchange(other.run_, nullptr);
  root_ = std::move(other.root_);
  held_ = std::exchange(other.held_, {});
  return *this;
}

void InnerStages::release() noexcept {
  if (!run_) return;
  std::vector<std::unique_ptr<Keep>> old;  // ends without the lock: an iterator may be in it
  {
    const std::lock_guard lock(run_->keep_mutex_);
    for (const Stage* node : held_) {
      const auto at = run_->inner_.find(node);
      if (--at->second.holders > 0) continue;
      run_->inner_.erase(at);
      const auto kept = run_->keeps_.find(node);
      if (kept == run_->keeps_.end()) continue;
      old.push_back(std::move(kept->second));
      run_->keeps_.erase(kept);
    }
  }
  while (!old.empty()) old.pop_back();  // who reads first, then what is read
  held_.clear();
  root_.reset();
  run_ = nullptr;
}

StageFigures& Run::figures(const Stage& node) {
  const auto at = figures_.find(&node);
  return at == figures_.end() ? others_ : *at->second;
}

std::vector<const Stage*> all_stages(const Stage& root) {
  std::vector<const Stage*> list;
  list_stages(root, list);
  return list;
}

uint64_t fingerprint(const Stage& root, uint64_t seed, bool contents) {
  const std::vector<const Stage*> list = all_stages(root);
  const bool seeded = !contents || std::any_of(list.begin(), list.end(),
                                               [](const Stage* node) { return node->draws(); });
  Xxh3 hash;
  hash.update(seeded ? std::to_string(seed) : std::string());
  for (const Stage* node : list) {
    hash.update(node->name() + "|" + node->spec().text() + "|" +
                std::to_string(node->cardinality()) + "|" + node->decides() + ";");
    if (contents) hash.update(std::to_string(node->contents()) + ";");
  }
  return hash.digest();
}

std::string exact_text(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

uint64_t random_key(uint64_t seed, uint64_t epoch, uint64_t place) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
  return mix(mix(mix(seed + kStep) ^ (epoch + 2 * kStep)) + (place + 1) * kStep);
}

void rethrow_named(const std::string& stage, int64_t place) {
  const std::string where = "[data] " + stage + ": element " + std::to_string(place) + ": ";
  try {
    throw;
  } catch (const DoesNotFit& error) {
    throw DoesNotFit(where + error.what());
  } catch (const InternalError&) {
    throw;
  } catch (const BackendError& error) {
    throw BackendError(where + error.what());
  } catch (const UserError& error) {
    throw UserError(where + error.what());
  } catch (const std::logic_error& error) {
    throw UserError(where + error.what() + "; throw DataError where it is the data's fault");
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(where + error.what());
  } catch (...) {
    throw UserError(where +
                    "expected functions that throw std::exception, received something else; throw "
                    "DataError where it is the data's fault");
  }
}

}  // namespace pl
