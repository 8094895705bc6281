// Operations of cuDNN, through cudnn-frontend. Plans are chosen by the library's heuristic when a
// kernel is prepared, deterministic ones unless the backend is not, and the library's own workspace
// is the kernel's.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cstdio>
#include <mutex>
#include <unordered_map>

#include "backend/cuda/cuda_libraries.h"
#include "backend/cuda/handle_lock.h"
#include "op/cuda/dnn_graph.h"
#include "op/cuda/kernel-inl.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // what the library's loader reads
}

namespace pl::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorOf = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::DataType_t type_of(Dtype dtype) {
  if (dtype == Dtype::bfloat16) return fe::DataType_t::BFLOAT16;
  return dtype == Dtype::float16 ? fe::DataType_t::HALF : fe::DataType_t::FLOAT;
}

cudnnHandle_t handle_of(CudaBackend& backend) {
  auto handle = static_cast<cudnnHandle_t>(backend.dnn());
  static std::once_flag once;
  std::call_once(once, [&] { fe::cudnn_dlhandle = backend.libraries().dnn(); });
  return handle;
}

}  // namespace

// An operation and its plan, which is the same for all calls that describe it in the same words:
// pieces of a batch are those of another batch.
struct DnnPlan {
  fe::graph::Graph graph = {};
  Bytes workspace = 0;
};

struct DnnGraph::State {
  CudaBackend& backend;
  cudnnHandle_t handle;
  std::shared_ptr<DnnPlan> plan = std::make_shared<DnnPlan>();
  std::string words = {};  // all that decides the plan
  std::unordered_map<int64_t, void*> pointers = {};

  fe::graph::Graph& graph() { return plan->graph; }
  void say(const std::string& word) { words += " " + word; }
  void say(const Dims& numbers) {
    for (int64_t number : numbers) say(std::to_string(number));
    words += ";";
  }
  void say(const std::string& what, const DnnHeads& heads) {
    char scale[32];
    std::snprintf(scale, sizeof scale, "%a", static_cast<double>(heads.scale));
    say(what + (heads.causal ? " causal " : " ") + scale);
  }
  void say(const DnnTensor& tensor) {
    say(std::to_string(tensor.id) + std::string(name_of(tensor.dtype)) + "@" +
        std::to_string(tensor.alignment));
    say(tensor.dims);
    say(tensor.strides);
  }

  TensorOf input(const DnnTensor& tensor) {
    pointers[tensor.id] = nullptr;
    say(tensor);
    return graph().tensor(fe::graph::Tensor_attributes()
                              .set_name("t" + std::to_string(tensor.id))
                              .set_uid(tensor.id)
                              .set_dim(tensor.dims)
                              .set_stride(tensor.strides)
                              .set_alignment(tensor.alignment)
                              .set_data_type(type_of(tensor.dtype)));
  }
  void output(const TensorOf& made, const DnnTensor& tensor) {
    pointers[tensor.id] = nullptr;
    say(tensor);
    made->set_output(true)
        .set_uid(tensor.id)
        .set_dim(tensor.dims)
        .set_stride(tensor.strides)
        .set_alignment(tensor.alignment)
        .set_data_type(type_of(tensor.dtype));
  }
};

DnnGraph::DnnGraph(CudaBackend& backend)
    : state_(new State{.backend = backend, .handle = handle_of(backend)}) {
  state_->graph()
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}
DnnGraph::~DnnGraph() = default;

void DnnGraph::attention(const DnnHeads& heads) {
  State& s = *state_;
  s.say("attention", heads);
  const TensorOf q = s.input(heads.q), k = s.input(heads.k), v = s.input(heads.v);
  auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
  options.set_attn_scale(heads.scale).set_causal_mask(heads.causal);
  auto [out, stats] = s.graph().sdpa(q, k, v, options);
  s.output(out, heads.out);
  s.output(stats, heads.lse);
}

void DnnGraph::attention_gradient(const DnnHeads& heads, const DnnTensor& dout, const DnnTensor& dq,
                                  const DnnTensor& dk, const DnnTensor& dv, bool deterministic) {
  State& s = *state_;
  s.say(deterministic ? "deterministic gradient" : "gradient", heads);
  const TensorOf q = s.input(heads.q), k = s.input(heads.k), v = s.input(heads.v);
  const TensorOf out = s.input(heads.out), of_out = s.input(dout), stats = s.input(heads.lse);
  auto options = fe::graph::SDPA_backward_attributes().set_name("attention_gradient");
  options.set_attn_scale(heads.scale).set_causal_mask(heads.causal);
  options.set_deterministic_algorithm(deterministic);
  auto [of_q, of_k, of_v] = s.graph().sdpa_backward(q, k, v, out, of_out, stats, options);
  s.output(of_q, dq);
  s.output(of_k, dk);
  s.output(of_v, dv);
}

