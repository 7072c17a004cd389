// Anonymous memory: never backed by a file, so the system cannot drop weights and read them again from disk.
#pragma once

#include <cstddef>

namespace greenroom {

class Arena {
public:
  Arena() = default;
  // Zeroed, at least 64-byte aligned, huge pages where the system has them. Throws std::bad_alloc.
  explicit Arena(size_t nbytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }
  bool locked() const { return locked_; }
  // Keeps the pages in RAM; false when the system's limit forbids it.
  bool lock();
  // Asks for the pages of a range, which nobody may have touched yet, on one of the system's memory nodes. Pages that
  // only partly belong to the range stay out of it. False where the system has no such call or refuses it.
  bool bind(size_t offset, size_t nbytes, int node);

private:
  void release();

  std::byte* data_ = nullptr;
  size_t nbytes_ = 0;
  bool locked_ = false;
};

} // namespace greenroom
