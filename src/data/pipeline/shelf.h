// Shelf: a fixed number of places for elements. Where the signature is known they lie packed in one
// block, so that a million small elements cost their bytes and no more.
#pragma once

#include <optional>
#include <vector>

#include "data/pipeline/spec.h"

namespace pl {

class Shelf {
 public:
  // What the ledger must give; `element`: the bound of one whose dimensions are not known.
  static Bytes bytes(const ElementSpec& spec, int64_t places, Bytes element);

  Shelf(const ElementSpec& spec, int64_t places);
  void put(int64_t place, Element element);
  Element copy(int64_t place) const;
  Element take(int64_t place);  // empties it
  void move(int64_t from, int64_t to);

 private:
  const ElementSpec& spec_;
  std::vector<Bytes> sizes_;  // of the fields, where the spec is known
  Bytes stride_ = 0;
  std::optional<Tensor> block_;
  std::vector<Element> loose_;
};

}  // namespace pl
