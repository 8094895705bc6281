// KernelCache: prepared kernels of eager calls, by op, operands and attributes. Bounded: those used
// longest ago go first.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "op/op.h"

namespace pl {

// Throws DoesNotFit where the memory has no room for as many bytes.
void expect_room(Bytes bytes, const ValueMemory& memory);

class KernelCache {
 public:
  struct Call {
    const Op* op;
    Metas in, out;
    Attrs attrs;
    std::shared_ptr<Kernel> kernel;  // null where the op moves no bytes
    Bytes made = 0, charged = 0;     // of results that are no operand's bytes; of what is kept
  };
  using Found = std::shared_ptr<const Call>;

  // What the cached kernels hold is charged to `memory`.
  KernelCache(Backend& backend, std::shared_ptr<ValueMemory> memory, size_t most_calls,
              Bytes most_bytes);
  ~KernelCache();

  // Throws DoesNotFit, with nothing prepared, where `results` has no room for what the op makes.
  Found find(const Op& op, const Tensors& in, const Attrs& attrs, const ValueMemory& results);
  size_t size() const { return calls_.size(); }
  void clear();

 private:
  void drop_oldest();
  void keep(uint64_t hash, const std::shared_ptr<Call>& call);

  struct Entry {
    uint64_t hash;
    Found call;
  };
  Backend& backend_;
  std::shared_ptr<ValueMemory> memory_;
  size_t most_calls_;
  Bytes most_bytes_, bytes_ = 0;
  std::list<Entry> calls_;  // the one used last is first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash_;
};

}  // namespace pl
