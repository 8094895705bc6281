// TFRecord files, plain and compressed, and the messages in them.
#include "data/tfrecord.h"

#include "data/example.h"
#include "fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return pl::fuzz::expect_data_error([&] {
    const pl::fuzz::InputFile input(data, bytes);
    const pl::File file = pl::File::open(input.path());
    std::string damage;
    for (const pl::RecordPlace& place : pl::index_tfrecords(file, &damage))
      if (place.at < 0 || place.bytes < 0 || place.at > file.size() - place.bytes - 4)
        throw std::logic_error("a place outside of the file");
    pl::TfRecordReader reader(input.path());
    while (const auto length = reader.next()) {
      if (*length > (1 << 24)) return;  // a compressed file may hold what a fuzzer should not
      std::string record(static_cast<size_t>(*length), '\0');
      reader.read(record.data());
      pl::parse_example(record, "record");
    }
  });
}
