// Graph rewrites that hold at every budget, in one visible list (passes.cc). Each leaves the bits
// of every kept value and variable as they were, but for loss-head, which cuts sums over rows, and
// fold-padding, with which the library may sum a convolution in another order.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "tensor/device.h"

namespace pl {

struct Pass {
  const char* name;
  const char* summary;
  void (*run)(Graph&);
  bool device = false;  // pays on a GPU alone, and sums in another order
};

struct PassOptions {
  std::set<std::string> off;                                             // names of passes to skip
  bool device = false;                                                   // the step is for a GPU
  std::function<void(const Pass&, const Graph&, double ms)> after = {};  // dump or timing
};

PassOptions passes_for(DeviceKind device);

const std::vector<Pass>& passes();

// Runs all passes in order and checks the graph after each.
void run_passes(Graph& graph, const PassOptions& options = {});

namespace pass {
void drop_dead_code(Graph&);
void share_common_subexpressions(Graph&);
void block_loss_head(Graph&);
void fold_padding(Graph&);
void move_relu_behind_pool(Graph&);
void store_relu_bits(Graph&);
void fuse_batch_norm(Graph&);
void drop_norm_bias(Graph&);
void fuse_relu(Graph&);
void fuse_conv_pool(Graph&);
void add_gradient_onto(Graph&);
void fuse_product(Graph&);
void narrow_bias(Graph&);
void keep_attention_apart(Graph&);
void update_early(Graph&);
void fuse_pointwise(Graph&);
}  // namespace pass

}  // namespace pl
