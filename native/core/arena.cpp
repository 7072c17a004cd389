#include "arena.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#elif defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace greenroom {
namespace {

#if defined(__linux__)
constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;
constexpr int kMaxNodes = 1024;
constexpr int kPreferred = 1; // MPOL_PREFERRED of <linux/mempolicy.h>: a full node spills over instead of failing
#endif

} // namespace

Arena::Arena(size_t nbytes) : nbytes_(nbytes) {
  if (nbytes == 0)
    return;
  if (nbytes > std::numeric_limits<size_t>::max() / 4)
    throw std::bad_alloc();
#ifdef _WIN32
  data_ = static_cast<std::byte*>(VirtualAlloc(nullptr, nbytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
  if (!data_)
    throw std::bad_alloc();
#elif defined(__linux__)
  // Huge pages need an aligned start; what is cut off around it goes back at once.
  const size_t slack = nbytes >= kHugePage ? kHugePage : 0;
  const size_t length = (nbytes + kPage - 1) / kPage * kPage;
  void* raw = mmap(nullptr, length + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED)
    throw std::bad_alloc();
  auto* start = static_cast<std::byte*>(raw);
  if (slack) {
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(raw) % kHugePage) % kHugePage;
    if (skip)
      munmap(start, skip);
    if (slack - skip)
      munmap(start + skip + length, slack - skip);
    start += skip;
    madvise(start, length, MADV_HUGEPAGE);
  }
  data_ = start;
#elif defined(__unix__) || defined(__APPLE__)
  void* raw = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
  if (raw == MAP_FAILED)
    throw std::bad_alloc();
  data_ = static_cast<std::byte*>(raw);
#else
  data_ = static_cast<std::byte*>(::operator new(nbytes, std::align_val_t{64}));
  std::memset(data_, 0, nbytes);
#endif
}

void Arena::release() {
  if (!data_)
    return;
#ifdef _WIN32
  VirtualFree(data_, 0, MEM_RELEASE);
#elif defined(__linux__)
  munmap(data_, (nbytes_ + kPage - 1) / kPage * kPage);
#elif defined(__unix__) || defined(__APPLE__)
  munmap(data_, nbytes_);
#else
  ::operator delete(data_, std::align_val_t{64});
#endif
  data_ = nullptr;
}

Arena::~Arena() {
  release();
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)),
      locked_(std::exchange(other.locked_, false)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other)
    return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  nbytes_ = std::exchange(other.nbytes_, 0);
  locked_ = std::exchange(other.locked_, false);
  return *this;
}

bool Arena::lock() {
  if (locked_ || !data_)
    return locked_;
#ifdef _WIN32
  locked_ = VirtualLock(data_, nbytes_) != 0;
#elif defined(__unix__) || defined(__APPLE__)
  locked_ = mlock(data_, nbytes_) == 0;
#endif
  return locked_;
}

bool Arena::bind(size_t offset, size_t nbytes, int node) {
#if defined(__linux__) && defined(SYS_mbind)
  if (!data_ || node < 0 || node >= kMaxNodes || offset > nbytes_ || nbytes > nbytes_ - offset)
    return false;
  const size_t first = (offset + kPage - 1) / kPage * kPage, last = (offset + nbytes) / kPage * kPage;
  if (first >= last)
    return true;
  constexpr int kBits = 8 * sizeof(unsigned long);
  unsigned long mask[kMaxNodes / kBits] = {};
  mask[node / kBits] = 1ul << (node % kBits);
  // The system counts one bit less than it is told.
  return syscall(SYS_mbind, data_ + first, last - first, kPreferred, mask, kMaxNodes + 1ul, 0) == 0;
#else
  (void)offset, (void)nbytes, (void)node;
  return false;
#endif
}

} // namespace greenroom