void DnnGraph::convolution(ConvKind kind, const DnnTensor& x, const DnnTensor& w,
                           const DnnTensor& y, const DnnWindow& window, const DnnTensor* bias) {
  State& s = *state_;
  s.say("convolution" + std::to_string(static_cast<int>(kind)) + (bias ? " bias" : ""));
  for (const Dims* numbers : {&window.before, &window.after, &window.stride, &window.dilation})
    s.say(*numbers);
  auto with = [&](auto options) {
    return options.set_pre_padding(window.before)
        .set_post_padding(window.after)
        .set_stride(window.stride)
        .set_dilation(window.dilation);
  };
  if (kind == ConvKind::forward) {
    const TensorOf image = s.input(x), filter = s.input(w);
    TensorOf made = s.graph().conv_fprop(image, filter, with(fe::graph::Conv_fprop_attributes()));
    if (bias) {
      made->set_dim(y.dims).set_stride(y.strides);
      const TensorOf added = s.input(*bias);
      made = s.graph().pointwise(
          made, added, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    }
    s.output(made, y);
  } else if (kind == ConvKind::input_gradient) {
    const TensorOf dy = s.input(y), filter = s.input(w);
    s.output(s.graph().conv_dgrad(dy, filter, with(fe::graph::Conv_dgrad_attributes())), x);
  } else {
    const TensorOf dy = s.input(y), image = s.input(x);
    s.output(s.graph().conv_wgrad(dy, image, with(fe::graph::Conv_wgrad_attributes())), w);
  }
}

namespace {

// Plans are built by one thread at a time: they share the handle. A second handle is faster, but
// takes 8 MiB of the device that a bill has or has not, by how the threads met.
bool build_plan(CudaBackend& backend, cudnnHandle_t handle, DnnPlan& plan, bool exact,
                int64_t most_workspace) {
  fe::graph::Graph& graph = plan.graph;
  const std::lock_guard building(backend.dnn_lock());
  if (graph.validate().is_bad() || graph.build_operation_graph(handle).is_bad() ||
      graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad())
    return false;
  graph.deselect_workspace_greater_than(most_workspace);
  std::vector<fe::NumericalNote_t> notes;
  if (backend.deterministic()) notes.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
  if (exact) {
    notes.push_back(fe::NumericalNote_t::TENSOR_CORE);
    notes.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
    notes.push_back(fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION);
    notes.push_back(fe::NumericalNote_t::FFT);
    notes.push_back(fe::NumericalNote_t::WINOGRAD_TILE_13x13);
  }
  if (!notes.empty()) graph.deselect_numeric_notes(notes);
  if (graph.check_support().is_bad()) return false;
  if (graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE).is_bad()) return false;
  return graph.get_workspace_size(plan.workspace).is_good();
}

}  // namespace

bool DnnGraph::build(bool exact, int64_t most_workspace) {
  State& s = *state_;
  // Backends of one device share what is made, and may differ in determinism.
  const std::string name = std::string("dnn") +
                           (s.backend.deterministic() ? " deterministic" : "") + s.words +
                           (exact ? " exact " : " ") + std::to_string(most_workspace);
  const auto make = [&]() -> std::shared_ptr<void> {
    if (!build_plan(s.backend, s.handle, *s.plan, exact, most_workspace)) return nullptr;
    return s.plan;
  };
  const auto built = std::static_pointer_cast<DnnPlan>(s.backend.shared(name, make));
  if (!built) return false;
  s.plan = built;
  return true;
}

Bytes DnnGraph::workspace() const { return state_->plan->workspace; }
std::string DnnGraph::name() const {
  std::string text;
  if (state_->graph().get_plan_name(text).is_bad()) return "dnn";
  return text;
}
void DnnGraph::set(int64_t id, const void* pointer) {
  state_->pointers[id] = const_cast<void*>(pointer);
}
void DnnGraph::run(void* workspace) {
  state_->backend.use();
  auto status = state_->graph().execute(state_->handle, state_->pointers, workspace);
  if (!status.is_bad()) return;
  cuda_fault_check();
  throw BackendError("[cudnn] " + status.get_message());
}

}  // namespace pl::cuda
