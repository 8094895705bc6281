// CUDA kernels of cast, fill, progression, dropout, random, relu_bits, one_hot and causal_mask.
#include "op/cuda/each_of_several-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/progression.h"

namespace pl::cuda {
namespace {

template <class To, class From>
struct EachCast {
  static constexpr int kSize =
      16 / static_cast<int>(sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  struct Places {
    const From* x;
    To* y;
  };
  struct alignas(16) Source {
    From at[kSize];
  };
  struct alignas(16) Target {
    To at[kSize];
  };
  const StepParams* step = nullptr;
  bool operator==(const EachCast&) const { return true; }

  static Places make_places(void* const* in, void* const* out) {
    return {input<From>(in, 0), output<To>(out, 0)};
  }
  static bool packed(const Places& places) { return at_packs(places.x, places.y); }
  static const StepParams* params(void* const*) { return nullptr; }
  __device__ void begin() {}
  __device__ void run(const Places& places, int64_t i) const {
    const Source from = reinterpret_cast<const Source*>(places.x)[i];
    Target to;
#pragma unroll
    for (int j = 0; j < kSize; ++j) to.at[j] = static_cast<To>(widen(from.at[j]));
    reinterpret_cast<Target*>(places.y)[i] = to;
  }
  __device__ void rest(const Places& places, int64_t i) const {
    places.y[i] = static_cast<To>(widen(places.x[i]));
  }
};

// Any number, as it is: an integer or a real.
struct Number {
  double real;
  int64_t whole;
  bool is_whole;
};

__device__ Number load_number(Dtype dtype, const void* x, int64_t i) {
  switch (dtype) {
    case Dtype::float32:
      return {static_cast<const float*>(x)[i], 0, false};
    case Dtype::float64:
      return {static_cast<const double*>(x)[i], 0, false};
    case Dtype::bfloat16:
      return {widen(static_cast<const Bf16*>(x)[i]), 0, false};
    case Dtype::float16:
      return {widen(static_cast<const Half*>(x)[i]), 0, false};
    case Dtype::int32:
      return {0, static_cast<const int32_t*>(x)[i], true};
    case Dtype::int64:
      return {0, static_cast<const int64_t*>(x)[i], true};
    case Dtype::boolean:
      return {0, static_cast<const uint8_t*>(x)[i] != 0, true};
    default:
      return {0, static_cast<const uint8_t*>(x)[i], true};
  }
}

// Reals beyond the range become its ends, NaN 0; integers wrap.
__device__ int64_t to_whole(const Number& n, int64_t low, int64_t high) {
  if (n.is_whole) return n.whole;
  const double least = static_cast<double>(low), most = static_cast<double>(high);
  if (!(n.real > least)) return n.real <= least ? low : 0;
  return n.real >= most ? high : static_cast<int64_t>(n.real);
}

__device__ void store_number(Dtype dtype, const Number& n, void* y, int64_t i) {
  const float narrow = n.is_whole ? static_cast<float>(n.whole) : static_cast<float>(n.real);
  switch (dtype) {
    case Dtype::float32:
      static_cast<float*>(y)[i] = narrow;
      return;
    case Dtype::float64:
      static_cast<double*>(y)[i] = n.is_whole ? static_cast<double>(n.whole) : n.real;
      return;
    case Dtype::bfloat16:
      static_cast<Bf16*>(y)[i] = Bf16(narrow);
      return;
    case Dtype::float16:
      static_cast<Half*>(y)[i] = Half(narrow);
      return;
    case Dtype::int32:
      static_cast<int32_t*>(y)[i] =
          static_cast<int32_t>(to_whole(n, -int64_t{2147483648}, 2147483647));
      return;
    case Dtype::int64:
      static_cast<int64_t*>(y)[i] = to_whole(n, -9223372036854775807 - 1, 9223372036854775807);
      return;
    case Dtype::boolean:
      static_cast<uint8_t*>(y)[i] = n.is_whole ? n.whole != 0 : n.real != 0;
      return;
    default:
      static_cast<uint8_t*>(y)[i] = static_cast<uint8_t>(to_whole(n, 0, 255));
  }
}

__global__ void cast_numbers(Dtype from, const void* x, Dtype to, void* y, int64_t total) {
  for (int64_t i = thread_index(); i < total; i += thread_count())
    store_number(to, load_number(from, x, i), y, i);
}

__global__ void fill_numbers(Dtype dtype, Number value, void* y, int64_t total) {
  for (int64_t i = thread_index(); i < total; i += thread_count())
    store_number(dtype, value, y, i);
}

// Product and sum are rounded each, as on the CPU.
__global__ void count_numbers(Dtype dtype, bool whole, ProgressionForm f, void* y, int64_t total) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    double value =
        __dmul_rn(__dadd_rn(__dmul_rn(static_cast<double>(i), f.step), f.start), f.factor);
    if (f.ends && i == total - 1) value = f.end;
    store_number(dtype, {whole ? floor(value) : value, 0, false}, y, i);
  }
}

}  // namespace

