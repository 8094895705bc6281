// Stage: one stage of a pipeline, immutable, and the iterators that run it. To add a stage, derive
// from Stage, say what is known before anything runs, and iterate; answer get() where elements can
// be made in any order.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/pipeline/ledger.h"
#include "data/pipeline/spec.h"

namespace pl {

class Stage;
class Workers;
using StageRef = std::shared_ptr<const Stage>;

// tf.data's words for how many elements there are.
inline constexpr int64_t kInfiniteCardinality = -1;
inline constexpr int64_t kUnknownCardinality = -2;
// Of num_parallel_calls and buffer_size: chosen while it runs, within the ledger.
inline constexpr int64_t AUTOTUNE = -1;

// What bounds of bytes depend on besides the stages themselves.
struct Sizing {
  Bytes unknown = 0;  // of an element whose dimensions are not known and that has no max_bytes
  Bytes cache = 0;    // of a cache whose share was not given
};

// What a running stage tells; written by several threads.
struct StageFigures {
  std::atomic<int64_t> elements{0};   // handed on
  std::atomic<int64_t> waited_ns{0};  // somebody wanted an element that was not ready
  std::atomic<int64_t> parallel{0};   // calls at once, chosen or given; 0: not such a stage
  std::atomic<int64_t> buffer{0};     // elements held ahead at most, likewise
  std::atomic<int64_t> held_peak{0};  // elements that were held ahead at once
  std::atomic<int64_t> skipped{0};    // by ignore_errors
};

// State that outlives an epoch and belongs to the iterator, such as what a cache holds.
class Keep {
 public:
  virtual ~Keep() = default;
};

// One running pipeline: what all its stages share.
class Run {
 public:
  Run(StageRef root, Bytes budget, Bytes floor, Sizing sizing, int threads, uint64_t seed);
  ~Run();
  Ledger& ledger() { return ledger_; }
  const Sizing& sizing() const { return sizing_; }
  Workers& workers() { return *workers_; }
  int threads() const { return threads_; }
  uint64_t seed() const { return seed_; }
  // For a stage without one of its own: each draws other numbers than the stages before it.
  uint64_t seed(const Stage& node) const;
  StageFigures& figures(const Stage& node);
  bool keeps() const { return !keeps_.empty(); }  // no thread is at work
  // What inner data sets have for the pass that is `0` of the pipeline's own stages: each has
  // another one, so that they do not draw the same numbers.
  uint64_t first_pass(const Stage& node) const;
  // What `make` makes, the first time it is asked for this node.
  template <class T, class Make>
  T& keep(const Stage& node, const Make& make) {
    const std::lock_guard lock(keep_mutex_);
    auto& kept = keeps_[&node];
    if (!kept) kept = make();
    return static_cast<T&>(*kept);
  }

 private:
  friend class InnerStages;
  struct Inner {
    int64_t holders = 0;
    uint64_t first_pass = 0, seed = 0;
  };

  StageRef root_;
  Ledger ledger_;
  Sizing sizing_;
  int threads_;
  uint64_t seed_;
  std::map<const Stage*, uint64_t> seeds_;  // of stages that draw
  std::unique_ptr<Workers> workers_;
  std::map<const Stage*, std::unique_ptr<StageFigures>> figures_;
  StageFigures others_;  // of stages that came to be while it ran
  mutable std::mutex keep_mutex_;
  std::map<const Stage*, Inner> inner_;  // stages that came to be while it runs, and are held
  std::map<const Stage*, std::unique_ptr<Keep>> keeps_;  // goes before what it needs
};

// Holds stages that came to be while a pipeline runs, for as long as somebody iterates them: what
// they keep goes with the last holder, before the stages do.
class InnerStages {
 public:
  InnerStages() = default;
  InnerStages(Run& run, StageRef root, uint64_t first_pass);
  InnerStages(InnerStages&& other) noexcept { *this = std::move(other); }
  InnerStages& operator=(InnerStages&& other) noexcept;
  ~InnerStages() { release(); }
  const Stage& root() const { return *root_; }

 private:
  void release() noexcept;
  Run* run_ = nullptr;
  StageRef root_;
  std::vector<const Stage*> held_;
};

// One pass over a stage's elements. One thread at a time. After an exception the next call goes on
// with the element behind the one that failed.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual bool next(Element& out) = 0;  // false: the end, and so from then on
  // Passes over `count` elements, fewer at the end; how many. One that would have raised a
  // DataError counts as any other: every element has its place. No cheaper than next() unless a
  // stage knows better.
  virtual int64_t advance(int64_t count);
};
using IteratorRef = std::unique_ptr<Iterator>;

