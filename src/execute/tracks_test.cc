// What kernels are told of the addresses of a loop's slices is true in every trip, and as much as
// can be said. The device of these tests holds whoever runs its kernels to it.
#include "execute/tracks.h"

#include <gtest/gtest.h>

#include <numeric>

#include "model/layers.h"
#include "plan/bands.h"
#include "plan/passes.h"
#include "tests/fake_device.h"
#include "tests/graph_run.h"
#include "tests/model_run.h"
#include "train/step_trace.h"

namespace pl::test::tracks_test {
namespace {

Graph trace(const Shape& image, int64_t batch, Dtype data, const char* loss,
            StepKind kind = StepKind::train) {
  const Network network = chain(image, {Conv2D(4, 3, {.padding = "same", .activation = "relu"}),
                                        MaxPooling2D(2), Conv2D(3, 3, {.padding = "same"})});
  const Compiled compiled{optimizer_from_name("sgd"), loss_from_name(loss), {}, Dtype::float32};
  const Meta y = *target_meta(compiled.loss, network.output_shapes()[0], Dtype::float32);
  Graph graph =
      trace_step(network, compiled, {kind, batch}, {{{data, image}}, {y}, 1.0 / 255, false});
  run_passes(graph);
  return graph;
}

Graph in_bands(const Graph& graph, int64_t count) {
  const ImageStep step = mark_images(graph);
  return split_bands(step, find_bands(step, count).value());
}

std::vector<Bytes> all_of(const Alignments& node) {
  std::vector<Bytes> all = node.in;
  all.insert(all.end(), node.out.begin(), node.out.end());
  return all;
}

// Every trip's offset of every operand is a multiple of what was said, and of nothing larger.
int expect_exact(const Graph& graph) {
  const Loop& loop = graph.loops.at(0);
  const std::vector<Alignments> said = alignments_of(graph, loop);
  int apart = 0;
  for (size_t n = 0; n < loop.body.nodes.size(); ++n) {
    const Node& node = loop.body.nodes[n];
    std::vector<ValueId> values = node.in;
    values.insert(values.end(), node.out.begin(), node.out.end());
    std::vector<Bytes> found;
    for (ValueId value : values) {
      Bytes common = kFullAlignment;
      for (const Track& track : tracks_of(graph, loop))
        if (track.value == value)
          for (Bytes at : track.at) common = std::gcd(common, at);
      found.push_back(common);
    }
    const bool full = std::all_of(found.begin(), found.end(),
                                  [](Bytes bytes) { return bytes == kFullAlignment; });
    EXPECT_EQ(all_of(said[n]), full ? std::vector<Bytes>{} : found) << node.op;
    apart += !full;
  }
  return apart;
}

// A step in one of its ways gives the numbers of the whole one. -1: there were no such calls.
void expect_same_step(const Graph& whole, const Graph& split, int64_t batch, bool misaligned) {
  FakeDevice device;
  PlannedRun truth(prepare_as_is(whole, device));
  EXPECT_EQ(device.misaligned, 0);
  PlannedRun run(prepare_as_is(split, device));
  EXPECT_EQ(device.misaligned > 0, misaligned);
  for (PlannedRun* each : {&truth, &run}) {
    fill_model(*each);
    fill_batch(*each, batch, 1);
    each->step();
  }
  EXPECT_LE(distance(truth, run), 1e-4);
}

TEST(Tracks, BandsOfBytesBeginAnywhere) {
  const Graph whole = trace({38, 10, 3}, 1, Dtype::uint8, "mean_squared_error");
  for (int64_t count : {2, 3}) {
    const Graph bands = in_bands(whole, count);
    EXPECT_GT(expect_exact(bands), 0);
    expect_same_step(whole, bands, 1, true);
  }
}

TEST(Tracks, BandsOfOddRowsOfFloats) {
  const Graph whole = trace({38, 10, 1}, 2, Dtype::float32, "mean_squared_error");
  const Graph bands = in_bands(whole, 3);
  EXPECT_GT(expect_exact(bands), 0);
  expect_same_step(whole, bands, 2, true);
}

TEST(Tracks, PartsOfOneOddImage) {
  const Graph whole = trace({13, 13, 1}, 8, Dtype::float32, "mean_squared_error");
  const Graph parts = split_batch(whole, 8);
  EXPECT_GT(expect_exact(parts), 0);
  expect_same_step(whole, parts, 8, true);
}

TEST(Tracks, PartsThatAreMultiplesAreAlignedInFull) {
  const Graph whole = trace({8, 8, 4}, 8, Dtype::float32, "mean_squared_error");
  const Graph parts = split_batch(whole, 8);
  EXPECT_EQ(expect_exact(parts), 0);
  expect_same_step(whole, parts, 8, false);
}

// Results that fill up part by part are slices too.
TEST(Tracks, StackedResults) {
  const Graph whole = trace({6, 6, 1}, 4, Dtype::float32, "mean_squared_error", StepKind::predict);
  const Graph parts = split_batch(whole, 4);  // of 3 x 3 x 3 floats
  const Loop& loop = parts.loops.at(0);
  ASSERT_FALSE(loop.stacked.empty());
  Bytes least = kFullAlignment;
  for (const Alignments& node : alignments_of(parts, loop))
    for (Bytes bytes : node.out) least = std::min(least, bytes);
  EXPECT_EQ(least, 4);
  expect_same_step(whole, parts, 4, true);
}

// Calls that differ in their slices alone are different kernels, and are told what is theirs.
TEST(Tracks, AKernelIsPreparedForItsSlices) {
  FakeDevice device;
  KernelBook book(device);
  const Graph parts = split_batch(trace({13, 13, 1}, 8, Dtype::float32, "mse"), 8);
  book.facts(parts);
  const int once = device.misaligned;
  EXPECT_GT(once, 0);
  book.kernels(parts);
  EXPECT_EQ(device.misaligned, once) << "kept";
  std::map<std::string, KernelBook::Known> known = book.known_calls();
  int named = 0;
  for (const auto& [name, call] : known) named += name.find('@') != std::string::npos;
  EXPECT_EQ(named, once);
}

}  // namespace
}  // namespace pl::test::tracks_test
