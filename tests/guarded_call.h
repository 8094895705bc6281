// Runs a prepared kernel with poisoned and fenced outputs and workspace, and says what it broke.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "op/op.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"

namespace pl::test {

// Bytes at a cache line's start with a fence of known bytes on either side, right up to the edge.
class Fenced {
 public:
  static constexpr size_t kFence = 64;
  static constexpr unsigned char kMark = 0xA7;

  Fenced(Bytes bytes, unsigned char poison) : size_(static_cast<size_t>(bytes)) {
    const size_t whole = (size_ + 2 * kFence + 63) / 64 * 64;
    memory_.reset(static_cast<unsigned char*>(std::aligned_alloc(64, whole)));
    whole_ = whole;
    std::memset(memory_.get(), kMark, whole);
    std::memset(data(), poison, size_);
  }
  unsigned char* data() const { return memory_.get() + kFence; }
  std::vector<unsigned char> content() const { return {data(), data() + size_}; }
  bool intact() const {
    const auto marked = [](unsigned char byte) { return byte == kMark; };
    const unsigned char* first = memory_.get();
    return std::all_of(first, first + kFence, marked) &&
           std::all_of(first + kFence + size_, first + whole_, marked);
  }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  size_t size_, whole_ = 0;
  std::unique_ptr<unsigned char, Free> memory_;
};

struct GuardedResult {
  std::vector<std::vector<unsigned char>> out;  // bytes of each output
  std::string fault;                            // empty when the kernel kept to its buffers
};

// Outputs named in `in_place` lie on a copy of their input; all others and the workspace hold
// `poison`.
inline GuardedResult run_guarded(Kernel& kernel, const Tensors& in, const Metas& out,
                                 unsigned char poison, std::span<const InOut> in_place = {}) {
  std::vector<Fenced> ins, outs;
  std::vector<void*> in_pointers, out_pointers;
  for (const Tensor& tensor : in) {
    ins.emplace_back(tensor.meta().bytes(), poison);
    if (tensor.meta().bytes() > 0)
      std::memcpy(ins.back().data(), tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
    in_pointers.push_back(ins.back().data());
  }
  for (const Meta& meta : out) {
    outs.emplace_back(meta.bytes(), poison);
    out_pointers.push_back(outs.back().data());
  }
  std::vector<bool> replaced(in.size());
  for (const InOut& pair : in_place) {
    out_pointers[static_cast<size_t>(pair.out)] = in_pointers[static_cast<size_t>(pair.in)];
    replaced[static_cast<size_t>(pair.in)] = true;
  }
  Fenced workspace(kernel.workspace_bytes, poison);
  kernel.run(in_pointers.data(), out_pointers.data(), workspace.data());

  GuardedResult result;
  if (!workspace.intact()) result.fault = "wrote outside its workspace";
  for (size_t i = 0; i < ins.size(); ++i) {
    if (!ins[i].intact()) result.fault = "wrote around input " + std::to_string(i);
    const auto size = static_cast<size_t>(in[i].meta().bytes());
    if (!replaced[i] && size > 0 && std::memcmp(ins[i].data(), in[i].data(), size) != 0)
      result.fault = "changed input " + std::to_string(i);
  }
  for (size_t o = 0; o < outs.size(); ++o) {
    if (!outs[o].intact()) result.fault = "wrote outside output " + std::to_string(o);
    const auto* data = static_cast<const unsigned char*>(out_pointers[o]);
    result.out.emplace_back(data, data + out[o].bytes());
  }
  return result;
}

// Element `i` of raw bytes, as a number.
inline double number_at(const std::vector<unsigned char>& bytes, Dtype dtype, size_t i) {
  auto read = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return static_cast<double>(value);
  };
  switch (dtype) {
    case Dtype::float32:
      return read(float{});
    case Dtype::float64:
      return read(double{});
    case Dtype::bfloat16: {
      Bfloat16 value;
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      return static_cast<double>(static_cast<float>(value));
    }
    case Dtype::float16: {
      Float16 value;
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      return static_cast<double>(static_cast<float>(value));
    }
    case Dtype::int32:
      return read(int32_t{});
    case Dtype::int64:
      return read(int64_t{});
    default:
      return read(uint8_t{});
  }
}

}  // namespace pl::test
