// A pipeline to be killed: `killable_stream FOLDER [EPOCHS] [KIND]` reads a data set that is mapped
// in parallel, cached, shuffled and prefetched, and writes down each element and the position
// behind it, in one record. Started again it goes on from the last whole record. At its end
// FOLDER/log.csv has all elements in order. KIND: ram, spill (the cache is a file but for some
// elements), stream (a generator, with a buffer of shuffled elements), snapshot (a file that later
// runs use when it is whole). scripts/kill-test kills it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/pipeline/dataset.h"

namespace {

using namespace pl;

constexpr int64_t kElements = 400, kWords = 128;

Element block(int64_t i) {
  Tensor x(Meta{Dtype::int64, Shape{kWords}});
  for (int64_t k = 0; k < kWords; ++k) x.data_as<int64_t>()[k] = i * 1000 + k;
  return {x};
}

// Slow in its own time, so that kills come into the middle of it.
Element changed(const Element& in, uint64_t key) {
  usleep(static_cast<useconds_t>(100 + key % 300));
  Tensor x(in[0].meta());
  for (int64_t k = 0; k < kWords; ++k)
    x.data_as<int64_t>()[k] = in[0].data_as<int64_t>()[k] * 3 + static_cast<int64_t>(key % 65'521);
  return {x};
}

Generator<Element> stream() {
  for (int64_t i = 0; i < kElements; ++i) co_yield block(i);
}

Dataset data_of(const std::string& kind, const std::string& folder) {
  const ElementSpec spec{{{"x", Dtype::int64, Shape{kWords}}}};
  const MapOptions parallel{.num_parallel_calls = AUTOTUNE, .spec = spec};
  Dataset data = kind == "stream" ? Dataset::from_generator(stream, spec).shuffle(50)
                                  : Dataset::from_reader(kElements, block, spec);
  data = data.map_random(changed, parallel);
  if (kind == "spill")
    data = data.cache({.bytes = 64 * kKiB});
  else if (kind == "ram" || kind == "stream")
    data = data.cache();
  else if (kind == "snapshot")
    data = data.snapshot(folder + "/snapshot");
  else
    throw UserError("killable_stream: expected ram, spill, stream or snapshot, received " + kind);
  return data.shuffle(100)
      .map_random(changed, parallel)
      .batch(3)
      .prefetch(AUTOTUNE)
      .with_options({.memory = "16MiB", .threads = 3, .seed = 5});
}

struct Record {
  char position[32];
  uint64_t element;
};
static_assert(sizeof(Record) == 40);

// All whole records; what was torn off is cut.
std::vector<Record> read_records(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<Record> records;
  Record record;
  while (in.read(reinterpret_cast<char*>(&record), sizeof(record))) records.push_back(record);
  in.close();
  if (truncate(path.c_str(), static_cast<off_t>(records.size() * sizeof(Record))) != 0 &&
      !records.empty())
    throw BackendError("killable_stream: cannot cut " + path);
  return records;
}

int run(const std::string& folder, uint64_t epochs, const std::string& kind) {
  const std::string path = folder + "/records";
  DatasetIterator iterator = data_of(kind, folder).iterate();
  const std::vector<Record> before = read_records(path);
  if (!before.empty()) iterator.restore(std::string(before.back().position, 32));
  const int log = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  for (uint64_t epoch = iterator.epoch(); epoch < epochs; ++epoch) {
    if (epoch != iterator.epoch()) iterator.start(epoch);
    for (Element batch; iterator.next(batch);) {
      Record record;
      std::memcpy(record.position, iterator.save().data(), 32);
      record.element = xxh3(batch[0].data(), static_cast<size_t>(batch[0].meta().bytes()));
      if (write(log, &record, sizeof(record)) != sizeof(record)) return 1;
      usleep(200);  // training
    }
  }
  close(log);
  Xxh3 all;
  std::ofstream csv(folder + "/log.csv");
  const std::vector<Record> records = read_records(path);
  for (size_t i = 0; i < records.size(); ++i) {
    csv << i << "," << hex16(records[i].element) << "\n";
    all.update(hex16(records[i].element));
  }
  std::printf("%s elements %zu\n", hex16(all.digest()).c_str(), records.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".", argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 3,
               argc > 3 ? argv[3] : "ram");
  } catch (const Error& error) {
    std::fprintf(stderr, "killable_stream: %s\n", error.what());
    return error.exit_code();
  }
}
