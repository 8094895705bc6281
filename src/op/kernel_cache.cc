#include "op/kernel_cache.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "backend/cpu/host_memory.h"
#include "base/error.h"

namespace pl {
namespace {

// From here on the system is asked: writing to more than there is ends the process, not the call.
constexpr Bytes kLarge = kGiB;

// Of a call's record itself: lists, metas, attributes.
constexpr Bytes kRecordBytes = kKiB;

class Mix {
 public:
  void add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x243F6A8885A308D3u;
};

void add_attr(Mix& mix, const Attr& attr) {
  mix.add(attr.index());
  if (const auto* integer = std::get_if<int64_t>(&attr)) mix.add(static_cast<uint64_t>(*integer));
  if (const auto* real = std::get_if<double>(&attr)) mix.add(std::bit_cast<uint64_t>(*real));
  if (const auto* text = std::get_if<std::string>(&attr)) mix.add(std::hash<std::string>()(*text));
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attr))
    for (int64_t entry : *list) mix.add(static_cast<uint64_t>(entry));
}

uint64_t hash_of(const Op& op, const Tensors& in, const Attrs& attrs) {
  Mix mix;
  mix.add(reinterpret_cast<uintptr_t>(&op));
  for (const Tensor& tensor : in) {
    mix.add(static_cast<uint64_t>(tensor.dtype()));
    mix.add(static_cast<uint64_t>(tensor.shape().rank()));
    for (Dim dim : tensor.shape()) mix.add(static_cast<uint64_t>(dim));
  }
  for (const auto& [name, attr] : attrs.entries()) {
    mix.add(std::hash<std::string>()(name));
    add_attr(mix, attr);
  }
  return mix.value();
}

bool is_call(const KernelCache::Call& call, const Op& op, const Tensors& in, const Attrs& attrs) {
  if (call.op != &op || call.in.size() != in.size() || call.attrs != attrs) return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (call.in[i] != in[i].meta()) return false;
  return true;
}

// Of the results that get bytes of their own.
Bytes made_by(const Op& op, const Metas& out) {
  Bytes bytes = 0;
  for (size_t o = 0; o < out.size(); ++o) {
    auto is_operand = [&](const InOut& pair) { return pair.out == static_cast<int>(o); };
    if (std::none_of(op.alias.begin(), op.alias.end(), is_operand) &&
        std::none_of(op.next_version.begin(), op.next_version.end(), is_operand))
      bytes += out[o].bytes();
  }
  return bytes;
}

}  // namespace

void expect_room(Bytes bytes, const ValueMemory& memory) {
  memory.expect(bytes);
  if (bytes < kLarge || memory.space()) return;
  if (const HostRoom room = host_room(); bytes > room.least())
    throw DoesNotFit("[runtime] expected " + format_bytes(bytes) + " for a value, " +
                     room.tightest() + " has room for " + format_bytes(room.least()) +
                     "; let go of tensors or a tape (reset()), or compute in parts");
}

KernelCache::KernelCache(Backend& backend, std::shared_ptr<ValueMemory> memory, size_t most_calls,
                         Bytes most_bytes)
    : backend_(backend),
      memory_(std::move(memory)),
      most_calls_(most_calls),
      most_bytes_(most_bytes) {}

KernelCache::~KernelCache() { clear(); }

KernelCache::Found KernelCache::find(const Op& op, const Tensors& in, const Attrs& attrs,
                                     const ValueMemory& results) {
  const uint64_t hash = hash_of(op, in, attrs);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    if (!is_call(*at->second->call, op, in, attrs)) continue;
    if (at->second->call->made >= kLarge) expect_room(at->second->call->made, results);
    calls_.splice(calls_.begin(), calls_, at->second);
    return calls_.front().call;
  }
  auto call = std::make_shared<Call>();
  call->op = &op;
  call->attrs = attrs;
  for (const Tensor& tensor : in) call->in.push_back(tensor.meta());
  call->out = op.infer(call->in, attrs);
  call->made = made_by(op, call->out);
  expect_room(call->made, results);
  if (op.alias.empty()) call->kernel = prepare(op, {backend_, call->in, call->out, attrs});
  keep(hash, call);
  return call;
}

// What has no room among the kept ones serves its caller and is gone.
void KernelCache::keep(uint64_t hash, const std::shared_ptr<Call>& call) {
  const Bytes bytes = kRecordBytes + (call->kernel ? call->kernel->footprint : 0);
  if (bytes > most_bytes_) return;
  while (calls_.size() >= most_calls_ || bytes_ + bytes > most_bytes_) drop_oldest();
  if (!memory_->charge(bytes)) return;
  call->charged = bytes;
  bytes_ += bytes;
  calls_.push_front({hash, call});
  by_hash_.emplace(hash, calls_.begin());
}

void KernelCache::drop_oldest() {
  const auto oldest = std::prev(calls_.end());
  const auto [first, last] = by_hash_.equal_range(oldest->hash);
  for (auto at = first; at != last; ++at)
    if (at->second == oldest) {
      by_hash_.erase(at);
      break;
    }
  memory_->discharge(oldest->call->charged);
  bytes_ -= oldest->call->charged;
  calls_.pop_back();
}

void KernelCache::clear() {
  while (!calls_.empty()) drop_oldest();
}

}  // namespace pl
