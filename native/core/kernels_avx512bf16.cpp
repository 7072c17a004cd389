// AVX512_BF16: products of bf16 pairs. Only plain C headers: nothing compiled here may be shared with baseline files.
#include "e4m3_strips_512.h"

namespace greenroom {
namespace {

constexpr size_t kAhead = 8192; // as in kernels_avx512vnni.cpp

// A compiler may keep __m512bh apart from __m512i (MSVC does).
static inline __m512bh as_bf16(__m512i v) {
  __m512bh out;
  memcpy(&out, &v, sizeof out);
  return out;
}

struct Share {
  size_t pass, passes;
};

static inline __m512bh pair(const uint16_t* x, size_t index) {
  int32_t value;
  memcpy(&value, x + 2 * index, sizeof value);
  return as_bf16(_mm512_set1_epi32(value));
}

// Four pairs of columns from p on, or the last few: one chain of additions per pair modulo four, because the
// instruction takes longer than it takes to start the next.
template <int kTokens, int kStrips, bool kLast>
static inline void turn(const StripTask* task, size_t p, const void* const* x, __m512 (&acc)[kTokens][kStrips][4]) {
  GREENROOM_UNROLL
  for (int k = 0; k < (kLast ? 3 : 4); ++k) {
    if (kLast && p + k >= task->steps)
      continue;
    __m512bh w[kStrips];
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      w[i] = as_bf16(_mm512_loadu_si512((i ? task->second : task->strip) + 64 * (p + k)));
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m512bh value = pair(static_cast<const uint16_t*>(x[t]), p + k);
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i)
        acc[t][i][k] = _mm512_dpbf16_ps(acc[t][i][k], w[i], value);
    }
  }
}

template <int kTokens, int kStrips>
void block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  const size_t total = task->steps * 64, ahead = total < kAhead ? total : kAhead;
  __m512 acc[kTokens][kStrips][4];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      GREENROOM_UNROLL
      for (int k = 0; k < 4; ++k)
        acc[t][i][k] = _mm512_setzero_ps();
    }
  }
  size_t p = 0;
  for (; p + 4 <= task->steps; p += 4) {
    if (kStrips == 1) {
      const size_t at = 64 * p + ahead;
      const uint8_t* soon = at < total ? task->strip + at : task->next + (at - total);
      GREENROOM_UNROLL
      for (int k = 0; k < 4; ++k)
        touch(soon + 64 * k);
    } else if (task->next) {
      // This pass's share of what follows, as in kernels_avx512vnni.cpp.
      for (size_t line = share.pass * 4 / share.passes; line < (share.pass + 1) * 4 / share.passes; ++line) {
        touch(task->next + 64 * (p + line));
        touch(task->next_second + 64 * (p + line));
      }
    }
    turn<kTokens, kStrips, false>(task, p, x, acc);
  }
  turn<kTokens, kStrips, true>(task, p, x, acc);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, _mm512_add_ps(_mm512_add_ps(acc[t][i][0], acc[t][i][1]),
                                                                    _mm512_add_ps(acc[t][i][2], acc[t][i][3])));
  }
}

template <int kTokens>
void block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  if (task->second)
    block<kTokens, 2>(task, share, x, out, out_stride);
  else
    block<kTokens, 1>(task, share, x, out, out_stride);
}

void strip_bf16(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  Share share = {0, (tokens + 2) / 3};
  for (; tokens >= 3; tokens -= 3, x += 3, out += 3 * out_stride, ++share.pass)
    block<3>(task, share, x, out, out_stride);
  if (tokens == 2)
    block<2>(task, share, x, out, out_stride);
  else if (tokens == 1)
    block<1>(task, share, x, out, out_stride);
}

struct E4m3Bf16 {
  typedef uint16_t Activation;
  static constexpr int kMost = 3;

  static inline __m512 add(__m512 acc, __m512i two, const uint16_t* x) {
    return _mm512_dpbf16_ps(acc, as_bf16(two), pair(x, 0));
  }
};

void e4m3_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  e4m3_tokens<E4m3Bf16>(task, x, tokens, out, out_stride);
}

constexpr KernelTable table() {
  KernelTable t = {"avx512bf16", {}, kActBf16, avx512::quantise, avx512::round_bf16, avx512::read};
  t.strip[kE4m3] = e4m3_strip;
  t.strip[kBf16] = strip_bf16;
  return t;
}

} // namespace

constinit const KernelTable kAvx512Bf16Kernels = table();

} // namespace greenroom
