// AVX512_BF16: products of bf16 pairs. Only plain C headers: nothing compiled here may be shared with baseline files.
#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

constexpr size_t kAhead = 8192; // as in kernels_avx512vnni.cpp

// A compiler may keep __m512bh apart from __m512i (MSVC does).
static inline __m512bh as_bf16(__m512i v) {
  __m512bh out;
  memcpy(&out, &v, sizeof out);
  return out;
}

static inline __m512bh pair(const uint16_t* x, size_t index) {
  int32_t value;
  memcpy(&value, x + 2 * index, sizeof value);
  return as_bf16(_mm512_set1_epi32(value));
}

// Four chains per token, pairs p, p + 4, ...: the instruction takes longer than it takes to start the next.
template <int kTokens>
void block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
           size_t out_stride) {
  const size_t total = steps * 64, ahead = total < kAhead ? total : kAhead;
  __m512 acc[kTokens][4];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    GREENROOM_UNROLL
  for (int k = 0; k < 4; ++k)
    acc[t][k] = _mm512_setzero_ps();
  size_t p = 0;
  for (; p + 4 <= steps; p += 4) {
    const size_t at = 64 * p + ahead;
    const uint8_t* soon = at < total ? strip + at : next + (at - total);
    __m512bh w[4];
    GREENROOM_UNROLL
    for (int k = 0; k < 4; ++k) {
      _mm_prefetch(reinterpret_cast<const char*>(soon + 64 * k), _MM_HINT_T0);
      w[k] = as_bf16(_mm512_loadu_si512(strip + 64 * (p + k)));
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      GREENROOM_UNROLL
    for (int k = 0; k < 4; ++k)
      acc[t][k] = _mm512_dpbf16_ps(acc[t][k], w[k], pair(static_cast<const uint16_t*>(x[t]), p + k));
  }
  GREENROOM_UNROLL
  for (int k = 0; k < 3; ++k) {
    if (p + k >= steps)
      continue;
    const __m512bh w = as_bf16(_mm512_loadu_si512(strip + 64 * (p + k)));
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t][k] = _mm512_dpbf16_ps(acc[t][k], w, pair(static_cast<const uint16_t*>(x[t]), p + k));
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    _mm512_storeu_ps(out + t * out_stride,
                     _mm512_add_ps(_mm512_add_ps(acc[t][0], acc[t][1]), _mm512_add_ps(acc[t][2], acc[t][3])));
}

void strip_bf16(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, size_t tokens,
                float* out, size_t out_stride) {
  while (tokens > 0) {
    size_t n = 1;
    if (tokens >= 4) {
      block<4>(strip, steps, next, x, out, out_stride);
      n = 4;
    } else if (tokens >= 2) {
      block<2>(strip, steps, next, x, out, out_stride);
      n = 2;
    } else {
      block<1>(strip, steps, next, x, out, out_stride);
    }
    x += n;
    out += n * out_stride;
    tokens -= n;
  }
}

} // namespace

const KernelTable kAvx512Bf16Kernels = {
    "avx512bf16",       {nullptr, nullptr, nullptr, nullptr, nullptr, strip_bf16, nullptr, nullptr},
    kActBf16,           avx512::quantise,
    avx512::round_bf16, avx512::swiglu,
    avx512::read,
};

} // namespace greenroom
