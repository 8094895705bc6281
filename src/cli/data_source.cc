#include "cli/data_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <filesystem>

#include "base/error.h"
#include "data/array_source.h"
#include "data/cifar.h"
#include "data/csv.h"
#include "data/idx.h"
#include "data/image/header_scan.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_sources.h"

namespace pl {
namespace {

constexpr const char* kAccepted =
    "synthetic, fashion-mnist, a file or pattern of .npz, .npy, .tfrecord, .csv, .txt, .tar "
    "(WebDataset), .bin (CIFAR) or IDX (-ubyte, .idx) files, or a folder: of JPEG, PNG or BMP "
    "images with a folder for each class (or with train and val that hold them), of IDX or CIFAR "
    "files, or of .tar, .tfrecord, .csv or .txt files";

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// What a file is by its name; empty: none of them. A .gz behind it says nothing.
std::string kind_of(std::string name) {
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  for (const char* kind : {".tfrecord", ".csv", ".txt", ".tar", ".npy", ".npz", ".bin"})
    if (name.ends_with(kind)) return kind;
  if (name.ends_with(".tfrecords") || name.find(".tfrecord-") != std::string::npos)
    return ".tfrecord";  // train.tfrecord-00000-of-00010
  for (const char* end : {"-ubyte", ".idx", ".idx1", ".idx3"})
    if (name.ends_with(end)) return ".idx";
  return "";
}

// Of a folder without folders: the files of the kind that most of them are.
std::vector<std::string> shards_in(const std::string& folder) {
  std::vector<std::string> files, found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with('.')) continue;
    if (entry.is_directory(error)) return {};
    files.push_back(entry.path().string());
  }
  for (const char* kind : {".tar", ".tfrecord", ".csv", ".txt"}) {
    std::vector<std::string> of;
    std::copy_if(files.begin(), files.end(), std::back_inserter(of),
                 [&](const std::string& file) { return kind_of(file) == kind; });
    if (of.size() > found.size()) found = std::move(of);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string counted(size_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

ImageSize image_size(const DataOptions& options) {
  if (options.input.rank() != 3 || options.input[2] != 3)
    throw UserError("[options] --input: expected HxWx3 for images, received " +
                    options.input.text());
  return {options.input[0], options.input[1]};
}

// Columns of numbers, by the first row; others are named.
OpenedData open_csv_as(const std::string& first, const std::vector<std::string>& files) {
  const auto number = [](std::string_view field) {
    try {
      parse_real(field, "");
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  CsvOptions csv;
  std::vector<std::string> names = CsvReader(first, csv).columns();
  csv.header = !std::all_of(names.begin(), names.end(), number);
  CsvReader reader(first, csv);
  std::vector<std::string_view> row;
  if (!reader.next(row))
    throw DataError("[csv] " + first + ": expected rows of numbers, received none");
  std::vector<FieldSpec> columns;
  std::string others;
  for (size_t c = 0; c < row.size(); ++c) {
    const std::string name = csv.header ? names[c] : "c" + std::to_string(c);
    if (number(row[c]))
      columns.push_back({name, Dtype::float32, Shape()});
    else if (csv.header)
      others += (others.empty() ? "" : ", ") + name;
    else
      throw DataError("[csv] " + first + ": expected numbers in all columns, or a row with " +
                      "their names first, received '" + std::string(row[c]) + "'");
  }
  if (columns.empty())
    throw DataError("[csv] " + first + ": expected a column of numbers, received none; " +
                    "as lines of text, name it .txt");
  OpenedData opened{csv_dataset(files, columns, csv)};
  if (!others.empty()) opened.notes.push_back("columns without numbers are left out: " + others);
  return opened;
}

// The first file that tells decides; one that is damaged is named when it is read.
OpenedData open_csv(const std::vector<std::string>& files) {
  std::exception_ptr first;
  for (const std::string& file : files) {
    try {
      return open_csv_as(file, files);
    } catch (const DataError&) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

// By the first file that has whole records of one kind.
Dataset open_bin(const std::vector<std::string>& files) {
  constexpr Bytes kTen = 3073, kHundred = 3074;
  for (const std::string& file : files) {
    const Bytes size = File::open(file).size();
    if (size > 0 && size % kTen == 0) return cifar_dataset(files, CifarKind::cifar10);
    if (size > 0 && size % kHundred == 0) return cifar_dataset(files, CifarKind::cifar100);
  }
  throw DataError("[data] " + files[0] + ": expected CIFAR's records of 3073 or 3074 bytes, " +
                  "received a file of " + std::to_string(File::open(files[0]).size()) +
                  "; fixed_length_record_dataset reads others");
}

OpenedData open_files(const std::vector<std::string>& files, const DataOptions& options) {
  const std::string kind = kind_of(files[0]);
  for (const std::string& file : files)
    if (kind_of(file) != kind)
      throw DataError("[data] " + options.source + ": expected files of one kind, received " +
                      files[0] + " and " + file + "; give a narrower pattern");
  const auto one = [&] {
    if (files.size() != 1)
      throw DataError("[data] " + options.source + ": expected one " + kind + " file, received " +
                      counted(files.size(), "file") + "; give one of them");
    return files[0];
  };
  const ShuffleOptions order{.seed = options.seed};
  if (kind == ".tfrecord") return {tfrecord_dataset(files)};
  if (kind == ".txt") return {.samples = text_line_dataset(files), .lines = true};
  if (kind == ".csv") return open_csv(files);
  if (kind == ".tar")
    return {tar_image_dataset(files, {.image_size = image_size(options)}).shuffle(order)};
  if (kind == ".npy") return {npy_dataset(one()).shuffle(order)};
  if (kind == ".npz") return {npz_dataset(one()).shuffle(order)};
  if (kind == ".bin") return {open_bin(files).shuffle(order)};
  return {source_dataset(array_source(one(), open_idx(one()))).shuffle(order)};
}

OpenedData open_folder(const DataOptions& options) {
  const std::string& source = options.source;
  if (const std::vector<std::string> shards = shards_in(source); !shards.empty()) {
    OpenedData opened = open_files(shards, options);
    opened.notes.push_back(counted(shards.size(), kind_of(shards[0]).c_str() + 1) + " in " +
                           source);
    return opened;
  }
  const ShuffleOptions order{.seed = options.seed};
  const OnError on_error = options.skip_errors ? OnError::skip : OnError::stop;
  if (Sources cifar = cifar_sources(source, on_error); cifar.train)
    return {source_dataset(std::move(cifar.train)).shuffle(order)};
  if (!is_image_folder(source)) return {source_dataset(open_source(source).train).shuffle(order)};
  const auto list = std::make_shared<const ImageList>(list_images(train_folder(source)));
  const ImageSize size = image_size(options);
  OpenedData opened{image_dataset(list, {.batch_size = 0,
                                         .image_size = size,
                                         .seed = options.seed,
                                         .scratch = most_scratch(*list, size)})};
  opened.notes.push_back(list->text());
  return opened;
}

}  // namespace

OpenedData open_samples(const DataOptions& options) {
  const std::string& source = options.source;
  if (source == "synthetic")
    return {synthetic_dataset({.x = {Dtype::uint8, options.input},
                               .classes = 10,
                               .samples = 10'000,
                               .seed = options.seed})};
  if (source == "fashion-mnist")
    return {source_dataset(open_source(source).train).shuffle({.seed = options.seed})};
  if (is_folder(source)) return open_folder(options);
  const bool pattern = source.find_first_of("*?[") != std::string::npos;
  if ((pattern || exists(source)) && !kind_of(source).empty())
    return open_files(list_files(source), options);
  throw DataError("[data] '" + source + "': expected " + std::string(kAccepted) + ", received " +
                  (exists(source) ? "something else" : "a path that does not exist"));
}

std::vector<std::string> tar_shards(const std::string& source) {
  if (is_folder(source)) {
    std::vector<std::string> shards = shards_in(source);
    if (!shards.empty() && kind_of(shards[0]) != ".tar") shards.clear();
    return shards;
  }
  return kind_of(source) == ".tar" ? list_files(source) : std::vector<std::string>();
}

}  // namespace pl
