// Ledger: the bytes of one running pipeline. A part of the budget, the floor, is set aside for
// running one element at a time; the rest is lent to work done ahead of the consumer. Nobody waits
// for memory: a loan is given or refused at once.
#pragma once

#include <memory>
#include <mutex>

#include "tensor/value_memory.h"

namespace pl {

struct LedgerFigures {
  Bytes budget = 0, floor = 0;
  Bytes ahead = 0, ahead_peak = 0;  // lent now, and the most ever
  int64_t refusals = 0;             // of loans
  Bytes payload_peak = 0;           // the most that elements ever held; never above the budget
};

class Ledger;

// Bytes lent for one element that is made ahead; given back with the object.
class Loan {
 public:
  Loan() = default;
  Loan(Ledger* ledger, Bytes bytes) : ledger_(ledger), bytes_(bytes) {}
  Loan(Loan&& other) noexcept { *this = std::move(other); }
  Loan& operator=(Loan&& other) noexcept;
  ~Loan() { settle(0); }
  explicit operator bool() const { return ledger_ != nullptr; }
  // What the element turned out to need, at most what was lent; 0: all goes back.
  void settle(Bytes bytes) noexcept;

 private:
  Ledger* ledger_ = nullptr;
  Bytes bytes_ = 0;
};

class Ledger {
 public:
  // floor <= budget.
  Ledger(Bytes budget, Bytes floor);
  // A false Loan: there is no room ahead now.
  Loan try_ahead(Bytes bytes);
  // Where payloads lie.
  const std::shared_ptr<ValueMemory>& memory() const { return memory_; }
  LedgerFigures figures() const;

 private:
  friend class Loan;
  void give_back(Bytes bytes) noexcept;

  mutable std::mutex mutex_;
  std::shared_ptr<ValueMemory> memory_;
  LedgerFigures figures_;
};

// Bytes that a library takes from the heap for a while, counted as payload. Throws DoesNotFit.
class HeapCharge {
 public:
  HeapCharge(Bytes bytes, const std::string& what);
  ~HeapCharge();
  HeapCharge(const HeapCharge&) = delete;
  HeapCharge& operator=(const HeapCharge&) = delete;

 private:
  std::shared_ptr<ValueMemory> memory_;  // the one in scope; null: not counted
  Bytes bytes_;
};

}  // namespace pl
