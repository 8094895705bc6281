// Records the calls that change the disk below a folder, and builds from any prefix of them what a
// disk may hold after a loss of power there (docs/decisions/0026-calls-that-change-a-disk.md).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/disk.h"

namespace pl::test {

// One call. Files and folders are known by number, so that a call means the same whatever of those
// before it is left out; folder 0 is the one that was there.
struct DiskStep {
  DiskCall::Kind kind;
  int node = -1;               // that it is about
  int folder = -1, from = -1;  // that the name is in; and, of a rename, was in
  std::string name, old_name;
  std::string data;
  Bytes at = 0;

  bool is_write() const { return kind == DiskCall::Kind::write; }
  bool is_of_bytes() const { return is_write() || kind == DiskCall::Kind::truncate; }
  bool is_of_name() const {
    using Kind = DiskCall::Kind;
    return !is_of_bytes() && kind != Kind::sync && kind != Kind::sync_folder;
  }
};

// What a disk holds: the bytes of files and the names in folders.
struct DiskImage {
  std::map<int, std::string> files;
  std::map<int, std::map<std::string, int>> folders{{0, {}}};

  // `bytes`: of a write, as many of its first ones as have arrived.
  void apply(const DiskStep& step, size_t bytes = std::string::npos) {
    using Kind = DiskCall::Kind;
    switch (step.kind) {
      case Kind::write: {
        std::string& file = files[step.node];
        const std::string data = step.data.substr(0, bytes);
        const auto at = static_cast<size_t>(step.at);
        if (file.size() < at + data.size()) file.resize(at + data.size(), '\0');
        file.replace(at, data.size(), data);
        break;
      }
      case Kind::truncate:
        files[step.node].resize(static_cast<size_t>(step.at), '\0');
        break;
      case Kind::make_folder:
        folders[step.node];
        folders[step.folder][step.name] = step.node;
        break;
      case Kind::create:
      case Kind::link:
        files[step.node];
        if (step.folder >= 0) folders[step.folder][step.name] = step.node;
        break;
      case Kind::rename:
        files[step.node];
        drop(step.from, step.old_name, step.node);
        folders[step.folder][step.name] = step.node;
        break;
      case Kind::unlink:
      case Kind::remove_folder:
        drop(step.folder, step.name, step.node);
        break;
      case Kind::sync:
      case Kind::sync_folder:
        break;
    }
  }

  void write_to(const std::string& path, int folder = 0) const {
    std::filesystem::create_directories(path);
    for (const auto& [name, node] : folders.at(folder)) {
      const std::string place = path + "/" + name;
      if (folders.contains(node))
        write_to(place, node);
      else
        std::ofstream(place, std::ios::binary) << files.at(node);
    }
  }

  // Of what can be reached by names.
  std::string text(int folder = 0) const {
    std::string text;
    for (const auto& [name, node] : folders.at(folder))
      text += name + '\0' + (folders.contains(node) ? text_of_folder(node) : files.at(node)) + '\1';
    return text;
  }

 private:
  std::string text_of_folder(int node) const { return '\2' + text(node) + '\3'; }
  void drop(int folder, const std::string& name, int node) {
    auto& names = folders[folder];
    if (const auto at = names.find(name); at != names.end() && at->second == node) names.erase(at);
  }
};

class DiskRecord : public DiskWatch {
 public:
  explicit DiskRecord(std::string root) : root_(std::move(root)), scope_(*this) {}

  const std::vector<DiskStep>& steps() const { return steps_; }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return steps_.size();
  }

  // The calls are made one at a time: their order in the record is theirs.
  int64_t make(const DiskCall& call, const std::function<int64_t()>& system) override {
    using Kind = DiskCall::Kind;
    const std::lock_guard lock(mutex_);
    const int64_t result = system();
    const int error = errno;
    if (call.kind == Kind::write ? result > 0 : result >= 0) {
      const int fd = call.kind == Kind::create ? static_cast<int>(result) : call.fd;
      note(call, fd, call.data.substr(0, static_cast<size_t>(std::max<int64_t>(result, 0))));
    }
    errno = error;
    return result;
  }

 private:
  using Place = std::pair<int, std::string>;  // folder, name
  using Identity = std::pair<dev_t, ino_t>;

  static Identity identity(int fd) {
    struct stat status {};
    ::fstat(fd, &status);
    return {status.st_dev, status.st_ino};
  }

  // Folder -1: it does not lie below the root.
  Place place(std::string_view path) const {
    if (!path.starts_with(root_ + "/")) return {-1, ""};
    int folder = 0;
    std::string name;
    for (const auto& part : std::filesystem::path(path.substr(root_.size() + 1))) {
      if (part.empty()) continue;  // behind a last slash
      if (!name.empty()) folder = node_at({folder, name});
      name = part.string();
    }
    return {folder, name};
  }
  int node_at(const Place& place) const {
    if (place.first < 0) return -1;
    const auto& names = now_.folders.at(place.first);
    const auto at = names.find(place.second);
    return at == names.end() ? -1 : at->second;
  }
  int node_of(int fd) const {
    const auto at = nodes_.find(identity(fd));
    return at == nodes_.end() ? -1 : at->second;
  }

