#include "data/image/image.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "data/image/codecs.h"

namespace pl {
namespace {

// What each kind of file is read by.
struct Codec {
  ImageKind kind;
  ImageSize (*size)(const ImageInput& file);
  Bytes (*scratch)(const ImageInput& file, ImageSize size);
  void (*decode)(const ImageInput& file, const DecodeOptions& options, uint8_t* to);
};
constexpr Codec kJpeg{ImageKind::jpeg, jpeg_size, jpeg_scratch, decode_jpeg};
constexpr Codec kPng{ImageKind::png, png_size, png_scratch, decode_png};
constexpr Codec kBmp{ImageKind::bmp, bmp_size, bmp_scratch, decode_bmp};

// The first bytes decide; names lie.
const Codec& sniff(const ImageInput& file) {
  unsigned char first[8] = {};
  file.read_some(first, sizeof(first), 0);
  if (first[0] == 0xFF && first[1] == 0xD8 && first[2] == 0xFF) return kJpeg;
  if (std::memcmp(first, "\x89PNG\r\n\x1a\n", 8) == 0) return kPng;
  if (first[0] == 'B' && first[1] == 'M') return kBmp;
  refuse_image(file, "expected a JPEG, PNG or BMP, whose first bytes tell, received none of them");
}

// Names in a folder without . and those that begin with one, sorted by bytes.
std::vector<std::string> names_in(const std::string& folder, bool folders) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open)
    throw DataError("[image] " + folder + ": expected a folder that can be read, received " +
                    std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open.get())) {
    if (entry->d_name[0] == '.') continue;
    struct stat status {};
    if (stat((folder + "/" + entry->d_name).c_str(), &status) != 0) continue;
    if (folders ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode))
      names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool named_as_image(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.ends_with(".jpg") || name.ends_with(".jpeg") || name.ends_with(".png") ||
         name.ends_with(".bmp");
}

}  // namespace

void refuse_image(const ImageInput& file, const std::string& what) {
  throw DataError("[image] " + file.path() + ": " + what);
}

void check_pixels(const ImageInput& file, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMostPixels / width)
    refuse_image(file, "expected at most " + std::to_string(kMostPixels) + " pixels, received " +
                           std::to_string(width) + " x " + std::to_string(height));
}

void check_scratch(const ImageInput& file, Bytes needed, const DecodeOptions& options) {
  if (needed > options.scratch)
    refuse_image(file, "expected an image that can be decoded in " + format_bytes(options.scratch) +
                           ", received one that takes " + format_bytes(needed) + "; raise scratch");
}

ImageRegion region_of(const ImageInput& file, ImageSize image, const DecodeOptions& options) {
  if (!options.region) return {0, 0, image};
  const ImageRegion region = options.region(image);
  const auto inside = [](int64_t at, int64_t size, int64_t all) {
    return at >= 0 && size >= 1 && size <= all && at <= all - size;
  };
  if (!inside(region.top, region.size.height, image.height) ||
      !inside(region.left, region.size.width, image.width))
    refuse_image(file, "expected a region within " + std::to_string(image.height) + " x " +
                           std::to_string(image.width) + ", received " +
                           std::to_string(region.size.height) + " x " +
                           std::to_string(region.size.width) + " at row " +
                           std::to_string(region.top) + ", column " + std::to_string(region.left));
  return region;
}

ImageHeader image_header(const std::string& path) {
  const File file = File::open(path);
  const ImageInput input(file);
  const Codec& codec = sniff(input);
  return {codec.kind, codec.size(input)};
}

Bytes decode_scratch(const std::string& path, ImageSize size) {
  const File file = File::open(path);
  const ImageInput input(file);
  return sniff(input).scratch(input, size);
}

namespace {

void decode_input(const ImageInput& input, const DecodeOptions& options, uint8_t* to) {
  if (options.size.height < 1 || options.size.width < 1)
    throw UserError("[image] size: expected a positive height and width");
  sniff(input).decode(input, options, to);
}

}  // namespace

