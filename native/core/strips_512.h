// What all kernels with 512-bit registers share. Each file that includes this gets a copy of its own. Only plain C
// headers: nothing compiled here may be shared with baseline files.
#pragma once

#include "read_ahead.h"

namespace greenroom {
namespace {

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
