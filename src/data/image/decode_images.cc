// decode_images: a field of bytes becomes an image.
#include <algorithm>

#include "base/error.h"
#include "data/image/image.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/stages.h"

namespace pl {

Dataset decode_images(const Dataset& data, const std::string& field, const DecodeOptions& decode,
                      const MapOptions& options,
                      const std::optional<ResizedCropOptions>& random_crop) {
  MapOptions map = options;
  if (map.name == "map") map.name = "decode_images";
  ElementSpec spec = data.element_spec();
  const auto at = std::find_if(spec.fields.begin(), spec.fields.end(),
                               [&](const FieldSpec& f) { return f.name == field; });
  if (at == spec.fields.end() || at->dtype != Dtype::uint8)
    throw UserError("[data] " + map.name + ": expected bytes in a field " + field +
                    ", received elements of " + spec.text() + "; name the field that has them");
  expect_image_size(map.name.c_str(), decode.size);
  at->shape = Shape{decode.size.height, decode.size.width, 3};
  const auto place = static_cast<size_t>(at - spec.fields.begin());
  const Meta meta{Dtype::uint8, at->shape};
  MapFacts facts{.spec = spec,
                 .parallel = parallel_calls(map),
                 .max_bytes = map.max_bytes.value(),
                 .bytes_per_byte = 1,  // the other fields are the input's
                 .more_bytes = meta.bytes(),
                 .scratch = map.scratch.value() > 0 ? map.scratch.value() : decode.scratch,
                 .beside = map.beside.value(),
                 .random = random_crop.has_value(),
                 .key = map.key + "|" + field + "|" + decode_key(decode, random_crop)};
  const auto read = [place, meta](const Element& in, const DecodeOptions& how) {
    Element out = in;
    out[place] = Tensor(meta);
    decode_image("an image", in[place], how, out[place].data_as<uint8_t>());
    return out;
  };
  const auto function = [read, decode, random_crop](const Element& in, uint64_t number) {
    return read(in, random_crop ? with_random_crop(decode, *random_crop, number) : decode);
  };
  if (map.scratch.value() == 0 && decode.scratch == kDecodeScratch)
    facts.roomy = [read, decode, random_crop](const Element& in, uint64_t number, Bytes room) {
      DecodeOptions how = random_crop ? with_random_crop(decode, *random_crop, number) : decode;
      how.scratch = room;
      return read(in, how);
    };
  return Dataset(map_stage(data.stage(), function, std::move(facts), map.name))
      .with_options(data.options());
}

}  // namespace pl
