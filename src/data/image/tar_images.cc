// Images in tar shards (WebDataset): decoded out of the archives, each by number.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "data/csv.h"
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
  Bytes longest = 1;  // image

  std::string name(int64_t i) const {
    const Sample& sample = samples[static_cast<size_t>(i)];
    return files[static_cast<size_t>(sample.file)].path() + ": " + sample.key;
  }
  Bytes bytes() const {
    Bytes sum = 0;
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

std::shared_ptr<const TarImages> index_images(const std::vector<std::string>& files) {
  auto images = std::make_shared<TarImages>();
  for (const std::string& path : files) {
    images->files.push_back(File::open(path));
    const auto number = static_cast<int32_t>(images->files.size()) - 1;
    for (const TarSample& sample : group_tar(index_tar(images->files.back()), path)) {
      const TarEntry* image = nullptr;
      for (const char* part : kImageParts)
        if (!image) image = find_part(sample, part);
      const TarEntry* label = find_part(sample, "cls");
      if (!image || !label)
        throw DataError("[tar] " + path + ": sample " + sample.key +
                        ": expected an image (.jpg, .jpeg, .png or .bmp) and a class (.cls), "
                        "received " +
                        (image ? "no class" : "no image") + "; tar_dataset reads other parts");
      images->longest = std::max(images->longest, image->bytes);
      images->samples.push_back(
          {number, {image->at, image->bytes}, {label->at, label->bytes}, sample.key});
    }
  }
  return images;
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

}  // namespace

Dataset tar_image_dataset(const std::vector<std::string>& files, const TarImageOptions& options) {
  if (files.empty())
    throw UserError(
        "[data] tar_image_dataset: expected files, received none; list_files(pattern) finds them");
  expect_image_size("tar_image_dataset", options.image_size);
  const std::shared_ptr<const TarImages> images = index_images(files);
  const ImageSize size = options.image_size;
  const Bytes scratch = options.scratch > 0 ? options.scratch : kDecodeScratch;
  const DecodeOptions decode{.size = size, .antialias = options.antialias, .scratch = scratch};
  const ElementSpec spec{
      {{"x", Dtype::uint8, Shape{size.height, size.width, 3}}, {"y", Dtype::int32, Shape()}}};
  const auto read = [images, spec](const Element& in, const DecodeOptions& how) {
    const int64_t i = *in[0].data_as<int64_t>();
    const TarImages::Sample& sample = images->samples[static_cast<size_t>(i)];
    Tensor x(Meta{Dtype::uint8, spec.fields[0].shape}), y(Meta{Dtype::int32, Shape()});
    const Tensor file(Meta{Dtype::uint8, Shape{sample.image.bytes}});
    images->files[static_cast<size_t>(sample.file)].pread_exact(file.data(), sample.image.bytes,
                                                                sample.image.at);
    decode_image(images->name(i), file, how, x.data_as<uint8_t>());
    *y.data_as<int32_t>() = read_label(*images, i);
    return Element{x, y};
  };
  MapFacts facts{.spec = spec,
                 .parallel = parallel_calls(
                     {.num_parallel_calls = options.num_parallel_calls, .name = "decode_image"}),
                 .scratch = scratch + granted(images->longest),
                 .beside = images->bytes(),
                 .key = decode_key(decode, {}),
                 .contents = [files] { return files_identity(files); }};
  const auto function = [read, decode](const Element& in, uint64_t) { return read(in, decode); };
  if (options.scratch == 0)
    facts.roomy = [read, decode, file = granted(images->longest)](const Element& in, uint64_t,
                                                                  Bytes room) {
      DecodeOptions how = decode;
      how.scratch = room - file;
      return read(in, how);
    };
  const Dataset numbers = Dataset::range(static_cast<int64_t>(images->samples.size()));
  return Dataset(map_stage(numbers.stage(), function, std::move(facts), "decode_image"));
}

std::unique_ptr<Source> tar_image_source(const std::vector<std::string>& files, ImageSize size,
                                         int threads, OnError on_error) {
  return indexed_source(
      tar_image_dataset(files, {.image_size = size}),
      {.threads = threads, .name = files[0], .skip_errors = on_error == OnError::skip});
}

}  // namespace pl