std::unique_ptr<Kernel> cast(const PrepareCall& call) {
  const Dtype from = call.in[0].dtype, to = call.out[0].dtype;
  if (from == Dtype::float32 && to == Dtype::bfloat16) return make_each(call, EachCast<Bf16, float>{});
  if (from == Dtype::bfloat16 && to == Dtype::float32) return make_each(call, EachCast<float, Bf16>{});
  if (from == Dtype::float32 && to == Dtype::float16) return make_each(call, EachCast<Half, float>{});
  if (from == Dtype::float16 && to == Dtype::float32) return make_each(call, EachCast<float, Half>{});
  const int64_t total = call.out[0].elements();
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    if (total > 0)
      cast_numbers<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(from, in[0], to, out[0],
                                                                         total);
  });
}

std::unique_ptr<Kernel> fill(const PrepareCall& call) {
  const Dtype dtype = call.out[0].dtype;
  const int64_t total = call.out[0].elements();
  const Number value{call.attrs.real("value"), call.attrs.integer("exact", 0),
                     call.attrs.has("exact")};
  return make_kernel(call, [=](const Launch& launch, void* const*, void* const* out, char*) {
    if (total > 0)
      fill_numbers<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(dtype, value, out[0],
                                                                         total);
  });
}

std::unique_ptr<Kernel> progression(const PrepareCall& call) {
  const Dtype dtype = call.out[0].dtype;
  const ProgressionForm form = progression_form(call.attrs);
  const int64_t total = call.out[0].elements();
  const bool whole = !is_floating(dtype) && dtype != Dtype::boolean;
  return make_kernel(call, [=](const Launch& launch, void* const*, void* const* out, char*) {
    if (total > 0)
      count_numbers<<<launch.blocks(total, 256), 256, 0, launch.stream>>>(dtype, whole, form,
                                                                          out[0], total);
  });
}