DecodeOptions with_random_crop(DecodeOptions decode, const ResizedCropOptions& crop,
                               uint64_t number) {
  decode.region = [crop, number](ImageSize image) {
    Chance chance(number);
    return random_region(image, chance, crop);
  };
  decode.antialias = crop.antialias;
  return decode;
}

void decode_image(const std::string& path, const DecodeOptions& options, uint8_t* to) {
  const File file = File::open(path);
  decode_input(ImageInput(file), options, to);
}

void decode_image(const std::string& name, const Tensor& bytes, const DecodeOptions& options,
                  uint8_t* to) {
  decode_input(ImageInput(name, bytes.data_as<uint8_t>(), bytes.meta().bytes()), options, to);
}

std::string ImageList::path(int64_t i) const {
  const auto at = static_cast<size_t>(i);
  const auto begin = static_cast<size_t>(i == 0 ? 0 : ends[at - 1]);
  const std::string name = names.substr(begin, static_cast<size_t>(ends[at]) - begin);
  const std::string& of = classes[static_cast<size_t>(labels[at])];
  return of.empty() ? folder + "/" + name : folder + "/" + of + "/" + name;
}

ImageList list_images(const std::string& folder) {
  ImageList list;
  list.folder = folder;
  list.classes = names_in(folder, true);
  if (list.classes.empty()) list.classes.emplace_back();
  for (size_t c = 0; c < list.classes.size(); ++c) {
    const std::string of = list.classes[c].empty() ? folder : folder + "/" + list.classes[c];
    for (const std::string& name : names_in(of, false)) {
      if (!named_as_image(name)) continue;
      list.names += name;
      list.ends.push_back(static_cast<int64_t>(list.names.size()));
      list.labels.push_back(static_cast<int32_t>(c));
    }
  }
  if (list.labels.empty())
    throw DataError("[image] " + folder +
                    ": expected files .jpg, .jpeg, .png or .bmp in it or in folders of classes, "
                    "received none");
  return list;
}

Dataset image_dataset_from_directory(const std::string& folder,
                                     const ImageDatasetOptions& options) {
  const ImageSize size = options.image_size;
  if (size.height < 1 || size.width < 1 || size.height > 16384 || size.width > 16384)
    throw UserError("[image] image_size: expected 1 to 16384, received " +
                    std::to_string(size.height) + " x " + std::to_string(size.width));
  const auto list = std::make_shared<const ImageList>(list_images(folder));
  // Numbers of files are what shuffles move; each worker opens, decodes and resizes its own.
  Dataset numbers = Dataset::range(list->size());
  if (options.shuffle) numbers = numbers.shuffle({.seed = options.seed});
  const DecodeOptions decode{
      .size = size, .antialias = options.antialias, .scratch = options.scratch};
  const ElementSpec spec{
      {{"x", Dtype::uint8, Shape{size.height, size.width, 3}}, {"y", Dtype::int32, Shape()}}};
  const auto read = [list, spec](const Element& in, const DecodeOptions& how) {
    const int64_t i = *in[0].data_as<int64_t>();
    Tensor x(Meta{Dtype::uint8, spec.fields[0].shape}), y(Meta{Dtype::int32, Shape()});
    decode_image(list->path(i), how, x.data_as<uint8_t>());
    *y.data_as<int32_t>() = list->labels[static_cast<size_t>(i)];
    return Element{x, y};
  };
  const MapOptions map{.num_parallel_calls = options.num_parallel_calls,
                       .spec = spec,
                       .scratch = options.scratch,
                       .beside = list->bytes(),
                       .name = "decode_image",
                       .key = std::to_string(xxh3(list->folder + "|" + list->names))};
  Dataset images =
      options.random_crop
          ? numbers.map_random(
                [read, decode, crop = *options.random_crop](const Element& in, uint64_t number) {
                  return read(in, with_random_crop(decode, crop, number));
                },
                map)
          : numbers.map([read, decode](const Element& in) { return read(in, decode); }, map);
  if (options.ignore_errors) images = images.ignore_errors(true);
  return options.batch_size > 0 ? images.batch(options.batch_size) : images;
}

}  // namespace pl
