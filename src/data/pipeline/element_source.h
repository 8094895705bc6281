// What both kinds of sources over pipelines share: what elements are to a model, labels checked and
// converted as they come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/dataset_source.h"

namespace pl {

class ElementSource : public Source {
 public:
  const std::vector<Field>& fields() const override { return fields_; }
  std::string name() const override { return dataset_.stage()->name(); }
  Bytes resident_bytes() const override { return resident_; }
  bool require_below(size_t field, const ClassLimit& limit) override {
    limits_[field] = limit;
    return true;
  }

 protected:
  ElementSource(const Dataset& dataset, bool batches);
  // Rows of `tensor`, from sample `first` on, to `to`.
  void copy(size_t f, const Tensor& tensor, int64_t first, int64_t rows, void* to) const;
  // Whether values are to be checked as they are read.
  bool limited() const;

  const Dataset dataset_;
  std::vector<Field> fields_;
  Bytes resident_ = 0;

 private:
  void add_field(const FieldSpec& given, size_t f, bool batches);

  std::vector<ClassLimit> limits_;
};

}  // namespace pl