namespace {

// As cpu::dropout_form and cpu::random_reference; false: more bands than a kernel's parameters
// hold.
bool stream_form(const Meta& meta, const Attrs& attrs, bool rows, StreamForm* form) {
  const Shape& x = meta.shape;
  form->total = x.elements();
  rows = rows && x.rank() > 0 && form->total > 0;
  form->per_row = rows ? form->total / x[0] : 0;
  form->stream = static_cast<uint64_t>(attrs.integer("stream"));
  if (!attrs.has("starts") || form->total == 0) return true;
  form->image_row = form->total / (x[0] * x[1]);
  form->height = attrs.integer("height");
  const auto& starts = attrs.list("starts");
  form->bands = static_cast<int>(starts.size());
  if (starts.size() > std::size(form->starts)) return false;
  for (size_t i = 0; i < starts.size(); ++i) form->starts[i] = static_cast<int>(starts[i]);
  return true;
}

// Each thread has the words of one block of the stream, for up to four elements.
template <class T>
__global__ void drop_elements(StreamForm form, uint32_t threshold, double factor, const T* x, T* y,
                              const StepParams* params) {
  using W = Wide<T>;
  const StreamPlace place = stream_place(form, params);
  const W kept = static_cast<W>(factor);
  const int64_t first = place.base / 4, blocks = (place.base + form.total + 3) / 4 - first;
  for (int64_t i = thread_index(); i < blocks; i += thread_count()) {
    const uint4 words = stream_block(place.key, place.step, static_cast<uint64_t>(first + i));
    const int64_t at = (first + i) * 4 - place.base;
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      if (at + lane >= 0 && at + lane < form.total) {
        const bool keep = word_of(words, static_cast<uint32_t>(lane)) >= threshold;
        y[at + lane] = static_cast<T>(keep ? widen(x[at + lane]) * kept : W(0));
      }
  }
}

template <class T>
__global__ void draw_elements(StreamForm form, bool normal, double a, double factor, T* y,
                              const StepParams* params) {
  const StreamPlace place = stream_place(form, params);
  const int64_t first = place.base / 4, blocks = (place.base + form.total + 3) / 4 - first;
  for (int64_t i = thread_index(); i < blocks; i += thread_count()) {
    const uint4 words = stream_block(place.key, place.step, static_cast<uint64_t>(first + i));
    const int64_t at = (first + i) * 4 - place.base;
    for (int pair = 0; pair < 2; ++pair) {
      double u = unit_of(pair ? words.z : words.x), v = unit_of(pair ? words.w : words.y);
      if (normal) {
        const double length = sqrt(-2 * log(u));
        double sine, cosine;
        sincos(6.283185307179586 * v, &sine, &cosine);
        u = length * cosine;
        v = length * sine;
      }
      const int64_t to = at + 2 * pair;
      if (to >= 0 && to < form.total) y[to] = static_cast<T>(static_cast<Wide<T>>(a + factor * u));
      if (to + 1 >= 0 && to + 1 < form.total)
        y[to + 1] = static_cast<T>(static_cast<Wide<T>>(a + factor * v));
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> dropout(const PrepareCall& call) {
  StreamForm form;
  if (!stream_form(call.in[0], call.attrs, call.attrs.integer("rows", 1) != 0, &form))
    return nullptr;
  const double rate = call.attrs.real("rate");
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (form.total > 0)
        drop_elements<T><<<launch.blocks(form.total / 4 + 2, 256), 256, 0, launch.stream>>>(
            form, static_cast<uint32_t>(rate * 0x1p32), 1 / (1 - rate), input<T>(in, 0),
            output<T>(out, 0), input<StepParams>(in, 1));
    });
  });
}

std::unique_ptr<Kernel> random(const PrepareCall& call) {
  StreamForm form;
  if (!stream_form(call.out[0], call.attrs, call.attrs.integer("rows", 0) != 0, &form))
    return nullptr;
  const bool normal = call.attrs.text("distribution", "normal") == "normal";
  const double a = call.attrs.real("a", 0), b = call.attrs.real("b", 1);
  return dispatch_real(call.out[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (form.total > 0)
        draw_elements<T><<<launch.blocks(form.total / 4 + 2, 256), 256, 0, launch.stream>>>(
            form, normal, a, normal ? b : b - a, output<T>(out, 0), input<StepParams>(in, 0));
    });
  });
}

