// Generator<T>: a C++20 coroutine that yields values, for Dataset::from_generator.
//   Generator<Element> rows() { while (...) co_yield Element(1, make_row()); }
// (GCC 12 cannot compile a braced list behind co_yield.)
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace pl {

template <class T>
class Generator {
 public:
  struct promise_type {
    std::optional<T> value;
    std::exception_ptr error;
    Generator get_return_object() {
      return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(T made) {
      value = std::move(made);
      return {};
    }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Generator(Generator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Generator& operator=(Generator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Generator() {
    if (handle_) handle_.destroy();
  }

  // Nothing: the end. Throws what the coroutine threw.
  std::optional<T> operator()() {
    if (!handle_ || handle_.done()) return {};
    handle_.promise().value.reset();
    handle_.resume();
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    return std::exchange(handle_.promise().value, std::nullopt);
  }

 private:
  explicit Generator(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace pl
