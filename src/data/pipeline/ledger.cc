#include "data/pipeline/ledger.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pl {

Loan& Loan::operator=(Loan&& other) noexcept {
  settle(0);
  ledger_ = std::exchange(other.ledger_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void Loan::settle(Bytes bytes) noexcept {
  if (!ledger_ || bytes >= bytes_) return;
  ledger_->give_back(bytes_ - bytes);
  bytes_ = bytes;
  if (bytes == 0) ledger_ = nullptr;
}

Ledger::Ledger(Bytes budget, Bytes floor) : memory_(std::make_shared<ValueMemory>(budget)) {
  check(floor <= budget, "a ledger whose budget covers its floor");
  figures_.budget = budget;
  figures_.floor = floor;
}

Loan Ledger::try_ahead(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > figures_.budget - figures_.floor - figures_.ahead) {
    ++figures_.refusals;
    return {};
  }
  figures_.ahead += bytes;
  figures_.ahead_peak = std::max(figures_.ahead_peak, figures_.ahead);
  return Loan(this, bytes);
}

void Ledger::give_back(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  figures_.ahead -= bytes;
}

LedgerFigures Ledger::figures() const {
  const std::lock_guard lock(mutex_);
  LedgerFigures figures = figures_;
  figures.payload_peak = memory_->figures().peak;
  return figures;
}

HeapCharge::HeapCharge(Bytes bytes, const std::string& what)
    : memory_(MemoryScope::current()), bytes_(bytes) {
  if (!memory_ || memory_->charge(bytes)) return;
  memory_ = nullptr;
  throw DoesNotFit(what + ": expected room for " + format_bytes(bytes) +
                   " in the pipeline's memory, received less; raise it");
}

HeapCharge::~HeapCharge() {
  if (memory_) memory_->discharge(bytes_);
}

}  // namespace pl