namespace {

// A thread has a byte of bits: eight elements, in packs where rows allow.
template <class T, bool gradient>
__global__ void bits_of_rows(const T* x, T* y, uint8_t* bits, int64_t rows, int64_t row,
                             int64_t row_bytes) {
  constexpr int kPacks = 8 / Pack<T>::kSize;
  // Bands of a slice may begin between two packs.
  const bool whole =
      row % 8 == 0 && (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  for (int64_t i = thread_index(); i < rows * row_bytes; i += thread_count()) {
    const int64_t first = i / row_bytes * row + i % row_bytes * 8;
    const int count = whole ? 8 : static_cast<int>(min(int64_t{8}, row - i % row_bytes * 8));
    T values[8];
    if (whole)
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const Pack<T> pack = load_pack(x + first + p * Pack<T>::kSize);
#pragma unroll
        for (int j = 0; j < Pack<T>::kSize; ++j) values[p * Pack<T>::kSize + j] = pack.at[j];
      }
    else
      for (int j = 0; j < count; ++j) values[j] = x[first + j];
    uint32_t byte = gradient ? bits[i] : 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (j >= count) break;
      const Wide<T> value = widen(values[j]);
      if (gradient) {
        if (!((byte >> j) & 1)) values[j] = static_cast<T>(Wide<T>(0));
      } else {
        if (value > Wide<T>(0)) byte |= 1u << j;
        if (value <= Wide<T>(0)) values[j] = static_cast<T>(Wide<T>(0));
      }
    }
    if (!gradient) bits[i] = static_cast<uint8_t>(byte);
    if (whole)
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        Pack<T> pack;
#pragma unroll
        for (int j = 0; j < Pack<T>::kSize; ++j) pack.at[j] = values[p * Pack<T>::kSize + j];
        store_pack(y + first + p * Pack<T>::kSize, pack);
      }
    else
      for (int j = 0; j < count; ++j) y[first + j] = values[j];
  }
}

template <bool gradient>
std::unique_ptr<Kernel> bits_kernel(const PrepareCall& call) {
  const Meta& x = call.in[gradient ? 1 : 0];
  const Meta& bits = gradient ? call.in[0] : call.out[1];
  const int64_t rows = x.shape[0], row = x.shape.without_front().elements();
  const int64_t row_bytes = bits.shape[1];
  return dispatch_real(x.dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      uint8_t* byte = static_cast<uint8_t*>(gradient ? in[0] : out[1]);
      if (rows * row_bytes > 0)
        bits_of_rows<T, gradient><<<launch.blocks(rows * row_bytes, 256), 256, 0, launch.stream>>>(
            input<T>(in, gradient ? 1 : 0), output<T>(out, 0), byte, rows, row, row_bytes);
    });
  });
}

template <class T>
__global__ void one_hot_rows(const int32_t* labels, T* y, int64_t total, int64_t depth) {
  for (int64_t i = thread_index(); i < total; i += thread_count())
    y[i] = static_cast<T>(labels[i / depth] == i % depth ? Wide<T>(1) : Wide<T>(0));
}

template <class T>
__global__ void mask_later(const T* x, T* y, int64_t total, int64_t positions, int64_t columns,
                           bool zero) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const bool later = i % columns > i / columns % positions;
    const Wide<T> value = zero ? Wide<T>(0) : -infinity(Wide<T>(0));
    y[i] = later ? static_cast<T>(value) : x[i];
  }
}

}  // namespace

std::unique_ptr<Kernel> relu_bits(const PrepareCall& call) { return bits_kernel<false>(call); }
std::unique_ptr<Kernel> relu_bits_gradient(const PrepareCall& call) {
  return bits_kernel<true>(call);
}

std::unique_ptr<Kernel> one_hot(const PrepareCall& call) {
  const int64_t total = call.out[0].elements(), depth = call.out[0].shape.back();
  return dispatch_real(call.out[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        one_hot_rows<T><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
            input<int32_t>(in, 0), output<T>(out, 0), total, depth);
    });
  });
}

std::unique_ptr<Kernel> causal_mask(const PrepareCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t total = shape.elements(), columns = shape.back();
  const int64_t positions = shape[shape.rank() - 2];
  const bool zero = call.attrs.integer("zero", 0) != 0;
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        mask_later<T><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
            input<T>(in, 0), output<T>(out, 0), total, positions, columns, zero);
    });
  });
}

}  // namespace pl::cuda
