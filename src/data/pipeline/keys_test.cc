// What a position and a snapshot are known by: every option that decides elements, and no other.
#include <gtest/gtest.h>

#include <set>

#include "data/image/encode_png.h"
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/testing.h"
#include "data/pipeline/text_stages.h"
#include "tests/data_files.h"

namespace pl::keys_test {
namespace {

using test::TempFolder;
using test::write_bytes;

// The same pipeline twice, with one option changed.
struct Pair {
  std::string what;
  Dataset a, b;
};
using Pairs = std::vector<Pair>;

uint64_t position_key(const Dataset& data) {
  return fingerprint(*data.stage(), data.options().seed);
}
uint64_t snapshot_key(const Dataset& data) {
  return fingerprint(*data.stage(), data.options().seed, true);
}

Dataset stream() {
  return Dataset::from_generator([] { return []() -> std::optional<Element> { return {}; }; },
                                 {{{"x", Dtype::int64, Shape{kUnknown}}}}, {.max_bytes = 4096});
}

Dataset vectors(int64_t salt = 0) {
  Tensor x(Meta{Dtype::int64, Shape{6, 2}});
  for (int64_t i = 0; i < 12; ++i) x.data_as<int64_t>()[i] = i + salt;
  return Dataset::from_tensor_slices(Tensors{x});
}

Element same(const Element& in) { return in; }
Element same_random(const Element& in, uint64_t) { return in; }
int64_t length(const Element& in) { return in[0].shape().elements(); }
Dataset inner(const Element&) { return Dataset::range(3); }

Pairs order_and_number() {
  const Dataset s = stream(), r = Dataset::range(9);
  const auto seed = [](uint64_t n) { return ShuffleOptions{.seed = n}; };
  return {
      {"with_options seed", r.shuffle().with_options({.seed = 1}),
       r.shuffle().with_options({.seed = 2})},
      {"range begin", Dataset::range(0, 4), Dataset::range(1, 5)},
      {"range step", Dataset::range(0, 4, 2), Dataset::range(0, 2, 1)},
      {"shuffle seed", r.shuffle(seed(1)), r.shuffle(seed(2))},
      {"shuffle reshuffle", r.shuffle(seed(1)),
       r.shuffle({.seed = 1, .reshuffle_each_iteration = false})},
      {"stream shuffle size", s.shuffle(4), s.shuffle(5)},
      {"stream shuffle bytes", s.shuffle({.bytes = 65536}), s.shuffle({.bytes = 65537})},
      {"stream shuffle seed", s.shuffle(4, seed(1)), s.shuffle(4, seed(2))},
      {"stream shuffle reshuffle", s.shuffle(4, seed(1)),
       s.shuffle(4, {.seed = 1, .reshuffle_each_iteration = false})},
      {"repeat", s.repeat(2), s.repeat(3)},
      {"take", s.take(2), s.take(3)},
      {"skip", s.skip(2), s.skip(3)},
      {"shard index", s.shard(3, 0), s.shard(3, 1)},
      {"shard number", s.shard(3, 0), s.shard(4, 0)},
      {"enumerate", s.enumerate(0), s.enumerate(7)},
      {"assert_cardinality", s.assert_cardinality(2), s.assert_cardinality(3)},
      {"concatenate", s.concatenate(s.take(1)), s.concatenate(s.take(2))},
      {"zip", Dataset::zip({s, s.take(1)}), Dataset::zip({s, s.take(2)})},
      {"sample weights", Dataset::sample_from_datasets({s, s}, {.weights = {1, 2}}),
       Dataset::sample_from_datasets({s, s}, {.weights = {1, 2.0000000001}})},
      {"sample seed", Dataset::sample_from_datasets({s, s}, {.seed = 1}),
       Dataset::sample_from_datasets({s, s}, {.seed = 2})},
      {"sample stop", Dataset::sample_from_datasets({s, s}),
       Dataset::sample_from_datasets({s, s}, {.stop_on_empty_dataset = true})},
      {"interleave cycle", s.interleave(inner, {.spec = int64_spec(), .cycle_length = 2}),
       s.interleave(inner, {.spec = int64_spec(), .cycle_length = 3})},
      {"interleave block", s.interleave(inner, {.spec = int64_spec(), .cycle_length = 2}),
       s.interleave(inner, {.spec = int64_spec(), .cycle_length = 2, .block_length = 2})},
      {"flat_map", s.flat_map(inner, {.spec = int64_spec()}),
       s.interleave(inner, {.spec = int64_spec(), .cycle_length = 2})},
      {"filter", s, s.filter([](const Element&) { return true; })},
      {"ignore_errors", s, s.ignore_errors()},
  };
}

Pairs groups_and_functions() {
  const Dataset s = stream(), v = vectors();
  const std::vector<int64_t> bounds{4, 8}, sizes{2, 2, 2};
  const auto buckets = [&](const BucketOptions& options) {
    return s.bucket_by_sequence_length(length, bounds, sizes, options);
  };
  const auto map = [&](const char* key) {
    return s.map(same, {.spec = s.element_spec(), .key = key});
  };
  return {
      {"batch size", s.batch(2), s.batch(3)},
      {"batch drop", s.batch(2), s.batch(2, true)},
      {"rebatch size", v.batch(2).rebatch(3), v.batch(2).rebatch(4)},
      {"padded size", s.padded_batch(2), s.padded_batch(3)},
      {"padded drop", s.padded_batch(2), s.padded_batch(2, {.drop_remainder = true})},
      {"padded shape", s.padded_batch(2), s.padded_batch(2, {.padded_shapes = {Shape{9}}})},
      {"padded value", s.padded_batch(2), s.padded_batch(2, {.padding_values = {7}})},
      {"bucket boundaries", s.bucket_by_sequence_length(length, {4, 8}, sizes),
       s.bucket_by_sequence_length(length, {4, 9}, sizes)},
      {"bucket sizes", s.bucket_by_sequence_length(length, bounds, {2, 2, 2}),
       s.bucket_by_sequence_length(length, bounds, {2, 2, 3})},
      {"bucket value", buckets({}), buckets({.padding_values = {7}})},
      {"bucket shape", buckets({}), buckets({.padded_shapes = {Shape{9}}})},
      {"bucket boundary", buckets({}), buckets({.pad_to_bucket_boundary = true})},
      {"bucket no padding", buckets({}), buckets({.no_padding = true})},
      {"bucket drop", buckets({}), buckets({.drop_remainder = true})},
      {"window size", s.window(2, {.shift = 1}), s.window(3, {.shift = 1})},
      {"window shift", s.window(2, {.shift = 1}), s.window(2, {.shift = 2})},
      {"window stride", s.window(2, {.shift = 1}), s.window(2, {.shift = 1, .stride = 2})},
      {"unbatch", v.batch(2), v.batch(2).unbatch()},
      {"map key", map("a"), map("b")},
      {"map name", v.map(same, {.name = "one"}), v.map(same, {.name = "two"})},
      {"map random", v.map(same), v.map_random(same_random)},
      {"cache", s, s.cache()},
      {"snapshot key", s.snapshot("f", {.key = "a"}), s.snapshot("f", {.key = "b"})},
      {"generator key",
       Dataset::from_generator([] { return [] { return std::optional<Element>(); }; }, int64_spec(),
                               {.key = "a"}),
       Dataset::from_generator([] { return [] { return std::optional<Element>(); }; }, int64_spec(),
                               {.key = "b"})},
      {"reader key",
       Dataset::from_reader(2, [](int64_t i) { return Element{scalar64(i)}; }, int64_spec(),
                            {.key = "a"}),
       Dataset::from_reader(2, [](int64_t i) { return Element{scalar64(i)}; }, int64_spec(),
                            {.key = "b"})},
  };
}

Pairs text_and_files(const TempFolder& folder) {
  const std::string csv = write_bytes(folder / "a.csv", "1;2\n3;4\n");
  const std::vector<std::string> bin{write_bytes(folder / "a.bin", std::string(40, 'x'))};
  const std::vector<std::string> cifar{write_bytes(folder / "c.bin", std::string(3074, '\1'))};
  const std::vector<std::string> lines{write_bytes(folder / "a.txt", "ab\n")};
  const std::string rules = "#version: 0.2\n";
  const auto bpe = [&](const char* name, const char* merges) {
    return std::make_shared<const BpeTokenizer>(
        BpeTokenizer::load(write_bytes(folder / name, rules + merges)));
  };
  const auto letters = [](const char* text) {
    return std::make_shared<const CharVocabulary>(CharVocabulary::of(text));
  };
  const std::vector<FieldSpec> columns{{"c0", Dtype::int64, Shape()}};
  const auto table = [&](const CsvOptions& options) {
    return csv_dataset({csv}, columns, options);
  };
  const Dataset t = text_line_dataset(lines), tokens = byte_tokens(t);
  const auto fixed = [&](Bytes header, Bytes footer) {
    return fixed_length_record_dataset(bin, 8, {.header_bytes = header, .footer_bytes = footer});
  };
  const auto synthetic = [](int64_t classes, uint64_t seed) {
    return synthetic_dataset(
        {.x = {Dtype::float32, Shape{2}}, .classes = classes, .samples = 4, .seed = seed});
  };
  const Dataset two(Dataset::from_tensors(
      {Tensor(Meta{Dtype::uint8, Shape{3}}), Tensor(Meta{Dtype::uint8, Shape{3}})}));
  return {
      {"csv delimiter", table({.delimiter = ';', .header = false}),
       table({.delimiter = ',', .header = false})},
      {"csv header", table({.header = false}), table({.header = true})},
      {"csv empty lines", table({.header = false}),
       table({.header = false, .skip_empty_lines = false})},
      {"records' edges", fixed(8, 0), fixed(0, 8)},
      {"cifar kind", cifar_dataset(cifar, CifarKind::cifar100),
       cifar_dataset(cifar, CifarKind::cifar100_coarse)},
      {"synthetic classes", synthetic(2, 0), synthetic(3, 0)},
      {"synthetic seed", synthetic(2, 0), synthetic(2, 1)},
      {"token field", byte_tokens(two, {.field = "x"}), byte_tokens(two, {.field = "y"})},
      {"token append", byte_tokens(t, {.append = {1}}), byte_tokens(t, {.append = {2}})},
      {"characters", char_tokens(t, letters("ab")), char_tokens(t, letters("ac"))},
      {"unknown characters", char_tokens(t, letters("ab"), {}, 0),
       char_tokens(t, letters("ab"), {}, 1)},
      {"pairs", bpe_tokens(t, bpe("m1", "a b\nc d\n")), bpe_tokens(t, bpe("m2", "c d\na b\n"))},
      {"pack length", pack_sequences(tokens, 4), pack_sequences(tokens, 5)},
      {"pack next token", pack_sequences(tokens, 4),
       pack_sequences(tokens, 4, {.next_token = true})},
      {"pack padding", pack_sequences(tokens, 4, {.drop_remainder = false}),
       pack_sequences(tokens, 4, {.drop_remainder = false, .padding = 1})},
      {"pack drop", pack_sequences(tokens, 4),
       pack_sequences(tokens, 4, {.drop_remainder = false})},
  };
}

Pairs images(const TempFolder& folder) {
  const std::vector<uint8_t> pixels(12, 9);
  std::filesystem::create_directories(folder / "photos/a");
  const std::string png = encode_png(pixels.data(), {2, 2}, 3);
  write_bytes(folder / "photos/a/0.png", png);
  const auto photos = [&](ImageDatasetOptions options) {
    options.batch_size = 0;
    return image_dataset_from_directory(folder / "photos", options);
  };
  const auto crop = [](double least) {
    return std::optional<ResizedCropOptions>({.scale = {least, 1.0}});
  };
  Tensor bytes(Meta{Dtype::uint8, Shape{static_cast<Dim>(png.size())}});
  const Dataset files(Dataset::from_tensors({bytes, bytes}));
  const auto decoded = [&](const char* field, const DecodeOptions& decode,
                           const std::optional<ResizedCropOptions>& part = {}) {
    return decode_images(files, field, decode, {}, part);
  };
  return {
      {"photos' size", photos({.image_size = {4, 4}}), photos({.image_size = {4, 5}})},
      {"photos' antialias", photos({}), photos({.antialias = false})},
      {"photos' crop", photos({}), photos({.random_crop = crop(0.1)})},
      {"photos' crops", photos({.random_crop = crop(0.1)}), photos({.random_crop = crop(0.2)})},
      {"decode field", decoded("x", {.size = {4, 4}}), decoded("y", {.size = {4, 4}})},
      {"decode size", decoded("x", {.size = {4, 4}}), decoded("x", {.size = {4, 5}})},
      {"decode antialias", decoded("x", {.size = {4, 4}}),
       decoded("x", {.size = {4, 4}, .antialias = false})},
      {"decode crop", decoded("x", {.size = {4, 4}}, crop(0.1)),
       decoded("x", {.size = {4, 4}}, crop(0.2))},
  };
}

TEST(DatasetKeys, EveryOptionThatDecidesElementsCounts) {
  const TempFolder folder;
  std::set<std::string> kinds;
  for (const Pairs& pairs :
       {order_and_number(), groups_and_functions(), text_and_files(folder), images(folder)})
    for (const Pair& pair : pairs) {
      EXPECT_NE(position_key(pair.a), position_key(pair.b)) << pair.what;
      EXPECT_NE(snapshot_key(pair.a), snapshot_key(pair.b)) << pair.what;
      EXPECT_EQ(position_key(pair.a), position_key(pair.a)) << pair.what;
      for (const Stage* stage : all_stages(*pair.b.stage())) {
        std::string kind = stage->name();
        kind.resize(kind.find_last_not_of("_0123456789") + 1);
        kinds.insert(kind);
      }
    }
  // Stages that have nothing to decide: prefetch. All others that there are were among them.
  for (const char* kind : {"range",
                           "tensor_slices",
                           "tensors",
                           "generator",
                           "reader",
                           "source",
                           "cifar",
                           "map",
                           "filter",
                           "batch",
                           "padded_batch",
                           "bucket_by_sequence_length",
                           "unbatch",
                           "window",
                           "shuffle",
                           "repeat",
                           "take",
                           "skip",
                           "shard",
                           "concatenate",
                           "zip",
                           "enumerate",
                           "sample_from_datasets",
                           "assert_cardinality",
                           "flat_map",
                           "interleave",
                           "cache",
                           "snapshot",
                           "ignore_errors",
                           "byte_tokens",
                           "char_tokens",
                           "bpe_tokens",
                           "pack_sequences",
                           "decode_image",
                           "decode_images",
                           "fixed_length_record"})
    EXPECT_TRUE(kinds.contains(kind) || kind == std::string("flat_map")) << kind;
}

TEST(DatasetKeys, HowMuchIsDoneAtOnceOrHeldDoesNotCount) {
  const Dataset r = vectors(), s = stream();
  const Pairs pairs{
      {"parallel calls", r.map(same), r.map(same, {.num_parallel_calls = AUTOTUNE})},
      {"scratch", r.map(same), r.map(same, {.max_bytes = "1MiB", .scratch = "2MiB"})},
      {"prefetch", r.prefetch(1), r.prefetch(AUTOTUNE)},
      {"cache bytes", r.cache(), r.cache({.bytes = "1MiB"})},
      {"cache elements", r.cache(), r.cache({.elements = 3})},
      {"budget and threads", r, r.with_options({.memory = "1MiB", .threads = 3})},
      {"padded bound", s.padded_batch(2), s.padded_batch(2, {.max_bytes = "1MiB"})},
      {"inner bytes", s.flat_map(inner, {.spec = int64_spec()}),
       s.flat_map(inner, {.spec = int64_spec(), .inner_bytes = "1MiB"})},
  };
  for (const Pair& pair : pairs) {
    EXPECT_EQ(position_key(pair.a), position_key(pair.b)) << pair.what;
    EXPECT_EQ(snapshot_key(pair.a), snapshot_key(pair.b)) << pair.what;
  }
}

TEST(DatasetKeys, TensorsAndFilesCountForSnapshots) {
  EXPECT_NE(snapshot_key(vectors(0)), snapshot_key(vectors(1)));
  EXPECT_EQ(position_key(vectors(0)), position_key(vectors(1)));
  const TempFolder folder;
  const std::string photo = folder / "a.png";
  const std::vector<uint8_t> pixels(27, 9);
  write_bytes(photo, encode_png(pixels.data(), {2, 2}, 3));
  const auto photos = [&] { return image_dataset_from_directory(folder.path()); };
  const uint64_t before = snapshot_key(photos()), place = position_key(photos());
  // By another name first: a file that is written in place within one tick of the file system's
  // clock keeps its time stamps.
  std::filesystem::rename(write_bytes(folder / "b", encode_png(pixels.data(), {3, 3}, 3)), photo);
  EXPECT_NE(snapshot_key(photos()), before);
  EXPECT_EQ(position_key(photos()), place);
}

}  // namespace
}  // namespace pl::keys_test
