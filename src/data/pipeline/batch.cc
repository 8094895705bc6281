// batch, unbatch, rebatch, window: elements put together and taken apart.
#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>

#include "base/error.h"
#include "data/pipeline/groups.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

// Elements of one shape, each copied into its row as it comes.
class Stack {
 public:
  Stack(const std::string& stage, int64_t rows) : stage_(stage), rows_(rows) {}
  int64_t count() const { return count_; }
  void add(const Element& element) {
    if (count_ == 0) {
      row_.clear();
      out_.reserve(element.size());
      for (const Tensor& tensor : element) {
        row_.push_back(tensor.meta());
        out_.emplace_back(Meta{tensor.dtype(), tensor.shape().with_front(rows_)});
      }
    }
    for (size_t f = 0; f < element.size(); ++f) {
      const Meta& row = row_[f];
      if (element[f].meta() != row)
        throw DataError("[data] " + stage_ + ": expected elements of one shape, " + row.text() +
                        " as the first of the batch, received " + element[f].meta().text() +
                        "; padded_batch takes elements of different shapes");
      const auto bytes = static_cast<size_t>(row.bytes());
      std::memcpy(out_[f].data_as<char>() + static_cast<size_t>(count_) * bytes, element[f].data(),
                  bytes);
    }
    ++count_;
  }
  // What there is, which may be fewer rows than there is room for.
  Element take() {
    if (count_ < rows_)
      for (Tensor& tensor : out_)
        tensor = Tensor(Meta{tensor.dtype(), tensor.shape().without_front().with_front(count_)},
                        tensor.buffer());
    count_ = 0;
    return std::exchange(out_, {});
  }

 private:
  const std::string& stage_;
  const int64_t rows_;
  int64_t count_ = 0;
  Metas row_;  // of the first
  Element out_;
};

class Batch final : public Stage {
 public:
  Batch(StageRef input, int64_t size, bool drop)
      : Stage("batch", {std::move(input)}), size_(size), drop_(drop) {
    const int64_t count = this->input().cardinality();
    const bool whole = drop || count == kInfiniteCardinality || (count > 0 && count % size == 0);
    spec_ = with_front(this->input().spec(), whole ? size : kUnknown);
    cardinality_ = groups(count, size, drop);
    indexable_ = this->input().indexable();
  }
  // Fewer than asked for where there are no more.
  int64_t most_rows() const {
    const int64_t count = input().cardinality();
    return count >= 0 ? std::clamp<int64_t>(count, 1, size_) : size_;
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    const ElementSpec& in = input().spec();
    return in.known() ? rows_bytes(in, most_rows()) : times(most_rows(), input().out_bytes(sizing));
  }
  Bytes once(const Sizing& sizing) const override {
    return input().once(sizing) + out_bytes(sizing);
  }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + out_bytes(sizing);
  }
  Rows rows() const override { return rows_of(input().cardinality(), size_, drop_); }
  std::string options() const override {
    return std::to_string(size_) + (drop_ ? ", drop_remainder" : "");
  }
  std::string decides() const override { return options(); }

  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    const int64_t begin = i * size_, count = input().cardinality();
    const int64_t end = begin + (count >= 0 ? std::min(size_, count - begin) : size_);
    if (direct()) return put_rows(run, epoch, i * size_, end);
    Stack stack(name_, end - i * size_);
    for (int64_t k = i * size_; k < end; ++k) stack.add(input().get(run, epoch, k));
    return stack.take();
  }

  // Rows go straight into the batch.
  bool direct() const { return indexable_ && input().puts() && input().spec().known(); }
  Element put_rows(Run& run, uint64_t epoch, int64_t begin, int64_t end) const {
    Element out;
    std::vector<char*> places;
    std::vector<Bytes> steps;
    for (const FieldSpec& field : input().spec().fields) {
      Tensor& tensor = out.emplace_back(Meta{field.dtype, field.shape.with_front(end - begin)});
      places.push_back(tensor.data_as<char>());
      steps.push_back(field.known_bytes());
    }
    for (int64_t k = begin; k < end; ++k) {
      input().put(run, epoch, k, places);
      for (size_t f = 0; f < places.size(); ++f) places[f] += steps[f];
    }
    run.figures(input()).elements += end - begin;
    return out;
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    if (direct()) return Stage::iterate(run, epoch);
    class Iterate final : public Iterator {
     public:
      Iterate(const Batch& node, Run& run, uint64_t epoch)
          : node_(node), input_(node.input().iterate(run, epoch)), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        pass();
        Stack stack(node_.name(), node_.most_rows());
        // A batch with an element that fails is lost as a whole, and the next one begins where it
        // would have: so they are the same whether they are made by index or not.
        left_ = node_.size_;
        for (Element in; stack.count() < node_.most_rows();) {
          --left_;
          if (!input_->next(in)) break;
          stack.add(in);
        }
        left_ = 0;
        if (stack.count() == 0 || (node_.drop_ && stack.count() < node_.size_)) return false;
        out = stack.take();
        ++figures_.elements;
        return true;
      }
      int64_t advance(int64_t count) override {
        pass();
        // More than there are comes to the end, by whatever number.
        if (count > INT64_MAX / node_.size_) count = INT64_MAX / node_.size_;
        return groups(input_->advance(count * node_.size_), node_.size_, node_.drop_);
      }

     private:
      void pass() {
        if (left_ > 0) input_->advance(std::exchange(left_, 0));
      }
      const Batch& node_;
      IteratorRef input_;
      StageFigures& figures_;
      int64_t left_ = 0;  // elements of a batch that failed
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  int64_t size_;
  bool drop_;
};

