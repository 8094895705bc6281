#include "data/pipeline/shelf.h"

#include <cstring>
#include <utility>

namespace pl {
namespace {

Bytes stride_of(const ElementSpec& spec) {
  Bytes stride = 0;
  for (const FieldSpec& field : spec.fields) stride += field.known_bytes();
  return stride;
}

}  // namespace

Bytes Shelf::bytes(const ElementSpec& spec, int64_t places, Bytes element) {
  const Bytes each = spec.known() ? stride_of(spec) : element;
  return granted(times(places, each));
}

Shelf::Shelf(const ElementSpec& spec, int64_t places) : spec_(spec) {
  if (!spec.known()) return;  // loose ones come to be with what is put there
  for (const FieldSpec& field : spec.fields) sizes_.push_back(field.known_bytes());
  stride_ = stride_of(spec);
  block_.emplace(Meta{Dtype::uint8, Shape{places * stride_}});
}

void Shelf::put(int64_t place, Element element) {
  if (!block_) {
    if (static_cast<size_t>(place) >= loose_.size()) loose_.resize(static_cast<size_t>(place) + 1);
    loose_[static_cast<size_t>(place)] = std::move(element);
    return;
  }
  char* to = block_->data_as<char>() + place * stride_;
  for (size_t f = 0; f < sizes_.size(); ++f) {
    std::memcpy(to, element[f].data(), static_cast<size_t>(sizes_[f]));
    to += sizes_[f];
  }
}

Element Shelf::copy(int64_t place) const {
  if (!block_) return loose_[static_cast<size_t>(place)];
  Element out;
  const char* from = block_->data_as<char>() + place * stride_;
  for (size_t f = 0; f < sizes_.size(); ++f) {
    Tensor& tensor = out.emplace_back(Meta{spec_.fields[f].dtype, spec_.fields[f].shape});
    std::memcpy(tensor.data(), from, static_cast<size_t>(sizes_[f]));
    from += sizes_[f];
  }
  return out;
}

Element Shelf::take(int64_t place) {
  return block_ ? copy(place) : std::exchange(loose_[static_cast<size_t>(place)], {});
}

void Shelf::move(int64_t from, int64_t to) {
  if (from == to) return;
  if (block_)
    std::memcpy(block_->data_as<char>() + to * stride_, block_->data_as<char>() + from * stride_,
                static_cast<size_t>(stride_));
  else
    loose_[static_cast<size_t>(to)] = std::exchange(loose_[static_cast<size_t>(from)], {});
}

}  // namespace pl
