// Numbers that index: labels below a number of classes, tokens below a vocabulary.
#pragma once

#include <optional>
#include <string>

#include "tensor/shape.h"

namespace pl {

class Source;

// Of a field: whole numbers in [0, count), or `allowed`. None while count is 0.
struct ClassLimit {
  std::string what;  // "labels of dense"
  int64_t count = 0;
  std::optional<int64_t> allowed;  // such as ignore_class
};

// The first of a sample's values that breaks the limit, as text; empty: none does.
std::string outside(const ClassLimit& limit, const void* values, const Meta& sample);

// Throws DataError that names the source and the sample where a value breaks the limit; `note` ends
// the message. Allocates nothing else.
void check_limit(const ClassLimit& limit, const Source& source, const void* values,
                 const Meta& sample, int64_t index, const std::string& note = {});

}  // namespace pl
