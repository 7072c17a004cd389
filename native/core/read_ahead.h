// How a strip is read ahead, with registers of any width. Each file that includes this gets a copy of its own. Only
// plain C headers: nothing compiled here may be shared with baseline files.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

// Every strip starts a new stream that the hardware prefetcher has to learn; 8 KB ahead hides that (measured: 0.72 of
// the read bandwidth without, 0.85 with).
constexpr size_t kAhead = 8192;

// GCC takes a function that only prefetches for one without effect, and drops calls of it.
static inline void touch(const uint8_t* p) {
#ifdef __GNUC__
  __asm__ volatile("prefetcht0 %0" : : "m"(*p));
#else
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
#endif
}

// Fetches kBytes that lie `ahead` bytes on from byte `at` of a single strip; behind its end, of the next one.
template <size_t kBytes>
static inline void prefetch(const uint8_t* strip, const uint8_t* next, size_t at, size_t total, size_t ahead) {
  const uint8_t* p = at + ahead < total ? strip + at + ahead : next + (at + ahead - total);
  GREENROOM_UNROLL
  for (size_t line = 0; line < (kBytes + 63) / 64; ++line)
    touch(p + 64 * line);
}

// What passes over a block of two strips fetch of a later block, bit by bit as they go: in one burst the fetches would
// fill the queue that their own loads need.
class Share {
public:
  // Pieces start `begin` bytes into these strips or, behind their end, into the next ones.
  Share(const StripTask* task, size_t begin, size_t total, size_t piece, size_t passes)
      : piece_nbytes_(piece), passes_(passes), each_((piece + 63) / 64 / passes), rest_((piece + 63) / 64 % passes) {
    strips_[0] = begin < total ? task->strip + begin : task->next + (begin - total);
    strips_[1] = begin < total ? task->second + begin : task->next_second + (begin - total);
  }
  // Before every pass.
  void turn() {
    first_ = last_;
    last_ += each_;
    owed_ += rest_;
    if (owed_ >= passes_) {
      owed_ -= passes_;
      ++last_;
    }
  }
  void fetch(size_t strip, size_t piece) const {
    for (size_t line = first_; line < last_; ++line)
      touch(strips_[strip] + piece * piece_nbytes_ + 64 * line);
  }

private:
  const uint8_t* strips_[2];
  size_t piece_nbytes_, passes_, each_, rest_;
  size_t owed_ = 0, first_ = 0, last_ = 0; // the last two: cache lines of each piece
};

// The activations that a task is to fetch for later ones, a part with each of `turns` passes.
class Soon {
public:
  Soon(const StripTask* task, size_t turns)
      : rows_(task->soon), lines_(task->soon_nbytes / 64), left_(task->soon_rows * lines_),
        each_((left_ + turns - 1) / turns) {}

  void fetch() {
    for (size_t n = each_ < left_ ? each_ : left_; n > 0; --n, --left_) {
      touch(static_cast<const uint8_t*>(*rows_) + 64 * line_);
      if (++line_ == lines_) {
        line_ = 0;
        ++rows_;
      }
    }
  }

private:
  const void* const* rows_;
  size_t lines_, left_, each_, line_ = 0;
};

} // namespace
} // namespace greenroom
