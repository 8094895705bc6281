// What a pipeline costs for each element, whatever is done with them: numbers mapped one by one,
// and small rows mapped and batched.
//
//   data_elements [count]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <new>

#include "data/pipeline/dataset.h"

namespace {

int64_t allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* place = std::malloc(bytes)) return place;
  throw std::bad_alloc();
}
void operator delete(void* place) noexcept { std::free(place); }
void operator delete(void* place, size_t) noexcept { std::free(place); }

namespace {

using namespace pl;

Element doubled(const Element& in) {
  Tensor out(Meta{Dtype::int64, Shape()});
  *out.data_as<int64_t>() = 2 * *in[0].data_as<int64_t>();
  Element made;
  made.push_back(std::move(out));
  return made;
}

void measure(const char* name, const Dataset& data, int64_t elements) {
  for (int pass = 0; pass < 2; ++pass) {  // the first is for warming up
    DatasetIterator iterator = data.iterate();
    Element element;
    const int64_t before = allocations;
    const std::clock_t start = std::clock();
    while (iterator.next(element)) {
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (pass == 0) continue;
    std::printf("%-24s %9.1f ns an element, %.2f M elements/s, %.2f allocations an element\n", name,
                1e9 * seconds / static_cast<double>(elements),
                1e-6 * static_cast<double>(elements) / seconds,
                static_cast<double>(allocations - before) / static_cast<double>(elements));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : 2'000'000;
  const Dataset numbers = Dataset::range(count);
  measure("range", numbers, count);
  measure("range.map", numbers.map(doubled), count);
  measure("range.map.batch(32)", numbers.map(doubled).batch(32), count);
  measure("range.shuffle.map", numbers.shuffle().map(doubled), count);
  measure("range.map(AUTOTUNE)", numbers.map(doubled, {.num_parallel_calls = AUTOTUNE}), count);
  Tensor x(Meta{Dtype::float32, Shape{count / 16, 16}});
  const auto rows = Dataset::from_tensor_slices(Tensors{x});
  measure("slices.map.batch(32)", rows.map([](const Element& in) { return in; }).batch(32),
          count / 16);
}
