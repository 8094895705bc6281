#include "train/feeder.h"

#include <algorithm>
#include <utility>

#include "train/batch_facts.h"

namespace pl {
namespace {

void list_samples(std::vector<int64_t>& to, const Permutation* order, int64_t begin, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i)
    to[static_cast<size_t>(i)] = order ? (*order)(begin + i) : begin + i;
}

}  // namespace

Feeder::Feeder(int64_t batch, const Source& source) {
  indices_.resize(static_cast<size_t>(batch));
  next_.resize(static_cast<size_t>(batch));
  places_.resize(source.fields().size());
}

void Feeder::feed(Session& session, size_t signature, Source& source, const Permutation* order,
                  int64_t begin, int64_t rows) {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (std::exchange(ahead_, {}) == Batch{begin, rows}) return;
  session.drop_ahead();
  read(session, signature, source, order, begin, rows);
}

void Feeder::feed_ahead(Session& session, size_t signature, Source& source,
                        const Permutation* order, int64_t begin, int64_t rows) {
  session.begin_ahead();
  try {
    read(session, signature, source, order, begin, rows);
    session.send_ahead(signature);
    ahead_ = {begin, rows};
  } catch (...) {
    session.drop_ahead();
    failure_ = std::current_exception();
  }
}

void Feeder::read(Session& session, size_t signature, Source& source, const Permutation* order,
                  int64_t begin, int64_t rows) {
  // A pass begins at 0, which none was told to expect: what is listed is of this pass.
  if (std::exchange(listed_, {}) == Batch{begin, rows})
    std::swap(indices_, next_);
  else
    list_samples(indices_, order, begin, rows);
  const bool predicting = session.plan().signatures[signature].kind == StepKind::predict;
  for (size_t f = 0; f < places_.size(); ++f) {
    const bool wanted = !predicting || source.fields()[f].role == Role::x;
    places_[f] = wanted ? session.input(signature, f) : nullptr;
  }
  source.read({indices_.data(), static_cast<size_t>(rows)}, places_);
  if (!predicting) write_facts(session, signature, places_.size());
  const int64_t more = std::min(rows, source.size() - begin - rows);
  list_samples(next_, order, begin + rows, more);
  if (more > 0) listed_ = {begin + rows, more};
  source.expect({next_.data(), static_cast<size_t>(more)});
}

}  // namespace pl
