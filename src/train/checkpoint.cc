#include "train/checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/hash.h"

namespace pl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "plimsoll-checkpoint";
constexpr int64_t kVersion = 1;
constexpr Bytes kLongestManifest = 64 * kMiB;
constexpr std::string_view kPrefix = "variables-", kSuffix = ".safetensors";
constexpr const char* kRemedy =
    "; the checkpoint is damaged: remove its folder to go on from an older one";

std::string path_in(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// variables-0123456789abcdef.safetensors and nothing else: no path that leads out of the folder.
bool is_tensor_file(std::string_view name) {
  if (name.size() != kPrefix.size() + 16 + kSuffix.size()) return false;
  const std::string_view digits = name.substr(kPrefix.size(), 16);
  return name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// What a writer that was killed leaves behind.
bool is_draft(std::string_view name) {
  const size_t at = name.find(".tmp-");
  return at != std::string_view::npos &&
         (name.substr(0, at) == kManifest || is_tensor_file(name.substr(0, at)));
}

// Removes files of ours that `stays` does not name. Errors do not matter: what is left over is
// tried again next time.
void sweep(const std::string& folder, std::string_view stays) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name != stays && (is_tensor_file(name) || is_draft(name))) remove_file(at->path().string());
  }
}

DataError damaged(const std::string& path, const std::string& expected,
                  const std::string& received) {
  return DataError("[checkpoint] " + path + ": expected " + expected + ", received " + received +
                   kRemedy);
}

}  // namespace

std::vector<NamedBytes> named_variables(const Variables& variables) {
  std::vector<NamedBytes> tensors;
  const auto& entries = variables.layout().entries;
  for (size_t i = 0; i < entries.size(); ++i)
    tensors.push_back({entries[i].path, entries[i].meta, variables.at(i)});
  return tensors;
}

void write_checkpoint(const std::string& folder, std::span<const NamedBytes> tensors,
                      const TrainState& train_state) {
  Json list = Json::array();
  Xxh3 all;
  for (const NamedBytes& tensor : tensors) {
    const std::string hash = hex16(xxh3(tensor.data, static_cast<size_t>(tensor.meta.bytes())));
    all.update(tensor.name).update(hash);
    list.push(Json::object().set("name", tensor.name).set("xxh3", hash));
  }
  // Named by content: a file that another manifest may still mean is never replaced by another.
  const std::string name = std::string(kPrefix) + hex16(all.digest()) + std::string(kSuffix);
  make_directories(folder);
  for (const std::string& file : train_state.files) sync_file(file);
  write_safetensors(path_in(folder, name), tensors, {{"format", "plimsoll"}});
  const Json state = to_json(train_state);
  Json manifest = Json::object();
  manifest.set("format", kFormat)
      .set("version", kVersion)
      .set("file", name)
      .set("tensors", std::move(list))
      .set("state", state)
      .set("state_xxh3", hex16(xxh3(state.dump())));
  write_file_atomically(path_in(folder, kManifest), manifest.dump(1) + "\n");
  sweep(folder, name);
}

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder) {
  const std::string path = path_in(folder, kManifest);
  const Json manifest = parse_json(read_text_file(path, kLongestManifest), path);
  const std::string& format = manifest.at("format", path).as_string(path);
  if (format != kFormat)
    throw damaged(path, "a checkpoint's manifest", "'" + format.substr(0, 40) + "'");
  const int64_t version = manifest.at("version", path).as_integer(path);
  if (version != kVersion)
    throw DataError("[checkpoint] " + path + ": expected version " + std::to_string(kVersion) +
                    ", received " + std::to_string(version) +
                    "; it was written by another version of the program");
  const std::string& file = manifest.at("file", path).as_string(path);
  if (!is_tensor_file(file))
    throw damaged(path, "the name of a file beside it", "'" + file.substr(0, 80) + "'");
  state_ = manifest.at("state", path);
  const std::string hash = hex16(xxh3(state_.dump()));
  if (manifest.at("state_xxh3", path).as_string(path) != hash)
    throw damaged(path, "a state with hash " + hash, "another");
  tensors_ = std::make_unique<SafetensorsFile>(path_in(folder, file));
  for (const Json& entry : manifest.at("tensors", path).as_array(path))
    hashes_.emplace_back(entry.at("name", path).as_string(path),
                         entry.at("xxh3", path).as_string(path));
  if (hashes_.size() != tensors_->entries().size())
    throw damaged(path, std::to_string(hashes_.size()) + " tensors in " + file,
                  std::to_string(tensors_->entries().size()));
}

void Checkpoint::verify(const VariableLayout& layout) const {
  for (const auto& entry : layout.entries) {
    const auto* found = tensors_->find(entry.path);
    if (!found || found->meta != entry.meta)
      throw DataError("[checkpoint] " + entry.path + ": expected " + entry.meta.text() +
                      ", received " + (found ? found->meta.text() : "none") + " in " + folder_ +
                      "; it is of another model, dtype or optimizer");
  }
  for (const auto& [name, saved] : hashes_)
    if (!layout.find(name) && !name.starts_with(kCallbackTensors))
      throw DataError("[checkpoint] " + folder_ + ": expected the model's variables only, " +
                      "received also '" + name.substr(0, 200) +
                      "'; it is of another model, dtype or optimizer");
  verify_bytes();
}

void Checkpoint::verify_bytes() const {
  std::array<char, 64 * kKiB> piece;
  for (const auto& [name, saved] : hashes_) {
    const auto* found = tensors_->find(name);
    if (!found) throw damaged(tensors_->path(), "a tensor '" + name.substr(0, 200) + "'", "none");
    Xxh3 hash;
    for (Bytes at = 0; at < found->bytes;) {
      const Bytes bytes = std::min<Bytes>(found->bytes - at, piece.size());
      tensors_->read_part(*found, at, piece.data(), bytes);
      hash.update(piece.data(), static_cast<size_t>(bytes));
      at += bytes;
    }
    if (hex16(hash.digest()) != saved)
      throw damaged(tensors_->path(), "'" + name + "' with hash " + saved.substr(0, 16),
                    hex16(hash.digest()));
  }
}

void Checkpoint::load(Variables& variables) const {
  const auto& entries = variables.layout().entries;
  for (size_t i = 0; i < entries.size(); ++i)
    tensors_->read(entries[i].path, variables.at(i), entries[i].meta.bytes());
  variables.written();
}

bool has_checkpoint(const std::string& folder) {
  std::error_code error;
  return fs::exists(path_in(folder, kManifest), error);
}

void remove_checkpoint(const std::string& folder) {
  if (remove_file(path_in(folder, kManifest))) sync_folder(folder);
  sweep(folder, "");
  remove_folder(folder);
}

}  // namespace pl