class Stage {
 public:
  virtual ~Stage() = default;
  const std::string& name() const { return name_; }  // "map_1"
  const ElementSpec& spec() const { return spec_; }
  int64_t cardinality() const { return cardinality_; }
  bool indexable() const { return indexable_; }
  const std::vector<StageRef>& inputs() const { return inputs_; }

  // Bounds, in bytes of the ledger: of one element; of making one by get(), it included; of
  // iterating one element at a time, what the stages in front need included.
  virtual Bytes out_bytes(const Sizing& sizing) const;
  virtual Bytes once(const Sizing& sizing) const = 0;
  virtual Bytes floor(const Sizing& sizing) const { return once(sizing); }
  // Elements as batches of samples: the rows of a whole one, the rows of one pass in all, and
  // whether passes follow each other without end.
  struct Rows {
    int64_t batch = 0;     // 0: elements are no batches, as far as is known
    int64_t samples = -1;  // -1: not known
    bool endless = false;
  };
  virtual Rows rows() const;
  // The most that this stage and those in front can borrow for working ahead, with so many threads.
  virtual Bytes ahead(const Sizing& sizing, int threads) const;
  // Bytes outside of the budget: tables, tensors that were given, stacks of threads of its own.
  virtual Bytes beside() const { return 0; }
  virtual bool uses_workers() const { return false; }
  // All that decides elements and that name, signature and number do not show: options, keys,
  // constants. Part of positions and of snapshots' names; how much is done at once or held is not.
  virtual std::string decides() const { return ""; }
  // A hash of what is large or lies elsewhere: tensors, files. For snapshots alone.
  virtual uint64_t contents() const { return 0; }
  virtual bool draws() const { return false; }  // by the pipeline's seed
  // Options in short, for tables: "32, drop_remainder".
  virtual std::string options() const { return ""; }

  // Element `i` of pass `epoch`, 0 <= i < cardinality. Any thread. Of indexable stages.
  virtual Element get(Run& run, uint64_t epoch, int64_t i) const;
  // Where an element is a copy of what lies somewhere, it can be written to a place of another's,
  // such as a row of a batch: one place for each field, whose sizes are known.
  virtual bool puts() const { return false; }
  virtual void put(Run& run, uint64_t epoch, int64_t i, std::span<char* const> to) const;
  // Elements that get() or put() will be asked for next: a disk may fetch them meanwhile.
  virtual void expect(std::span<const int64_t> /*indices*/) const {}
  // By default: get() for one index after another.
  virtual IteratorRef iterate(Run& run, uint64_t epoch) const;

 protected:
  Stage(const std::string& kind, std::vector<StageRef> inputs);
  const Stage& input() const { return *inputs_[0]; }
  Bytes bound_of(const ElementSpec& spec, Bytes max_bytes, const Sizing& sizing) const;

  std::string name_;
  ElementSpec spec_;
  int64_t cardinality_ = kUnknownCardinality;
  bool indexable_ = false;
  std::vector<StageRef> inputs_;
};

// A stage and all in front of it, sources first.
std::vector<const Stage*> all_stages(const Stage& root);
// Of the stages, their signatures and what decides them: whoever has the same one yields the same
// elements, if the functions and files are the same. `contents`: of tensors and files too, and of
// the seed only where a stage draws by it.
uint64_t fingerprint(const Stage& root, uint64_t seed, bool contents = false);

std::string exact_text(double value);  // other numbers have other texts

// A number for each (seed, epoch, place), for stages that draw at random.
uint64_t random_key(uint64_t seed, uint64_t epoch, uint64_t place);

// Calls what a user wrote, or what reads a file, and puts the stage and the element in front of
// what it throws. What may be wrong with data becomes a DataError: that, std::runtime_error and
// their like. Mistakes in programs (UserError, std::logic_error) become a UserError, and what the
// machine lacks (DoesNotFit, BackendError, std::bad_alloc) stays what it is: none of it is ever
// skipped.
template <class Call>
auto guarded(const std::string& stage, int64_t place, const Call& call) -> decltype(call());
[[noreturn]] void rethrow_named(const std::string& stage, int64_t place);
template <class Call>
auto guarded(const std::string& stage, int64_t place, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    rethrow_named(stage, place);
  }
}

}  // namespace pl