  void note(const DiskCall& call, int fd, std::string_view data) {
    using Kind = DiskCall::Kind;
    DiskStep step{.kind = call.kind, .data = std::string(data), .at = call.at};
    const Place to =
        place(call.kind == Kind::rename || call.kind == Kind::link ? call.to : call.path);
    std::tie(step.folder, step.name) = to;
    switch (call.kind) {
      case Kind::create:
        if (step.folder < 0 || node_at(to) >= 0) {  // one that is there is opened alone
          if ((call.flags & O_TMPFILE) == O_TMPFILE && node_at(to) >= 0)
            nodes_[identity(fd)] = next_++;  // the name is its folder's
          return;
        }
        step.node = nodes_[identity(fd)] = next_++;
        break;
      case Kind::make_folder:
        if (step.folder >= 0) step.node = next_++;
        break;
      case Kind::sync_folder:
        step.node = call.path == root_ ? 0 : node_at(to);
        break;
      case Kind::rename:
        std::tie(step.from, step.old_name) = place(call.path);
        step.node = node_at({step.from, step.old_name});
        break;
      case Kind::unlink:
      case Kind::remove_folder:
        step.node = node_at(to);
        break;
      default:
        step.node = node_of(fd);
    }
    if (step.node < 0) return;
    now_.apply(step);
    steps_.push_back(std::move(step));
  }

  std::string root_;
  std::mutex mutex_;
  std::vector<DiskStep> steps_;
  DiskImage now_;
  std::map<Identity, int> nodes_;
  int next_ = 1;
  DiskWatchScope scope_;
};

// The steps before `end` that nothing has made durable: bytes when the file was synced since, names
// when their folder was, those of a rename both.
inline std::vector<size_t> unsynced(const std::vector<DiskStep>& steps, size_t end) {
  using Kind = DiskCall::Kind;
  std::set<int> synced;
  std::vector<size_t> list;
  for (size_t i = end; i-- > 0;) {
    const DiskStep& step = steps[i];
    if (step.kind == Kind::sync || step.kind == Kind::sync_folder) synced.insert(step.node);
    const bool durable = step.is_of_bytes() ? synced.contains(step.node)
                                            : synced.contains(step.folder) &&
                                                  (step.from < 0 || synced.contains(step.from));
    if ((step.is_of_bytes() || step.is_of_name()) && !durable) list.push_back(i);
  }
  return {list.rbegin(), list.rend()};
}

// What is there for certain after the first `end` steps.
inline DiskImage durable_image(const std::vector<DiskStep>& steps, size_t end) {
  const std::vector<size_t> open = unsynced(steps, end);
  DiskImage image;
  for (size_t i = 0; i < end; ++i)
    if (!std::binary_search(open.begin(), open.end(), i)) image.apply(steps[i]);
  return image;
}

// Calls `visit` with each image that a disk may hold after the first `end` steps.
template <class Visit>
void for_each_image(const std::vector<DiskStep>& steps, size_t end, uint64_t seed,
                    const Visit& visit) {
  const std::vector<size_t> open = unsynced(steps, end);
  const auto build = [&](const std::set<size_t>& missing, size_t torn, size_t bytes) {
    DiskImage image;
    for (size_t i = 0; i < end; ++i)
      if (!missing.contains(i)) image.apply(steps[i], i == torn ? bytes : std::string::npos);
    visit(image);
  };
  const std::set<size_t> all(open.begin(), open.end());
  visit(durable_image(steps, end));
  build({}, end, 0);
  for (const size_t i : open) {
    build({i}, end, 0);
    std::set<size_t> others = all;
    others.erase(i);
    build(others, end, 0);
  }
  std::mt19937_64 random(seed + end);
  for (int subset = 0; subset < 16 && !open.empty(); ++subset) {
    std::set<size_t> missing;
    for (const size_t i : open)
      if (random() & 1) missing.insert(i);
    build(missing, end, 0);
  }
  constexpr size_t kPage = 4096;
  for (const size_t i : open) {
    if (!steps[i].is_write()) continue;
    // It stops in the middle of a page, or of what it has of it.
    const size_t begin = static_cast<size_t>(steps[i].at), bytes = steps[i].data.size();
    const size_t first = begin / kPage, last = (begin + bytes - 1) / kPage;
    for (const size_t page : std::set<size_t>{first, (first + last) / 2, last}) {
      const size_t from = std::max(page * kPage, begin);
      const size_t to = std::min((page + 1) * kPage, begin + bytes);
      build({}, i, (from + to) / 2 - begin);
    }
  }
}

}  // namespace pl::test
