// Images in tar shards (WebDataset): decoded out of the archives, each by number.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "data/csv.h"
#include "data/image/header_scan.h"
#include "data/image/image.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/stages.h"
#include "data/tar.h"

namespace pl {
namespace {

constexpr const char* kImageParts[] = {"jpg", "jpeg", "png", "bmp", "img"};

struct TarImages {
  struct Place {
    ByteOffset at = 0;
    Bytes bytes = 0;
  };
  struct Sample {
    int32_t file = 0;
    Place image, label;
    std::string key;  // for messages
  };
  std::vector<File> files;
  std::vector<Sample> samples;
  DamagedPlaces damaged;

  std::string name(int64_t i) const {
    const Sample& sample = samples[static_cast<size_t>(i)];
    return files[static_cast<size_t>(sample.file)].path() + ": " + sample.key;
  }
  FilePart image(int64_t i) const {
    const Sample& sample = samples[static_cast<size_t>(i)];
    return {files[static_cast<size_t>(sample.file)], sample.image.at, sample.image.bytes, name(i)};
  }
  Bytes bytes() const {
    Bytes sum = damaged.bytes();
    for (const Sample& sample : samples)
      sum += static_cast<Bytes>(sizeof(Sample) + sample.key.capacity());
    return sum;
  }
};

const TarEntry* find_part(const TarSample& sample, const std::string& part) {
  const auto at = std::find_if(sample.parts.begin(), sample.parts.end(),
                               [&](const TarEntry& entry) { return entry.name == part; });
  return at == sample.parts.end() ? nullptr : &*at;
}

// The image and the class of a sample of the last file.
void add_sample(TarImages& images, const TarSample& sample) {
  const TarEntry* image = nullptr;
  for (const char* part : kImageParts)
    if (!image) image = find_part(sample, part);
  const TarEntry* label = find_part(sample, "cls");
  std::string why = sample.damage;
  if (why.empty() && (!image || !label))
    why = "[tar] " + images.files.back().path() + ": sample " + sample.key +
          ": expected an image (.jpg, .jpeg, .png or .bmp) and a class (.cls), received " +
          (image ? "no class" : "no image") + "; tar_dataset reads other parts";
  const auto number = static_cast<int32_t>(images.files.size()) - 1;
  if (!why.empty()) {
    images.damaged.add(static_cast<int64_t>(images.samples.size()), std::move(why));
    images.samples.push_back({number, {}, {}, {}});
    return;
  }
  images.samples.push_back(
      {number, {image->at, image->bytes}, {label->at, label->bytes}, sample.key});
}

std::shared_ptr<TarImages> index_images(const std::vector<std::string>& files) {
  if (files.empty())
    throw UserError(
        "[data] tar_image_dataset: expected files, received none; list_files(pattern) finds them");
  auto images = std::make_shared<TarImages>();
  for (const std::string& path : files) {
    images->files.push_back(File::open(path));
    const File& file = images->files.back();
    for (const TarSample& sample : group_tar(index_tar(file, OnError::skip), path, OnError::skip))
      add_sample(*images, sample);
  }
  return images;
}

// Leaves out what is damaged; named on stderr and counted.
void drop_damaged(TarImages& images) {
  constexpr size_t kNamedSamples = 16;
  std::vector<TarImages::Sample> whole;
  for (size_t i = 0; i < images.samples.size(); ++i)
    if (!images.damaged.all().contains(static_cast<int64_t>(i)))
      whole.push_back(std::move(images.samples[i]));
  size_t named = 0;
  for (const auto& [place, why] : images.damaged.all())
    if (named++ < kNamedSamples) std::fprintf(stderr, "plimsoll: skipped: %s\n", why.c_str());
  std::fprintf(stderr, "plimsoll: %s: skipped %zu samples in all, %zu are left\n",
               images.files[0].path().c_str(), named, whole.size());
  if (whole.empty())
    throw DataError("[tar] " + images.files[0].path() +
                    ": expected a sample that is whole, received none");
  images.samples = std::move(whole);
  images.damaged = {};
}

int32_t read_label(const TarImages& images, int64_t i) {
  const TarImages::Sample& sample = images.samples[static_cast<size_t>(i)];
  const std::string where = "[tar] " + images.name(i) + ".cls";
  char text[16] = {};
  if (sample.label.bytes > static_cast<Bytes>(sizeof(text)))
    throw DataError(where + ": expected a number, received " + format_bytes(sample.label.bytes));
  images.files[static_cast<size_t>(sample.file)].pread_exact(text, sample.label.bytes,
                                                             sample.label.at);
  std::string_view digits(text, static_cast<size_t>(sample.label.bytes));
  while (!digits.empty() && (digits.back() == '\n' || digits.back() == '\r'))
    digits.remove_suffix(1);
  const int64_t label = parse_integer(digits, where);
  if (label < 0 || label > INT32_MAX)
    throw DataError(where + ": expected a class from 0 to 2^31 - 1, received " +
                    std::to_string(label));
  return static_cast<int32_t>(label);
}

Dataset decoded(const std::shared_ptr<const TarImages>& images,
                const std::vector<std::string>& files, const TarImageOptions& options) {
  expect_image_size("tar_image_dataset", options.image_size);
  const ImageSize size = options.image_size;
  const Bytes scratch = options.scratch > 0 ? options.scratch : kDecodeScratch;
  const DecodeOptions decode{.size = size, .antialias = options.antialias, .scratch = scratch};
  const ElementSpec spec{
      {{"x", Dtype::uint8, Shape{size.height, size.width, 3}}, {"y", Dtype::int32, Shape()}}};
  const auto read = [images, spec](const Element& in, const DecodeOptions& how) {
    const int64_t i = *in[0].data_as<int64_t>();
    images->damaged.raise(i);
    Tensor x(Meta{Dtype::uint8, spec.fields[0].shape}), y(Meta{Dtype::int32, Shape()});
    decode_image(images->image(i), how, x.data_as<uint8_t>());
    *y.data_as<int32_t>() = read_label(*images, i);
    return Element{x, y};
  };
  MapFacts facts{.spec = spec,
                 .parallel = parallel_calls(
                     {.num_parallel_calls = options.num_parallel_calls, .name = "decode_image"}),
                 .scratch = scratch,
                 .beside = images->bytes(),
                 .key = decode_key(decode, {}),
                 .contents = [files] { return files_identity(files); }};
  const auto function = [read, decode](const Element& in, uint64_t) { return read(in, decode); };
  if (options.scratch == 0)
    facts.roomy = [read, decode](const Element& in, uint64_t, Bytes room) {
      DecodeOptions how = decode;
      how.scratch = room;
      return read(in, how);
    };
  const Dataset numbers = Dataset::range(static_cast<int64_t>(images->samples.size()));
  return Dataset(map_stage(numbers.stage(), function, std::move(facts), "decode_image"));
}

}  // namespace

Dataset tar_image_dataset(const std::vector<std::string>& files, const TarImageOptions& options) {
  return decoded(index_images(files), files, options);
}

std::unique_ptr<Source> tar_image_source(const std::vector<std::string>& files, ImageSize size,
                                         int threads, OnError on_error) {
  const std::shared_ptr<TarImages> images = index_images(files);
  const auto scratch = [&](int64_t i) {
    return images->damaged.all().contains(i) ? 0 : decode_scratch(images->image(i), size);
  };
  const Bytes most = scan_headers(
      static_cast<int64_t>(images->samples.size()), scratch,
      [&](int64_t i) { return images->name(i); },
      [&](int64_t i, const DataError& error) { images->damaged.add(i, error.what()); });
  const auto& damaged = images->damaged.all();
  if (!damaged.empty() && on_error == OnError::stop) throw DataError(damaged.begin()->second);
  if (!damaged.empty()) drop_damaged(*images);
  return indexed_source(
      decoded(images, files, {.image_size = size, .scratch = std::max<Bytes>(1, most)}),
      {.threads = threads, .name = files[0], .skip_errors = on_error == OnError::skip});
}

}  // namespace pl
