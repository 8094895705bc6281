#include "data/source.h"

#include <sys/stat.h>

#include "base/error.h"
#include "data/array_source.h"
#include "data/cifar.h"
#include "data/idx.h"
#include "data/npz.h"

namespace pl {
namespace {

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";
constexpr const char* kAccepted =
    "synthetic, fashion-mnist, FILE.npz with arrays x and y, FILE.txt for a model of tokens, "
    "FILE.tar or a folder or pattern of such shards with images and classes, or a folder with "
    "train-images-idx3-ubyte and train-labels-idx1-ubyte (plain or .gz), with CIFAR's "
    "data_batch_1.bin or train.bin, or with a folder of JPEG, PNG or BMP images for each class";

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// The plain file or its .gz; empty when neither is there.
std::string find_idx(const std::string& directory, const std::string& stem) {
  for (const char* suffix : {"", ".gz"}) {
    const std::string path = directory + "/" + stem + suffix;
    if (exists(path)) return path;
  }
  return "";
}

struct Pair {
  std::string images, labels;
};

Pair find_pair(const std::string& directory, Part part) {
  const std::string prefix = part == Part::train ? "train" : "t10k";
  return {find_idx(directory, prefix + "-images-idx3-ubyte"),
          find_idx(directory, prefix + "-labels-idx1-ubyte")};
}

std::unique_ptr<Source> idx_directory_source(const std::string& directory, Part part) {
  const Pair pair = find_pair(directory, part);
  if (pair.images.empty() || pair.labels.empty())
    throw DataError("[data] " + directory + ": expected " +
                    (part == Part::train ? "train" : "t10k") + "-images-idx3-ubyte and " +
                    (part == Part::train ? "train" : "t10k") + "-labels-idx1-ubyte (plain or " +
                    ".gz), received a folder without " +
                    (pair.images.empty() ? "the images" : "the labels") +
                    (pair.images.empty() && pair.labels.empty()
                         ? ", without CIFAR's data_batch_1.bin or train.bin, and without JPEG, PNG "
                           "or BMP images in it or in folders of classes"
                         : ""));
  return idx_source(pair.images, pair.labels);
}

}  // namespace

std::unique_ptr<Source> fashion_mnist_source(Part part, const std::string& directory) {
  const std::string folder = directory.empty() ? kFashionMnist : directory;
  const Pair pair = find_pair(folder, part);
  if (pair.images.empty() || pair.labels.empty())
    throw DataError("[data] fashion-mnist: expected its IDX files in " + folder +
                    ", received none; install the Debian package dataset-fashion-mnist " +
                    "(scripts/setup does)");
  return idx_source(pair.images, pair.labels);
}

std::unique_ptr<Source> idx_source(const std::string& images, const std::string& labels) {
  DiskArray x = open_idx(images), y = open_idx(labels);
  if (x.shape.rank() != 3 && x.shape.rank() != 4)
    throw DataError("[idx] " + images + ": expected images of shape (N, H, W) or (N, H, W, C), " +
                    "received " + x.shape.text());
  if (y.shape.rank() != 1)
    throw DataError("[idx] " + labels + ": expected labels of shape (N,), received " +
                    y.shape.text());
  if (x.shape.rank() == 3) x.shape = Shape{x.shape[0], x.shape[1], x.shape[2], 1};
  return array_source(images, std::move(x), std::move(y));
}

std::unique_ptr<Source> npz_source(const std::string& path) {
  const NpzFile file(path);
  return array_source(path, file.open("x"), file.open("y"));
}

Sources open_source(const std::string& spec) {
  Sources sources;
  if (spec == "fashion-mnist") {
    sources.train = fashion_mnist_source(Part::train);
    sources.test = fashion_mnist_source(Part::test);
  } else if (spec.ends_with(".npz")) {
    sources.train = npz_source(spec);
  } else if (is_directory(spec)) {
    if (Sources cifar = cifar_sources(spec); cifar.train) return cifar;
    sources.train = idx_directory_source(spec, Part::train);
    const Pair test = find_pair(spec, Part::test);
    // One of the two alone is more likely a mistake than a wish for no test.
    if (!test.images.empty() || !test.labels.empty())
      sources.test = idx_directory_source(spec, Part::test);
  } else {
    throw DataError("[data] '" + spec + "': expected " + std::string(kAccepted) + ", received " +
                    (exists(spec) ? "something else" : "a path that does not exist"));
  }
  return sources;
}

}  // namespace pl
