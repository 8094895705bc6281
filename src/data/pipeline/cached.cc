// cache: each element of epoch 0 once. What fits into its share of the ledger lies there, the rest
// in a file without a name. Elements of unknown size all go to the file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/file.h"
#include "data/pipeline/shelf.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

// Grows at its end; freed with the object.
class SpillFile {
 public:
  explicit SpillFile(const std::string& stage) : stage_(stage) {
    const std::string tmp = environment("TMPDIR");
    std::string path = (tmp.empty() ? "/tmp" : tmp) + "/plimsoll-cache-XXXXXX";
    fd_ = mkostemp(path.data(), O_CLOEXEC);
    if (fd_ < 0)
      throw BackendError("[data] " + stage + ": expected to write a file in " + path +
                         ", received " + std::strerror(errno) + "; set TMPDIR");
    unlink(path.c_str());
  }
  ~SpillFile() { close(fd_); }
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  void write(const void* data, Bytes bytes, ByteOffset at) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = pwrite(fd_, from, static_cast<size_t>(bytes), at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        throw BackendError("[data] " + stage_ + ": expected room on the disk for " +
                           format_bytes(at + bytes) + ", received " +
                           std::strerror(done < 0 ? errno : ENOSPC) + "; set TMPDIR");
      from += done;
      at += done;
      bytes -= done;
    }
  }
  void read(void* to, Bytes bytes, ByteOffset at) const {
    char* place = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t done = pread(fd_, place, static_cast<size_t>(bytes), at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        throw BackendError("[data] " + stage_ + ": expected to read back what was cached");
      place += done;
      at += done;
      bytes -= done;
    }
  }

 private:
  const std::string stage_;
  int fd_;
};

// Elements by number. All calls under its mutex.
class Store final : public Keep {
 public:
  Store(const Stage& node, Bytes share) : node_(node), known_(node.spec().known()) {
    if (!known_) return;
    for (const FieldSpec& field : node.spec().fields) stride_ += field.known_bytes();
    places_ = stride_ > 0 ? share / stride_ : 0;
    if (node.cardinality() >= 0) places_ = std::min(places_, node.cardinality());
    if (places_ > 0) shelf_.emplace(node.spec(), places_);
  }
  bool has(int64_t i) const {
    return i < static_cast<int64_t>(at_.size()) && at_[static_cast<size_t>(i)] >= 0;
  }
  void put(int64_t i, const Element& element) {
    ByteOffset at = i * stride_;
    if (i < places_) {
      shelf_->put(i, element);
    } else {
      if (!spill_) spill_.emplace(node_.name());
      at = known_ ? (i - places_) * stride_ : end_;
      write(element, at);
    }
    if (i >= static_cast<int64_t>(at_.size())) at_.resize(static_cast<size_t>(i) + 1, -1);
    at_[static_cast<size_t>(i)] = at;
  }
  Element read(int64_t i) const {
    if (i < places_) return shelf_->copy(i);
    ByteOffset at = at_[static_cast<size_t>(i)];
    Element out;
    for (const FieldSpec& field : node_.spec().fields) {
      Shape shape = field.shape;
      if (!known_) {
        std::vector<Dim> dims(static_cast<size_t>(shape.rank()));
        const auto bytes = static_cast<Bytes>(dims.size() * sizeof(Dim));
        spill_->read(dims.data(), bytes, at);
        at += bytes;
        shape = Shape(std::move(dims));
      }
      Tensor& tensor = out.emplace_back(Meta{field.dtype, shape});
      spill_->read(tensor.data(), tensor.meta().bytes(), at);
      at += tensor.meta().bytes();
    }
    return out;
  }

  std::mutex mutex;
  IteratorRef
      stream;  // of an input that cannot be got by index: goes on where the last epoch ended
  int64_t streamed = 0;
  bool complete = false;

 private:
  void write(const Element& element, ByteOffset at) {
    for (const Tensor& tensor : element) {
      if (!known_) {
        const auto bytes = static_cast<Bytes>(tensor.shape().dims().size() * sizeof(Dim));
        spill_->write(tensor.shape().dims().data(), bytes, at);
        at += bytes;
      }
      spill_->write(tensor.data(), tensor.meta().bytes(), at);
      at += tensor.meta().bytes();
    }
    end_ = std::max(end_, at);
  }

