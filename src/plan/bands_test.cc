// Bands: how high they are, what cannot be cut into them, and faults that the validator finds.
#include "plan/bands.h"

#include <gtest/gtest.h>

#include "op/functions.h"
#include "op/recorder.h"
#include "plan/validate_bands.h"
#include "tests/graph_run.h"

namespace pl::test::bands_test {
namespace {

// x (1, rows, 4, 2) through `layers` to a loss over rows, and the gradient of w for it.
struct Net {
  Recorder r;
  Tensor x, w, params;
  explicit Net(int64_t rows, int64_t batch = 1) {
    w = r.variable("w", {Dtype::float64, Shape{3, 3, 2, 2}}, Category::parameters);
    x = r.input("x", {Dtype::float64, Shape{batch, rows, 4, 2}}, true);
    params = r.input("step_params", step_params_meta(), false);
  }
  Tensor conv(const Tensor& in, Conv2dOptions options = {.padding = "same"}) const {
    return conv2d(in, w, options);
  }
  Graph sum(const Tensor& y) {
    PathScope path(&r, "loss");
    r.keep(reduce_sum(reduce_sum(y, {1, 2, 3})), "loss");
    return r.take();
  }
};

Bands bands_of(const Graph& graph, int64_t count) {
  const auto bands = find_bands(mark_images(graph), count);
  return bands ? *bands : Bands{};
}

TEST(Bands, HaveTheRowsThatTheirOwnDependOn) {
  Net net(32);
  const Bands bands = bands_of(net.sum(relu(net.conv(relu(net.conv(net.x))))), 4);
  // Two rows around: 4 bands of (32 + 3 * 4) / 4 = 11 rows.
  EXPECT_EQ(bands.shift, 21);
  EXPECT_EQ(bands.starts, (std::vector<int64_t>{0, 7, 14, 21}));
  EXPECT_EQ(bands.own, (std::vector<int64_t>{0, 9, 16, 23}));
}

TEST(Bands, BeginWhereEveryStrideHasARow) {
  Net net(64);
  const Tensor a = max_pool(net.conv(net.x, {.strides = {2, 2}, .padding = "same"}),
                            {.pool_size = {2, 2}, .strides = {2, 2}});
  const ImageStep step = mark_images(net.sum(net.conv(a)));
  EXPECT_EQ(step.align, 4);
  const Bands bands = find_bands(step, 3).value();
  for (int64_t start : bands.starts) EXPECT_EQ(start % 4, 0);
  EXPECT_EQ(bands.shift % 4, 0);
}

TEST(Bands, AreAsManyAsServe) {
  Net net(256);
  const ImageStep step = mark_images(net.sum(net.conv(net.conv(net.x))));
  const std::vector<int64_t> choices = band_choices(step);
  ASSERT_GE(choices.size(), 5u);
  EXPECT_EQ(choices.front(), 2);
  EXPECT_TRUE(std::is_sorted(choices.begin(), choices.end()));
  int64_t last = 0;
  for (int64_t count : choices) {
    const int64_t shift = find_bands(step, count).value().shift;
    EXPECT_GT(shift, last);
    last = shift;
  }
  EXPECT_FALSE(find_bands(step, 254).has_value());
  EXPECT_FALSE(find_bands(step, int64_t{1} << 30).has_value());  // at once
  Net small(3);
  EXPECT_TRUE(band_choices(mark_images(small.sum(small.conv(small.conv(small.x))))).empty());
}

TEST(Bands, RefuseWhatMixesRowsByName) {
  auto refusal = [](auto make) {
    Net net(8);
    const Graph graph = make(net);
    return error_of<UserError>([&] { mark_images(graph); });
  };
  const auto joins = refusal([](Net& net) {
    PathScope path(&net.r, "flatten");
    return net.sum(reshape(net.conv(net.x), {1, 16, 2, 2}));
  });
  EXPECT_NE(joins.find("[split] flatten: reshape mixes the rows"), std::string::npos) << joins;
  const auto pools = refusal([](Net& net) {
    PathScope path(&net.r, "global_pool");
    const Tensor mean = reduce_sum(net.conv(net.x), {1, 2});
    PathScope head(&net.r, "head");
    net.r.keep(reduce_sum(relu(mean)), "loss");
    return net.r.take();
  });
  EXPECT_NE(pools.find("head: relu needs what is summed over all rows"), std::string::npos)
      << pools;
  const auto maximum = refusal([](Net& net) {
    PathScope path(&net.r, "top");
    net.r.keep(reduce_sum(reduce_max(net.x, {1})), "loss");
    return net.r.take();
  });
  EXPECT_NE(maximum.find("top: reduce_max mixes"), std::string::npos) << maximum;
  const auto kept = refusal([](Net& net) {
    net.r.keep(reduce_sum(net.conv(net.x), {1}), "sums");
    return net.r.take();
  });
  EXPECT_NE(kept.find("no image"), std::string::npos) << kept;
}

// Two convolutions and a dropout, and what sums their gradients; three bands of 24 rows.
struct Planted {
  Graph graph;
  Planted() {
    Net net(24);
    const Tensor a = dropout(relu(net.conv(net.x)), net.params, 0.5, 3), b = net.conv(a);
    const Tensor db = multiply(b, broadcast_to(reduce_sum(net.w), b.shape(), true));
    net.r.keep(conv2d_weight_gradient(a, db, net.w.shape(), false, {.padding = "same"}).dw, "dw");
    const Graph whole = net.sum(b);
    const ImageStep step = mark_images(whole);
    graph = split_bands(step, find_bands(step, 3).value());
  }
  Loop& loop() { return graph.loops[0]; }
  Node& node(const char* op, int which = 0) {
    for (Node& node : loop().body.nodes)
      if (node.op == op && which-- == 0) return node;
    throw InternalError("no such node");
  }
  std::string fault() const {
    return error_of<InternalError>([&] { validate_bands(graph, graph.loops[0]); });
  }
  void expect(const char* text) const {
    const std::string found = fault();
    EXPECT_NE(found.find(text), std::string::npos) << found;
  }
  void change(Node& node, const char* name, size_t at, int64_t by) {
    std::vector<int64_t> list = node.attrs.list(name);
    list.at(at) += by;
    node.attrs.set(name, list);
  }
};

TEST(ValidateBands, PassesWhatIsRight) { EXPECT_EQ(Planted().fault(), ""); }

TEST(ValidateBands, FindsAHaloThatIsTooSmall) {
  for (int which : {0, 1}) {
    Planted up, down;
    up.change(up.node("own_rows", which), "own", 1, -1);
    up.expect("the halo is too small");
    down.change(down.node("own_rows", which), "own", 2, 1);
    down.expect("the halo is too small");
  }
}

TEST(ValidateBands, FindsRowsThatNobodyOrTwoBandsAnswerFor) {
  Planted first, last, order;
  first.change(first.node("own_rows"), "own", 0, 1);
  first.expect("own rows do not make up the image");
  last.change(last.node("own_rows"), "own", 3, -1);
  last.expect("own rows do not make up the image");
  order.change(order.node("own_rows"), "own", 2, -12);
  order.expect("own rows do not make up the image");
}

TEST(ValidateBands, FindsASliceOutsideOfItsImage) {
  Planted above, below, shifted, short_of;
  above.loop().sliced[0].starts[0] = -1;
  above.expect("a slice lies outside of its image");
  below.loop().sliced[0].starts[2] += 1;
  below.expect("a slice lies outside of its image");
  shifted.loop().sliced[0].starts[1] += 1;
  shifted.expect("rows");
  short_of.loop().sliced[0].starts[2] -= 1;
  short_of.expect("the last band does not end with the image");
}

TEST(ValidateBands, FindsASumOverTheHalo) {
  Planted planted;
  Node& own = planted.node("own_rows");
  const ValueId masked = own.out[0], image = own.in[0];
  for (Node& node : planted.loop().body.nodes)
    for (ValueId& in : node.in)
      if (in == masked) in = image;
  planted.expect("a sum counts rows that are not the band's own");
}

TEST(ValidateBands, FindsAMaskOfOtherRows) {
  Planted planted;
  planted.change(planted.node("dropout"), "starts", 1, 1);
  planted.expect("a mask is that of other rows");
}

TEST(ValidateBands, FindsTripsThatAreNoBands) {
  Planted planted;
  planted.loop().trips = 4;
  planted.expect("the trips are no bands");
}

}  // namespace
}  // namespace pl::test::bands_test
