// A checkpoint: a folder with the variables of a run as safetensors, and `manifest.json`, which
// names that file, holds a hash for each tensor and everything about the run that is no tensor. The
// manifest is written last and by rename: a folder without one is no checkpoint yet, and one that
// is written again is the old checkpoint until the moment it is the new one.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/safetensors.h"
#include "train/train_state.h"
#include "train/variables.h"

namespace pl {

inline constexpr const char* kManifest = "manifest.json";
// Tensors of callbacks are named so; all others are variables.
inline constexpr std::string_view kCallbackTensors = "callbacks/";

// Durable when it returns, and what the state's files hold before it. When it throws, a checkpoint
// that was in the folder is intact. Holds no copy of a tensor.
void write_checkpoint(const std::string& folder, std::span<const NamedBytes> tensors,
                      const TrainState& state);

// Every variable of a layout, for write_checkpoint.
std::vector<NamedBytes> named_variables(const Variables& variables);

class Checkpoint {
 public:
  // Reads the manifest and the table of tensors. Throws DataError for whatever is missing, damaged
  // or hostile. Tensors are not looked at yet.
  explicit Checkpoint(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Json& state() const { return state_; }
  const SafetensorsFile& tensors() const { return *tensors_; }

  // Throws DataError unless the variables are the layout's, naming the first that is not, and each
  // tensor has the bytes it was saved with. Reads every byte once, through a small buffer.
  void verify(const VariableLayout& layout) const;
  void verify_bytes() const;  // the latter alone
  void load(Variables& variables) const;

 private:
  std::string folder_;
  Json state_;
  std::vector<std::pair<std::string, std::string>> hashes_;  // tensor, 16 hex digits
  std::unique_ptr<SafetensorsFile> tensors_;
};

bool has_checkpoint(const std::string& folder);
// Takes a checkpoint away, manifest first, and the folder with it if nothing else is in there.
// Files of other makers stay.
void remove_checkpoint(const std::string& folder);

}  // namespace pl
