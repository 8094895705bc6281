#include "data/image/image.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "data/image/codecs.h"
#include "data/pipeline/stages.h"

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

// Names in a folder without those that begin with a dot, sorted by bytes.
struct Names {
  std::vector<std::string> folders, files,
      others;  // others: links to folders, pipes and their like
};
Names names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), closedir);
  if (!open)
    throw DataError("[image] " + folder + ": expected a folder that can be read, received " +
                    std::strerror(errno) + "; check its name and rights");
  Names names;
  while (const dirent* entry = readdir(open.get())) {
    if (entry->d_name[0] == '.') continue;
    struct stat own {
    }, behind{};
    const std::string path = folder + "/" + entry->d_name;
    const bool there = lstat(path.c_str(), &own) == 0 && stat(path.c_str(), &behind) == 0;
    if (there && S_ISREG(behind.st_mode))
      names.files.emplace_back(entry->d_name);
    else if (there && S_ISDIR(own.st_mode))
      names.folders.emplace_back(entry->d_name);
    else
      names.others.emplace_back(entry->d_name);
  }
  for (auto* list : {&names.folders, &names.files, &names.others})
    std::sort(list->begin(), list->end());
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
                           ", received one that takes " + format_bytes(needed) +
                           "; raise scratch to that, or the pipeline's memory to " +
                           std::to_string(needed / (kMiB / 32) + 1) +
                           "MiB, a 32nd of which is for this");
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

Bytes decode_scratch(const FilePart& part, ImageSize size) {
  const ImageInput input(part);
  return sniff(input).scratch(input, size);
}

namespace {

void decode_input(const ImageInput& input, const DecodeOptions& options, uint8_t* to) {
  if (options.size.height < 1 || options.size.width < 1)
    throw UserError("[image] size: expected a positive height and width, received " +
                    std::to_string(options.size.height) + " and " +
                    std::to_string(options.size.width) + "; give {height, width}");
  sniff(input).decode(input, options, to);
}

Tensor read_input(const ImageInput& input, Bytes most) {
  const Codec& codec = sniff(input);
  const ImageSize size = codec.size(input);
  check_pixels(input, size.height, size.width);
  const Meta meta{Dtype::uint8, Shape{size.height, size.width, 3}};
  if (meta.bytes() > most)
    refuse_image(input, "expected pixels of at most " + format_bytes(most) + ", received " +
                            format_bytes(meta.bytes()) + "; raise `most`, or decode to a size");
  Tensor image(meta);
  const Bytes scratch = codec.scratch(input, size);
  codec.decode(input, {.size = size, .scratch = scratch}, image.data_as<uint8_t>());
  return image;
}

}  // namespace

Tensor read_image(const std::string& path, Bytes most) {
  const File file = File::open(path);
  return read_input(ImageInput(file), most);
}

Tensor read_image(const Tensor& bytes, const std::string& name, Bytes most) {
  return read_input(ImageInput(name, bytes.data_as<uint8_t>(), bytes.meta().bytes()), most);
}

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

