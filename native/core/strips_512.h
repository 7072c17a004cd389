// What all kernels with 512-bit registers share: how a strip is read ahead. Each file that includes this gets a copy of
// its own. Only plain C headers: nothing compiled here may be shared with baseline files.
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

// Fetches kBytes that lie `ahead` bytes on from byte `at` of a single strip.
template <size_t kBytes> static inline void prefetch(const StripTask* task, size_t at, size_t total, size_t ahead) {
  const uint8_t* p = at + ahead < total ? task->strip + at + ahead : task->next + (at + ahead - total);
  GREENROOM_UNROLL
  for (size_t line = 0; line < (kBytes + 63) / 64; ++line)
    touch(p + 64 * line);
}

// What one of several passes over a block of two strips fetches of a later block, bit by bit as it goes: in one burst
// the fetches would fill the queue that its own loads need.
struct Share {
  const uint8_t* strips[2];
  size_t piece_nbytes;
  size_t first, last; // cache lines of each piece

  // Pieces start `begin` bytes into these strips or, behind their end, into the next ones.
  Share(const StripTask* task, size_t begin, size_t total, size_t piece, size_t pass, size_t passes)
      : piece_nbytes(piece), first((piece + 63) / 64 * pass / passes), last((piece + 63) / 64 * (pass + 1) / passes) {
    strips[0] = begin < total ? task->strip + begin : task->next + (begin - total);
    strips[1] = begin < total ? task->second + begin : task->next_second + (begin - total);
  }
  void fetch(size_t piece) const {
    for (size_t line = first; line < last; ++line) {
      touch(strips[0] + piece * piece_nbytes + 64 * line);
      touch(strips[1] + piece * piece_nbytes + 64 * line);
    }
  }
};

// GCC would load a value anew for every use; a register holds it.
static inline void hold(__m512i& value) {
#ifdef __GNUC__
  __asm__("" : "+v"(value));
#else
  (void)value;
#endif
}

// One strip and any number of tokens, up to eight at a time: Stream::run<n>(task, x, out, out_stride) takes n of them
// straight from the stream of weights.
template <class Stream>
void one_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  while (tokens > 0) {
    const size_t n = tokens < 8 ? tokens : 8;
    if (n == 8) {
      Stream::template run<8>(task, x, out, out_stride);
    } else if (n == 6) {
      Stream::template run<6>(task, x, out, out_stride);
    } else if (n == 4) {
      Stream::template run<4>(task, x, out, out_stride);
    } else if (n == 3) {
      Stream::template run<3>(task, x, out, out_stride);
    } else if (n == 2) {
      Stream::template run<2>(task, x, out, out_stride);
    } else if (n == 1) {
      Stream::template run<1>(task, x, out, out_stride);
    } else {
      // Five or seven, one of them twice.
      const void* padded[8];
      float copy[8 * 16];
      for (size_t t = 0; t <= n; ++t)
        padded[t] = x[t < n ? t : 0];
      if (n == 5)
        Stream::template run<6>(task, padded, copy, 16);
      else
        Stream::template run<8>(task, padded, copy, 16);
      for (size_t t = 0; t < n; ++t)
        memcpy(out + t * out_stride, copy + 16 * t, 64);
    }
    x += n;
    out += n * out_stride;
    tokens -= n;
  }
}

} // namespace
} // namespace greenroom
