// cache and snapshot: each element of epoch 0 once. A cache keeps what fits into its share of the
// ledger there and the rest in a file without a name; a snapshot keeps all in a file that the next
// run finds. Elements of unknown size are in the file always.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/hash.h"
#include "data/pipeline/element_file.h"
#include "data/pipeline/failure_log.h"
#include "data/pipeline/shelf.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

// Elements by number. All calls under its mutex, but for read() of a file that is whole.
class Store : public Keep {
 public:
  virtual bool has(int64_t i) const = 0;
  virtual void put(int64_t i, const Element& element) = 0;
  virtual Element read(int64_t i) const = 0;
  // There are no more than those that were put.
  virtual void finish() {}
  virtual int64_t count() const = 0;  // that were put

  std::mutex mutex;
  // Of an input that cannot be got by index: goes on where the last epoch ended.
  IteratorRef stream;
  int64_t streamed = 0;                // places it has passed, those of failures too
  std::optional<FailureLog> failures;  // of the stream; none so far
  bool complete = false;               // nothing more will come
  std::atomic<bool> whole{false};      // all are in a file that many threads may read
};

std::string temporary_folder() {
  const std::string tmp = environment("TMPDIR");
  return tmp.empty() ? "/tmp" : tmp;
}

class CacheStore final : public Store {
 public:
  CacheStore(const Stage& node, Bytes share) : node_(node) {
    places_ = places_in(node.spec(), share);
    if (node.cardinality() >= 0) places_ = std::min(places_, node.cardinality());
    if (places_ < 1) return;
    shelf_.emplace(node.spec(), places_);
    there_ = Tensor(Meta{Dtype::uint8, Shape{(places_ + 7) / 8}});
    std::memset(there_.data(), 0, static_cast<size_t>((places_ + 7) / 8));
  }
  // What so many elements take: their bytes, and a bit for each.
  static Bytes bytes(const ElementSpec& spec, int64_t places) {
    return places < 1 ? 0 : Shelf::bytes(spec, places, 0) + granted(places / 8 + 1);
  }
  // As many as fit.
  static int64_t places_in(const ElementSpec& spec, Bytes share) {
    int64_t low = 0, high = 1;
    if (!spec.known() || Shelf::bytes(spec, 1 << 20, 0) < kMiB) return 0;
    while (high < (int64_t{1} << 40) && bytes(spec, high) <= share) high *= 2;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (bytes(spec, middle) <= share ? low : high) = middle;
    }
    return low;
  }
  bool has(int64_t i) const override {
    return i < places_ ? (bits(i) >> (i % 8) & 1) != 0 : spill_ && spill_->has(i - places_);
  }
  int64_t count() const override { return held_ + (spill_ ? spill_->count() : 0); }
  void put(int64_t i, const Element& element) override {
    if (i < places_) {
      shelf_->put(i, element);
      bits(i) = static_cast<uint8_t>(bits(i) | 1 << (i % 8));
      ++held_;
      return;
    }
    if (!spill_) spill_.emplace(node_.spec(), temporary_folder(), node_.name());
    spill_->put(i - places_, element);
  }
  Element read(int64_t i) const override {
    return i < places_ ? shelf_->copy(i) : spill_->read(i - places_);
  }

 private:
  uint8_t& bits(int64_t i) const { return there_.data_as<uint8_t>()[i / 8]; }

  const Stage& node_;
  int64_t places_ = 0, held_ = 0;
  Tensor there_;  // a bit for each place, within the share
  std::optional<Shelf> shelf_;
  std::optional<ElementFileWriter> spill_;
};

// A file under its name once all elements are in it; before that one without a name.
class SnapshotStore final : public Store {
 public:
  SnapshotStore(const Stage& node, std::string folder, uint64_t key, Bytes bound)
      : node_(node), folder_(std::move(folder)), key_(key), bound_(bound) {
    path_ = folder_ + "/" + hex16(key) + ".snapshot";
    open();
  }
  bool has(int64_t i) const override {
    return whole ? i < file_->count() : writer_ && writer_->has(i);
  }
  int64_t count() const override { return whole ? file_->count() : writer_ ? writer_->count() : 0; }
  void put(int64_t i, const Element& element) override {
    begin();
    writer_->put(i, element);
  }
  Element read(int64_t i) const override { return whole ? file_->read(i) : writer_->read(i); }
  void finish() override {
    if (whole) return;
    begin();
    writer_->publish(path_, key_);
    writer_.reset();
    open();
  }

