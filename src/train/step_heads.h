// The ends of a traced step: inputs with their casts, losses and metrics of all outputs. Internal
// to step_trace.cc.
#pragma once

#include "op/recorder.h"
#include "train/step_trace.h"

namespace pl {

// Throws UserError where samples and network do not match.
void check_sample(const Network& network, const std::vector<Head>& heads, const Compiled& compiled,
                  const Signature& signature, const SampleSpec& sample);

struct StepInputs {
  Tensors x, y, weights;          // cast; weights: none or one for each y
  std::vector<BatchFacts> facts;  // as y
  Tensors samples;                // as they are written before a step: x, y, weights, facts
  Tensor params;
};
StepInputs trace_inputs(Recorder& recorder, const Network& network, const std::vector<Head>& heads,
                        const Compiled& compiled, const Signature& signature,
                        const SampleSpec& sample, StepLayout& layout);

// Its parts: which facts there are, and inputs with their casts from what is written before a step:
// x, y, weights, facts.
std::vector<HostFact> facts_of(const std::vector<Head>& heads, const SampleSpec& sample);
StepInputs arrange_inputs(const Network& network, const Compiled& compiled,
                          const SampleSpec& sample, const std::vector<HostFact>& facts,
                          Tensors samples, const Tensor& params);

// Appends losses and metrics of outputs with these masks, keeps them, and answers the sum of the
// losses, which is not kept yet: what layers add to it comes behind. Its place among the kept
// values is the first.
Tensor trace_losses(const Network& network, const std::vector<Head>& heads, const Tensors& outputs,
                    const Tensors& masks, const StepInputs& inputs,
                    std::vector<std::pair<Tensor, std::string>>& kept, StepLayout& layout);

}  // namespace pl