  const Stage& node_;
  const bool known_;
  Bytes stride_ = 0;
  int64_t places_ = 0;
  std::optional<Shelf> shelf_;
  std::optional<SpillFile> spill_;
  ByteOffset end_ = 0;
  std::vector<ByteOffset> at_;  // -1: not there
};

class Cache final : public Stage {
 public:
  Cache(StageRef input, Bytes bytes) : Stage("cache", {std::move(input)}), bytes_(bytes) {
    spec_ = this->input().spec();
    cardinality_ = this->input().cardinality();
    indexable_ = this->input().indexable();
  }
  Bytes out_bytes(const Sizing& sizing) const override { return input().out_bytes(sizing); }
  Rows rows() const override { return input().rows(); }
  Bytes share(const Sizing& sizing) const {
    if (!spec_.known()) return 0;
    Bytes share = bytes_ > 0 ? bytes_ : sizing.cache;
    if (cardinality_ >= 0 && cardinality_ < (int64_t{1} << 40))
      share = std::min(share, Shelf::bytes(spec_, cardinality_, 0));
    return granted(share);
  }
  Bytes once(const Sizing& sizing) const override {
    return input().once(sizing) + out_bytes(sizing);
  }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + out_bytes(sizing) + share(sizing);
  }
  Bytes beside() const override { return 8 * std::max<int64_t>(cardinality_, 0); }  // the table
  std::string options() const override { return bytes_ > 0 ? format_bytes(bytes_) : ""; }

  Store& store(Run& run) const {
    return run.keep<Store>(*this,
                           [&] { return std::make_unique<Store>(*this, share(run.sizing())); });
  }
  Element get(Run& run, uint64_t, int64_t i) const override {
    Store& kept = store(run);
    {
      const std::lock_guard lock(kept.mutex);
      if (kept.has(i)) return kept.read(i);
    }
    Element made = input().get(run, 0, i);
    const std::lock_guard lock(kept.mutex);
    if (!kept.has(i)) kept.put(i, made);
    return made;
  }

  IteratorRef iterate(Run& run, uint64_t) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Cache& node, Run& run)
          : node_(node), run_(run), store_(node.store(run)), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        if (node_.cardinality() >= 0 && at_ >= node_.cardinality()) return false;
        const std::lock_guard lock(store_.mutex);
        if (store_.has(at_))
          out = store_.read(at_++);
        else if (!make(out))
          return false;
        ++figures_.elements;
        return true;
      }
      int64_t advance(int64_t count) override {
        if (!node_.indexable() || node_.cardinality() < 0) return Iterator::advance(count);
        count = std::min(count, node_.cardinality() - at_);
        at_ += count;
        return count;
      }

     private:
      // Elements by index have an iterator of this pass, which may start in the middle; a stream
      // goes on where the store's ended, at the first element that is not there.
      bool make(Element& out) {
        if (store_.complete) return false;
        IteratorRef& from = node_.indexable() ? own_ : store_.stream;
        int64_t& reached = node_.indexable() ? reached_ : store_.streamed;
        if (!from) from = node_.input().iterate(run_, 0);
        if (reached < at_) reached += from->advance(at_ - reached);
        // An element that fails is asked for again in the next epoch if it has an index.
        if (node_.indexable()) {
          ++reached;
          ++at_;
        }
        if (!from->next(out)) {
          store_.complete = !node_.indexable();
          from.reset();
          return false;
        }
        if (!node_.indexable()) {
          ++reached;
          ++at_;
        }
        store_.put(at_ - 1, out);
        return true;
      }

      const Cache& node_;
      Run& run_;
      Store& store_;
      StageFigures& figures_;
      IteratorRef own_;
      int64_t at_ = 0, reached_ = 0;
    };
    return std::make_unique<Iterate>(*this, run);
  }

 private:
  Bytes bytes_;
};

}  // namespace

StageRef cache_stage(StageRef input, Bytes bytes) {
  return std::make_shared<Cache>(std::move(input), bytes);
}

}  // namespace pl