 private:
  void begin() {
    if (writer_) return;
    try {
      make_directories(folder_);
    } catch (const DataError& error) {
      throw UserError(error.what());  // somebody chose this folder, and no data are at fault
    }
    writer_.emplace(node_.spec(), folder_, node_.name());
  }
  void open() {
    file_ = ElementFile::open(path_, node_.spec(), key_);
    if (!file_) return;
    if (node_.cardinality() >= 0 && node_.cardinality() != file_->count())
      throw DataError("[data] " + path_ + ": expected " + std::to_string(node_.cardinality()) +
                      " elements, received " + std::to_string(file_->count()) + "; remove it");
    if (file_->largest() > bound_)
      throw DataError("[data] " + node_.name() + ": expected elements of at most " +
                      format_bytes(bound_) + ", received " + format_bytes(file_->largest()) +
                      " in " + path_ + "; raise the memory or the max_bytes of what is in front");
    complete = true;
    whole = true;
  }

  const Stage& node_;
  const std::string folder_;
  const uint64_t key_;
  const Bytes bound_;
  std::string path_;
  std::optional<ElementFileWriter> writer_;
  std::unique_ptr<const ElementFile> file_;
};

// Each element of epoch 0 once: made when it is wanted first, kept from then on.
class Kept : public Stage {
 public:
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Rows rows() const override { return input().rows(); }
  Bytes once(const Sizing& sizing) const override {
    return input().once(sizing) + out_bytes(sizing);
  }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + out_bytes(sizing);
  }
  virtual Store& store(Run& run) const = 0;
  // The pass whose elements are kept.
  virtual uint64_t pass(const Run& /*run*/) const { return 0; }

  Element get(Run& run, uint64_t, int64_t i) const override {
    Store& kept = store(run);
    if (kept.whole) return kept.read(i);
    {
      const std::lock_guard lock(kept.mutex);
      if (kept.has(i)) return kept.read(i);
    }
    Element made = input().get(run, pass(run), i);
    const std::lock_guard lock(kept.mutex);
    if (!kept.has(i)) put(kept, i, made);
    return made;
  }
  IteratorRef iterate(Run& run, uint64_t epoch) const override;

 protected:
  Kept(const std::string& kind, StageRef input) : Stage(kind, {std::move(input)}) {
    spec_ = this->input().spec();
    cardinality_ = this->input().cardinality();
    indexable_ = this->input().indexable();
  }

 private:
  friend class KeptIterator;
  void put(Store& kept, int64_t i, const Element& made) const {
    kept.put(i, made);
    if (indexable_ && kept.count() == cardinality_) kept.finish();
  }
};

class KeptIterator final : public Iterator {
 public:
  KeptIterator(const Kept& node, Run& run)
      : node_(node), run_(run), store_(node.store(run)), figures_(run.figures(node)) {}
  bool next(Element& out) override {
    out.clear();
    if (node_.cardinality() >= 0 && at_ >= node_.cardinality()) return false;
    const std::lock_guard lock(store_.mutex);
    if (store_.failures)
      if (const auto message = store_.failures->next(failed_, at_)) throw DataError(*message);
    if (store_.has(at_))
      out = store_.read(at_++);
    else if (!make(out))
      return false;
    ++figures_.elements;
    return true;
  }
  int64_t advance(int64_t count) override {
    const int64_t all = store_.whole ? store_.count() : node_.cardinality();
    if ((!node_.indexable() && !store_.whole) || all < 0) return Iterator::advance(count);
    count = std::min(count, all - at_);
    at_ += count;
    return count;
  }

