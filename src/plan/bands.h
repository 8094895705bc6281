// Bands: one sample worked off in runs of image rows. A band has its own rows and, around them, the
// rows that they depend on (its halo); all bands have one size, so that one body serves them all.
//
// Two kinds of value have image rows. An *image* is right in the rows that depend on nothing
// outside of the band: at the image's true edges a layer pads as it always does, at a band's inner
// edges its padding is false and spoils rows of the halo. An *owned* value is zero but for what
// comes from the band's own rows, such as every gradient: it starts at an own_rows node and goes
// through ops that are linear in it. Sums over rows take owned values only; their terms over all
// bands add up to the sum over the whole image.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace pl {

enum class BandRole : uint8_t {
  outside,  // the same for every band and sample: variables, constants
  sample,   // of one sample, without image rows: the same for all its bands
  image,
  owned,
  part,   // of one sample, without image rows: a term of a sum over its bands
  total,  // a term of a sum over all bands of all samples
  after,  // made from such sums
};

// Rows of the first input for each row of a value, in lowest terms; 0 / 1: not known.
struct Ratio {
  int64_t num = 0, den = 1;
  bool operator==(const Ratio&) const = default;
};

// A step with its own_rows nodes in place, and what each of its values is.
struct ImageStep {
  Graph graph;
  std::vector<BandRole> role;
  std::vector<Ratio> pitch;     // of images and owned values
  std::vector<int64_t> height;  // their rows in the whole image
  std::vector<ValueId> kept;    // images that the step keeps
  ValueId params = -1;          // the input of step parameters
  int64_t rows = 0;             // of the first input's images
  int64_t align = 1;            // a band begins at multiples of it: every value at a row of its own
};

// Whether an input has images (batch, height, width, ...).
bool has_images(const Graph& graph);

// Throws UserError naming the layer where image rows mix, or where there is no image.
ImageStep mark_images(const Graph& graph);

// Rows that every band of `count` lacks (`shift`, of the first input), where each begins, and the
// first row that each answers for; all counted in rows of the first input.
struct Bands {
  int64_t shift = 0;
  std::vector<int64_t> starts, own;
  int64_t count() const { return static_cast<int64_t>(starts.size()); }
};

// Nothing where `count` bands have no room for rows of their own.
std::optional<Bands> find_bands(const ImageStep& step, int64_t count);

// Numbers of bands worth planning, ascending, from 2 up; empty where one is as good as any.
std::vector<int64_t> band_choices(const ImageStep& step);

// The step with each sample in the bands given. `step` must outlive nothing but the call.
Graph split_bands(const ImageStep& step, const Bands& bands);

}  // namespace pl