void decode_image(const FilePart& part, const DecodeOptions& options, uint8_t* to) {
  decode_input(ImageInput(part), options, to);
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

std::string ImageList::text() const {
  const bool single = classes.size() == 1 && classes[0].empty();
  std::string text = folder + ": " + std::to_string(size()) + " images" +
                     (single ? ""
                             : " of " + std::to_string(classes.size()) +
                                   (classes.size() == 1 ? " class" : " classes"));
  if (passed_over == 0) return text;
  text +=
      "; passed over " + std::to_string(passed_over) + (passed_over == 1 ? " file: " : " files: ");
  for (size_t i = 0; i < passed_names.size(); ++i) text += (i > 0 ? ", " : "") + passed_names[i];
  return text + (static_cast<size_t>(passed_over) > passed_names.size() ? ", ..." : "");
}

void ImageList::drop(const std::vector<int64_t>& places) {
  ImageList rest;
  size_t next = 0;
  for (int64_t i = 0; i < size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(i == 0 ? 0 : ends[at - 1]);
    if (next < places.size() && places[next] == i) {
      ++next;
      continue;
    }
    rest.names.append(names, begin, static_cast<size_t>(ends[at]) - begin);
    rest.ends.push_back(static_cast<int64_t>(rest.names.size()));
    rest.labels.push_back(labels[at]);
  }
  names = std::move(rest.names);
  ends = std::move(rest.ends);
  labels = std::move(rest.labels);
}

namespace {

constexpr size_t kNamedOver = 8;

void pass_over(ImageList& list, const std::string& name) {
  ++list.passed_over;
  if (list.passed_names.size() < kNamedOver) list.passed_names.push_back(name);
}

// All images of a class, those in folders below included; `below` is "" or ends with a slash.
void add_images(ImageList& list, size_t label, const std::string& of, const std::string& below) {
  const Names names = names_in(of + "/" + below);
  const std::string shown = list.classes[label].empty() ? below : list.classes[label] + "/" + below;
  for (const std::string& name : names.files) {
    if (!named_as_image(name)) {
      pass_over(list, shown + name);
      continue;
    }
    list.names += below + name;
    list.ends.push_back(static_cast<int64_t>(list.names.size()));
    list.labels.push_back(static_cast<int32_t>(label));
  }
  for (const std::string& name : names.folders) add_images(list, label, of, below + name + "/");
  for (const std::string& name : names.others) pass_over(list, shown + name);
}

}  // namespace

ImageList list_images(const std::string& folder) {
  ImageList list;
  list.folder = folder;
  const Names names = names_in(folder);
  list.classes = names.folders;
  if (list.classes.empty()) {
    list.classes.emplace_back();
    add_images(list, 0, folder, "");
  } else {
    for (const auto* others : {&names.files, &names.others})
      for (const std::string& name : *others) pass_over(list, name);
    for (size_t c = 0; c < list.classes.size(); ++c)
      add_images(list, c, folder + "/" + list.classes[c], "");
  }
  if (list.labels.empty())
    throw DataError("[image] " + folder +
                    ": expected files .jpg, .jpeg, .png or .bmp in it or in folders of classes, "
                    "received none; convert others, such as .webp or .tif, first");
  return list;
}

std::string decode_key(const DecodeOptions& decode, const std::optional<ResizedCropOptions>& crop) {
  std::string key = decode.antialias ? "antialias" : "";
  if (decode.region) key += ", region";
  if (!crop) return key;
  for (const double number : {crop->scale[0], crop->scale[1], crop->ratio[0], crop->ratio[1]})
    key += ", " + exact_text(number);
  return key + ", method " + std::to_string(static_cast<int>(crop->method)) +
         (crop->antialias ? ", antialias" : "");
}

void expect_image_size(const std::string& stage, ImageSize size) {
  if (size.height < 1 || size.width < 1 || size.height > 16384 || size.width > 16384)
    throw UserError("[data] " + stage + ": size: expected 1 to 16384 pixels a side, received " +
                    std::to_string(size.height) + " x " + std::to_string(size.width) +
                    "; give {height, width}");
}

namespace {

// What a file is known by without reading it, for all of them.
uint64_t images_identity(const ImageList& list) {
  Xxh3 hash;
  hash.update(list.folder);
  for (int64_t i = 0; i < list.size(); ++i) {
    struct stat status {};
    stat(list.path(i).c_str(), &status);
    const int64_t facts[] = {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
    hash.update(facts, sizeof(facts));
  }
  return hash.digest();
}

void expect_image_options(const ImageDatasetOptions& options) {
  expect_image_size("image_dataset_from_directory", options.image_size);
  if (options.batch_size < 0 || options.scratch < 0)
    throw UserError(
        "[data] image_dataset_from_directory: batch_size, scratch: expected 0 or more, received " +
        std::to_string(options.batch_size) + " and " + std::to_string(options.scratch) +
        "; a batch_size of 0 gives single images");
  const bool split = options.validation_split != 0 || !options.subset.empty();
  if (split && !(options.validation_split > 0 && options.validation_split < 1 &&
                 (options.subset == "training" || options.subset == "validation")))
    throw UserError(
        "[data] image_dataset_from_directory: expected a validation_split between 0 and 1 and a "
        "subset training or validation, received " +
        exact_text(options.validation_split) + " and '" + options.subset + "'; give both or none");
}

Dataset part_of(const Dataset& numbers, const ImageDatasetOptions& options) {
  if (options.subset.empty()) return numbers;
  const int64_t all = numbers.cardinality();
  const auto aside = static_cast<int64_t>(options.validation_split * static_cast<double>(all));
  const Dataset mixed =
      numbers.shuffle({.seed = options.seed.value_or(0), .reshuffle_each_iteration = false});
  return options.subset == "training" ? mixed.take(all - aside) : mixed.skip(all - aside);
}

}  // namespace

Dataset image_dataset_from_directory(const std::string& folder,
                                     const ImageDatasetOptions& options) {
  expect_image_options(options);
  return image_dataset(std::make_shared<const ImageList>(list_images(folder)), options);
}

Dataset image_dataset(std::shared_ptr<const ImageList> list, const ImageDatasetOptions& options) {
  expect_image_options(options);
  const ImageSize size = options.image_size;
  // Numbers of files are what shuffles move; each worker opens, decodes and resizes its own.
  Dataset numbers = part_of(Dataset::range(list->size()), options);
  if (options.shuffle) numbers = numbers.shuffle({.seed = options.seed});
  const Bytes scratch = options.scratch > 0 ? options.scratch : kDecodeScratch;
  const DecodeOptions decode{.size = size, .antialias = options.antialias, .scratch = scratch};
  const ElementSpec spec{
      {{"x", Dtype::uint8, Shape{size.height, size.width, 3}}, {"y", Dtype::int32, Shape()}}};
  const auto read = [list, spec](const Element& in, const DecodeOptions& how) {
    const int64_t i = *in[0].data_as<int64_t>();
    Tensor x(Meta{Dtype::uint8, spec.fields[0].shape}), y(Meta{Dtype::int32, Shape()});
    decode_image(list->path(i), how, x.data_as<uint8_t>());
    *y.data_as<int32_t>() = list->labels[static_cast<size_t>(i)];
    return Element{x, y};
  };
  MapFacts facts{.spec = spec,
                 .parallel = parallel_calls(
                     {.num_parallel_calls = options.num_parallel_calls, .name = "decode_image"}),
                 .scratch = scratch,
                 .beside = list->bytes(),
                 .random = options.random_crop.has_value(),
                 .key = decode_key(decode, options.random_crop) + "|" + hex16(xxh3(list->names)),
                 .contents = [list] { return images_identity(*list); }};
  const auto function = [read, decode, crop = options.random_crop](const Element& in,
                                                                   uint64_t number) {
    return read(in, crop ? with_random_crop(decode, *crop, number) : decode);
  };
  if (options.scratch == 0)
    facts.roomy = [read, decode, crop = options.random_crop](const Element& in, uint64_t number,
                                                             Bytes room) {
      DecodeOptions how = crop ? with_random_crop(decode, *crop, number) : decode;
      how.scratch = room;
      return read(in, how);
    };
  Dataset images(map_stage(numbers.stage(), function, std::move(facts), "decode_image"));
  if (options.ignore_errors) images = images.ignore_errors(true);
  return options.batch_size > 0 ? images.batch(options.batch_size) : images;
}

}  // namespace pl