class Unbatch final : public Stage {
 public:
  explicit Unbatch(StageRef input) : Stage("unbatch", {std::move(input)}) {
    for (const FieldSpec& field : this->input().spec().fields)
      if (field.shape.rank() < 1)
        throw UserError("[data] " + name_ + ": expected elements with rows, received " +
                        field.text() + "; batch() them first, or leave unbatch out");
    spec_ = without_front(this->input().spec());
    const int64_t count = this->input().cardinality();
    const Dim rows =
        this->input().spec().fields.empty() ? kUnknown : this->input().spec().fields[0].shape[0];
    if (rows != kUnknown && count >= 0 && count < (int64_t{1} << 40) && rows < (1 << 20))
      cardinality_ = count * rows;
    if (count == kInfiniteCardinality) cardinality_ = count;
  }
  Bytes out_bytes(const Sizing& sizing) const override {
    return spec_.known() ? granted(spec_) : input().out_bytes(sizing);
  }
  Bytes once(const Sizing& sizing) const override { return floor(sizing); }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + out_bytes(sizing);
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Unbatch& node, Run& run, uint64_t epoch)
          : node_(node), input_(node.input().iterate(run, epoch)), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        if (!load()) return false;
        for (const Tensor& tensor : batch_) {
          const Meta meta{tensor.dtype(), tensor.shape().without_front()};
          Tensor row(meta);
          const auto bytes = static_cast<size_t>(meta.bytes());
          std::memcpy(row.data(), tensor.data_as<char>() + static_cast<size_t>(row_) * bytes,
                      bytes);
          out.push_back(row);
        }
        ++row_;
        ++figures_.elements;
        return true;
      }
      int64_t advance(int64_t count) override {
        int64_t done = 0;
        while (done < count) {
          try {
            if (!load()) break;
          } catch (const DataError&) {  // a batch that fails has one place
            ++done;
            continue;
          }
          const int64_t step = std::min(count - done, rows_ - row_);
          row_ += step;
          done += step;
        }
        return done;
      }

     private:
      bool load() {
        while (row_ >= rows_) {
          batch_.clear();
          rows_ = row_ = 0;
          if (!input_->next(batch_)) return false;
          rows_ = batch_[0].shape()[0];
          for (const Tensor& tensor : batch_)
            if (tensor.shape()[0] != rows_) {
              rows_ = 0;
              throw DataError("[data] " + node_.name() +
                              ": expected as many rows in every field, received " +
                              batch_[0].meta().text() + " and " + tensor.meta().text() +
                              "; cut or map them to one number");
            }
        }
        return true;
      }

      const Unbatch& node_;
      IteratorRef input_;
      StageFigures& figures_;
      Element batch_;
      int64_t row_ = 0, rows_ = 0;
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }
};

