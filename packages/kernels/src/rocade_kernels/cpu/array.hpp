// A growable array of trivially copyable values on malloc: no exceptions, so the library needs no C++
// runtime.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace rk {

// Allocation failure sticks: `failed()` stays true and later pushes are dropped, so callers check once at the
// end.
template <class T> class Array {
public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { free(data_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  bool failed() const { return failed_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

  bool reserve(int64_t capacity) {
    if (capacity <= capacity_)
      return true;
    void* grown = realloc(static_cast<void*>(data_), static_cast<size_t>(capacity) * sizeof(T));
    if (grown == nullptr)
      return !(failed_ = true);
    data_ = static_cast<T*>(grown);
    capacity_ = capacity;
    return true;
  }
  // New elements are not initialised.
  bool resize(int64_t size) {
    if (!reserve(size))
      return false;
    size_ = size;
    return true;
  }
  bool resize_zeroed(int64_t size) {
    if (!resize(size))
      return false;
    if (size > 0)
      memset(static_cast<void*>(data_), 0, static_cast<size_t>(size) * sizeof(T));
    return true;
  }
  void swap(Array& other) {
    Array kept;
    memcpy(static_cast<void*>(&kept), this, sizeof *this);
    memcpy(static_cast<void*>(this), &other, sizeof *this);
    memcpy(static_cast<void*>(&other), &kept, sizeof *this);
    memset(static_cast<void*>(&kept), 0, sizeof kept);
  }
  void push(const T& value) {
    if (T* slot = add())
      *slot = value;
  }
  // A new last element to write, or null. A large struct is written in place this way: built on the stack
  // first, it would be copied with loads wider than the stores before them, which the processor waits for.
  T* add() {
    if (size_ == capacity_ && !reserve(capacity_ < 16 ? 16 : 2 * capacity_))
      return nullptr;
    return data_ + size_++;
  }

private:
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  bool failed_ = false;
};

} // namespace rk
