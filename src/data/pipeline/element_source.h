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
  bool require_below(size_t field, const std::string& what, int64_t count,
                     std::optional<int64_t> allowed) override {
    limits_[field] = {what, count, allowed};
    return true;
  }

 protected:
  ElementSource(const Dataset& dataset, bool batches);
  // Rows of `tensor` to `to`.
  void copy(size_t f, const Tensor& tensor, int64_t rows, void* to) const;
  // Whether values are to be checked as they are read.
  bool limited() const;

  const Dataset dataset_;
  std::vector<Field> fields_;
  Bytes resident_ = 0;

 private:
  struct Limit {
    std::string what;
    int64_t count = 0;
    std::optional<int64_t> allowed;
  };
  void add_field(const FieldSpec& given, size_t f, bool batches);
  void check_limit(const Limit& limit, const Tensor& tensor, int64_t elements) const;

  std::vector<Limit> limits_;
};

}  // namespace pl