// Whole windows only: element i is the stack of input elements i * shift + j * stride.
class Window final : public Stage {
 public:
  Window(StageRef input, int64_t size, int64_t shift, int64_t stride)
      : Stage("window", {std::move(input)}), size_(size), shift_(shift), stride_(stride) {
    spec_ = with_front(this->input().spec(), size);
    const int64_t count = this->input().cardinality();
    cardinality_ = count < 0 ? count : count < span() ? 0 : (count - span()) / shift + 1;
    indexable_ = this->input().indexable();
  }
  int64_t span() const { return (size_ - 1) * stride_ + 1; }
  Bytes out_bytes(const Sizing& sizing) const override {
    return spec_.known() ? granted(spec_) : times(size_, input().out_bytes(sizing));
  }
  Bytes once(const Sizing& sizing) const override {
    return input().once(sizing) + out_bytes(sizing);
  }
  Bytes floor(const Sizing& sizing) const override {
    return input().floor(sizing) + times(span(), input().out_bytes(sizing)) + out_bytes(sizing);
  }
  std::string options() const override {
    return std::to_string(size_) + ", shift " + std::to_string(shift_) +
           (stride_ == 1 ? "" : ", stride " + std::to_string(stride_));
  }
  std::string decides() const override { return options(); }
  Element get(Run& run, uint64_t epoch, int64_t i) const override {
    Stack stack(name_, size_);
    for (int64_t j = 0; j < size_; ++j)
      stack.add(input().get(run, epoch, i * shift_ + j * stride_));
    return stack.take();
  }

  IteratorRef iterate(Run& run, uint64_t epoch) const override {
    class Iterate final : public Iterator {
     public:
      Iterate(const Window& node, Run& run, uint64_t epoch)
          : node_(node), input_(node.input().iterate(run, epoch)), figures_(run.figures(node)) {}
      bool next(Element& out) override {
        out.clear();
        for (; pass_ > 0 && !held_.empty(); --pass_) held_.pop_front();
        if (pass_ > 0 && input_->advance(pass_) < pass_) return false;
        pass_ = 0;
        while (static_cast<int64_t>(held_.size()) < node_.span())
          if (!hold()) return false;
        pass_ = node_.shift_;  // whether it fails or not
        ++at_;
        Stack stack(node_.name(), node_.size_);
        for (int64_t j = 0; j < node_.size_; ++j) {
          const Held& held = held_[static_cast<size_t>(j * node_.stride_)];
          if (held.error) std::rethrow_exception(held.error);
          stack.add(held.element);
        }
        out = stack.take();
        ++figures_.elements;
        return true;
      }
      // What lies in front of a window need not be seen, where it is known that there is one.
      int64_t advance(int64_t count) override {
        if (node_.cardinality() < 0) return Iterator::advance(count);
        count = std::min(count, node_.cardinality() - at_);
        at_ += count;
        pass_ += count * node_.shift_;
        return count;
      }

     private:
      struct Held {
        Element element;
        std::exception_ptr error;  // of every window that it is in
      };
      bool hold() {
        Held held;
        try {
          if (!input_->next(held.element)) return false;
        } catch (const DataError&) {
          held = {{}, std::current_exception()};
        }
        held_.push_back(std::move(held));
        return true;
      }
      const Window& node_;
      IteratorRef input_;
      StageFigures& figures_;
      std::deque<Held> held_;
      int64_t pass_ = 0;  // of the input, before the next window
      int64_t at_ = 0;    // windows so far
    };
    return std::make_unique<Iterate>(*this, run, epoch);
  }

 private:
  int64_t size_, shift_, stride_;
};

}  // namespace

StageRef batch_stage(StageRef input, int64_t size, bool drop_remainder) {
  expect_positive("batch", "batch_size", size);
  return std::make_shared<Batch>(std::move(input), size, drop_remainder);
}
StageRef unbatch_stage(StageRef input) { return std::make_shared<Unbatch>(std::move(input)); }
StageRef rebatch_stage(StageRef input, int64_t size, bool drop_remainder) {
  return batch_stage(unbatch_stage(std::move(input)), size, drop_remainder);
}
StageRef window_stage(StageRef input, int64_t size, int64_t shift, int64_t stride) {
  expect_positive("window", "size", size);
  expect_positive("window", "shift", shift);
  expect_positive("window", "stride", stride);
  return std::make_shared<Window>(std::move(input), size, shift, stride);
}

}  // namespace pl
