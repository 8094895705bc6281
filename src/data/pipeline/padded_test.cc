// padded_batch and bucket_by_sequence_length, against tf.data (tests/golden/bucket_batches.py).
#include <gtest/gtest.h>

#include "base/json.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::padded_test {
namespace {

int64_t length_of(int64_t i) { return (i * 7 + i * i * 3) % 11 + 1; }

// Element i is i, length_of(i) times; those below `most` long.
Dataset rows(int64_t most) {
  return Dataset::from_generator(
      [most] {
        return [most, i = int64_t{0}]() mutable -> std::optional<Element> {
          while (i < 23 && length_of(i) >= most) ++i;
          if (i == 23) return {};
          Tensor row(Meta{Dtype::int64, Shape{length_of(i)}});
          std::fill_n(row.data_as<int64_t>(), length_of(i), i);
          ++i;
          return Element(1, row);
        };
      },
      {{{"x", Dtype::int64, Shape{kUnknown}}}}, {.max_bytes = 4096});
}

int64_t length(const Element& in) { return in[0].shape()[0]; }

Dataset bucketed(int64_t most, const BucketOptions& options) {
  return rows(most).bucket_by_sequence_length(length, {3, 5, 9}, {3, 2, 4, 2}, options);
}

Json as_json(const Element& batch) {
  Json list = Json::array();
  const int64_t width = batch[0].shape()[1];
  for (int64_t r = 0; r < batch[0].shape()[0]; ++r) {
    Json row = Json::array();
    for (int64_t k = 0; k < width; ++k) row.push(batch[0].data_as<int64_t>()[r * width + k]);
    list.push(std::move(row));
  }
  return list;
}

Json all(DatasetIterator iterator) {
  Json list = Json::array();
  for (Element batch; iterator.next(batch);) list.push(as_json(batch));
  return list;
}

const Json& answer(const char* name) {
  static const Json json =
      parse_json(test::read_bytes(::pl::test::golden("bucket_batches.json")), "answers");
  return json.at(name, "answers");
}

TEST(Buckets, AsTensorFlowMakesThem) {
  EXPECT_EQ(all(bucketed(99, {.padding_values = {-1}}).iterate()), answer("plain"));
  EXPECT_EQ(all(bucketed(99, {.drop_remainder = true}).iterate()), answer("drop"));
  EXPECT_EQ(all(bucketed(9, {.padding_values = {-1}, .pad_to_bucket_boundary = true}).iterate()),
            answer("boundary"));
}

TEST(Buckets, GoOnExactlyWhereTheyWere) {
  const Dataset data = bucketed(99, {.padding_values = {-1}});
  const Json::Array& whole = answer("plain").as_array("plain");
  for (size_t at = 0; at <= whole.size(); ++at) {
    DatasetIterator first = data.iterate(), second = data.iterate();
    EXPECT_EQ(first.advance(static_cast<int64_t>(at)), static_cast<int64_t>(at));
    second.restore(first.save());
    EXPECT_EQ(all(std::move(second)),
              Json(Json::Array(whole.begin() + static_cast<long>(at), whole.end())));
  }
}

TEST(Buckets, TheFloorIsTheSumOfTheBuckets) {
  // Elements of a page; 3 + 2 + 4 + 2 in four buckets, of which each is one short of a batch, the
  // batch that is made, the element that comes, and the consumer's batch.
  const Dataset data = bucketed(99, {});
  EXPECT_EQ(data.minimum_bytes(), Bytes{4096} * ((2 + 1 + 3 + 1) + 4 + 1 + 4));
  const Dataset least = data.with_options({.memory = data.minimum_bytes()});
  DatasetIterator iterator = least.iterate();
  for (Element batch; iterator.next(batch);) {
  }
  EXPECT_LE(iterator.report().ledger.payload_peak, data.minimum_bytes());
  EXPECT_GT(iterator.report().stages.back().held_peak, 4);
  EXPECT_LE(iterator.report().stages.back().held_peak, 8);
  // Padded to a boundary the batches have known sizes, and the last bucket is none.
  EXPECT_EQ(bucketed(9, {.pad_to_bucket_boundary = true}).minimum_bytes(),
            Bytes{4096} * ((2 + 1 + 3) + 1 + 1 + 1));
}

TEST(Buckets, WhatIsWrongIsSaid) {
  test::expect_data_error([] { all(bucketed(99, {.pad_to_bucket_boundary = true}).iterate()); },
                          "expected a length from 0 to 8, received 11");
  test::expect_data_error([] { all(bucketed(99, {.no_padding = true}).iterate()); },
                          "expected rows of one shape with no_padding");
  EXPECT_THROW(rows(9).bucket_by_sequence_length(length, {3, 3}, {1, 1, 1}), UserError);
  EXPECT_THROW(rows(9).bucket_by_sequence_length(length, {3, 5}, {1, 1}), UserError);
  EXPECT_THROW(rows(9).bucket_by_sequence_length(length, {}, {1}), UserError);
  EXPECT_THROW(rows(9).bucket_by_sequence_length(length, {3}, {1, 0}), UserError);
}

}  // namespace
}  // namespace pl::padded_test