 private:
  bool make(Element& out) {
    if (store_.complete || ended_) return false;
    return node_.indexable() ? make_by_index(out) : make_streamed(out);
  }
  // An input that cannot be begun has no elements that fail: this pass is over.
  void open(IteratorRef& from) {
    if (from) return;
    ended_ = true;
    from = node_.inputs()[0]->iterate(run_, node_.pass(run_));
    ended_ = false;
  }
  // By an iterator of this pass, which may start in the middle. An element that fails is asked for
  // again in the next epoch.
  bool make_by_index(Element& out) {
    open(own_);
    if (reached_ < at_) reached_ += own_->advance(at_ - reached_);
    ++reached_;
    ++at_;
    if (!own_->next(out)) return false;
    node_.put(store_, at_ - 1, out);
    return true;
  }
  // The store's stream goes on where it ended, at the first element that is not there. What fails
  // for the data's sake fails in every epoch; behind anything else the stream begins anew.
  bool make_streamed(Element& out) {
    IteratorRef& from = store_.stream;
    open(from);
    try {
      const int64_t place = at_ + (store_.failures ? store_.failures->count() : 0);
      if (store_.streamed < place) store_.streamed += from->advance(place - store_.streamed);
      ++store_.streamed;
      if (!from->next(out)) {
        from.reset();
        store_.complete = true;
        if (!store_.failures) store_.finish();
        return false;
      }
      node_.put(store_, at_, out);
    } catch (const DataError& error) {
      if (!store_.failures) store_.failures.emplace(temporary_folder(), node_.name());
      store_.failures->add(at_, error.what());
      failed_ = store_.failures->end();
      throw;
    } catch (...) {
      from.reset();
      store_.streamed = 0;
      throw;
    }
    ++at_;
    return true;
  }

  const Kept& node_;
  Run& run_;
  Store& store_;
  StageFigures& figures_;
  IteratorRef own_;
  int64_t at_ = 0, reached_ = 0;
  FailureLog::Cursor failed_;
  bool ended_ = false;
};

IteratorRef Kept::iterate(Run& run, uint64_t) const {
  return std::make_unique<KeptIterator>(*this, run);
}

class Cache final : public Kept {
 public:
  Cache(StageRef input, int64_t elements, Bytes bytes)
      : Kept("cache", std::move(input)), elements_(elements), bytes_(bytes) {}
  Bytes share(const Sizing& sizing) const {
    if (!spec_.known()) return 0;
    Bytes share = bytes_ > 0 ? bytes_ : sizing.cache;
    if (elements_ > 0) share = CacheStore::bytes(spec_, elements_);
    if (cardinality_ >= 0 && cardinality_ < (int64_t{1} << 40))
      share = std::min(share, CacheStore::bytes(spec_, cardinality_));
    return granted(share);
  }
  Bytes floor(const Sizing& sizing) const override { return Kept::floor(sizing) + share(sizing); }
  std::string options() const override {
    if (elements_ > 0) return std::to_string(elements_);
    return bytes_ > 0 ? format_bytes(bytes_) : "";
  }
  uint64_t pass(const Run& run) const override { return run.first_pass(*this); }
  Store& store(Run& run) const override {
    return run.keep<CacheStore>(
        *this, [&] { return std::make_unique<CacheStore>(*this, share(run.sizing())); });
  }

 private:
  int64_t elements_;
  Bytes bytes_;
};

class Snapshot final : public Kept {
 public:
  Snapshot(StageRef input, std::string folder, std::string key)
      : Kept("snapshot", std::move(input)), folder_(std::move(folder)), key_(std::move(key)) {}
  std::string options() const override { return folder_; }
  std::string decides() const override { return key_; }
  Store& store(Run& run) const override {
    return run.keep<SnapshotStore>(*this, [&] {
      const uint64_t stages = fingerprint(input(), run.seed(), true);
      const uint64_t key = xxh3(hex16(stages) + key_);
      return std::make_unique<SnapshotStore>(*this, folder_, key, out_bytes(run.sizing()));
    });
  }

 private:
  std::string folder_, key_;
};

void expect_end(const char* stage, const Stage& input) {
  if (input.cardinality() == kInfiniteCardinality)
    throw UserError("[data] " + std::string(stage) +
                    ": expected data with an end, received data that are repeated for ever; put " +
                    stage + "() in front of repeat(), or take(n) between them");
}

}  // namespace

StageRef cache_stage(StageRef input, int64_t elements, Bytes bytes) {
  expect_end("cache", *input);
  if (elements < 0)
    throw UserError("[data] cache: expected 0 or more elements in memory, received " +
                    std::to_string(elements) + "; 0 is a share of the budget");
  return std::make_shared<Cache>(std::move(input), elements, bytes);
}
StageRef snapshot_stage(StageRef input, std::string folder, std::string key) {
  expect_end("snapshot", *input);
  return std::make_shared<Snapshot>(std::move(input), std::move(folder), std::move(key));
}

}  // namespace pl
