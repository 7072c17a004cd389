// Strips of integer codes with 256-bit registers, for the tiers with and without VNNI: each includes this file once and
// gets copies of its own. Only plain C headers: nothing compiled here may be shared with baseline files.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

constexpr size_t kAhead = 8192; // as in kernels_avx512vnni.cpp

static inline __m256i words(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return _mm256_set1_epi32(value);
}

static inline __m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

template <size_t kBytes>
static inline void prefetch(const uint8_t* strip, size_t at, size_t total, size_t ahead, const uint8_t* next) {
  const uint8_t* p = at + ahead < total ? strip + at + ahead : next + (at + ahead - total);
  GREENROOM_UNROLL
  for (size_t line = 0; line < (kBytes + 63) / 64; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(p + 64 * line), _MM_HINT_T0);
}

// Scales of eight rows.
static inline __m256 half_scales(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

static inline __m256 add_scaled(__m256 acc, __m256i sum, __m256 scale, const ActivationGroup* a) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(a->scale)), acc);
}

// Low nibbles to w[0 .. 3], high ones to w[4 .. 7].
static inline void unpack_nibbles(const uint8_t* loads, __m256i* w) {
  const __m256i low = _mm256_set1_epi8(15);
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j) {
    const __m256i codes = load(loads + 64 * j);
    w[j] = _mm256_and_si256(codes, low);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low);
  }
}

#ifdef GREENROOM_VNNI_256

// 16 columns of unsigned codes, times four bytes of activations each.
template <int kLargest> static inline __m256i dot16(const __m256i* w, const int8_t* q) {
  __m256i sum = _mm256_setzero_si256();
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j)
    sum = _mm256_dpbusd_avx_epi32(sum, w[j], words(q + 4 * j));
  return sum;
}

template <int kLargest> static inline __m256i dot32(const __m256i* w, const int8_t* q) {
  return _mm256_add_epi32(dot16<kLargest>(w, q), dot16<kLargest>(w + 4, q + 16));
}

// Signed codes are made unsigned by an offset of 128.
struct SignedCodes {
  __m256i w[8];

  explicit SignedCodes(const __m256i* codes) {
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = _mm256_xor_si256(codes[j], _mm256_set1_epi8(-128));
  }
  __m256i dot(const ActivationGroup* a) const {
    return _mm256_add_epi32(_mm256_set1_epi32(a->sum_x128), dot32<255>(w, a->q));
  }
};

#else

static inline __m256i pairs(__m256i w, const int8_t* q) {
  return _mm256_maddubs_epi16(w, words(q));
}

// 16 columns of unsigned codes up to kLargest. As many products of pairs, each at most 2 * kLargest * 127, are added in
// 16 bits as fit there.
template <int kLargest> static inline __m256i dot16(const __m256i* w, const int8_t* q) {
  static_assert(2 * 2 * kLargest * 127 < 32768);
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i first = _mm256_add_epi16(pairs(w[0], q), pairs(w[1], q + 4));
  const __m256i second = _mm256_add_epi16(pairs(w[2], q + 8), pairs(w[3], q + 12));
  if (4 * 2 * kLargest * 127 < 32768)
    return _mm256_madd_epi16(_mm256_add_epi16(first, second), ones);
  return _mm256_add_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones));
}

template <int kLargest> static inline __m256i dot32(const __m256i* w, const int8_t* q) {
  if (8 * 2 * kLargest * 127 >= 32768)
    return _mm256_add_epi32(dot16<kLargest>(w, q), dot16<kLargest>(w + 4, q + 16));
  __m256i even = pairs(w[0], q), odd = pairs(w[1], q + 4);
  GREENROOM_UNROLL
  for (int j = 2; j < 8; j += 2) {
    even = _mm256_add_epi16(even, pairs(w[j], q + 4 * j));
    odd = _mm256_add_epi16(odd, pairs(w[j + 1], q + 4 * j + 4));
  }
  return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

// 32 columns of signed codes: |w| is the unsigned side and its sign goes to the activation. A pair is at most
// 2 * 128 * 127 and fits 16 bits; two pairs would not, so each is widened by itself.
struct SignedCodes {
  __m256i w[8], absolute[8];

  explicit SignedCodes(const __m256i* codes) {
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j) {
      w[j] = codes[j];
      absolute[j] = _mm256_abs_epi8(codes[j]);
    }
  }
  __m256i dot(const ActivationGroup* a) const {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum = _mm256_setzero_si256();
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j) {
      const __m256i signed_q = _mm256_sign_epi8(words(a->q + 4 * j), w[j]);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(absolute[j], signed_q), ones));
    }
    return sum;
  }
};

#endif

// The same, and bit j of the fifth load to bit 4 of w[j].
template <bool kFive> static inline void unpack_codes(const uint8_t* loads, __m256i* w) {
  unpack_nibbles(loads, w);
  if (!kFive)
    return;
  const __m256i high = load(loads + 256), bit = _mm256_set1_epi8(16);
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j) {
    const __m256i moved = j < 4 ? _mm256_slli_epi16(high, (4 - j) & 7) : _mm256_srli_epi16(high, (j - 4) & 7);
    w[j] = _mm256_or_si256(w[j], _mm256_and_si256(moved, bit));
  }
}

// Every code works on half a strip, eight rows: sixteen registers hold the weights of a group and a few tokens. A step
// is kGroups groups of 32 columns; what they share is its Head. at: index of the group among the activations.
struct NoHead {};

template <bool kMin, bool kFive> struct Int4 {
  typedef NoHead Head;
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = kCodes + (kMin ? 64 : 32), kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_codes<kFive>(step + 32 * half, w);
    const __m256 scale = half_scales(step + kCodes + 16 * half);
    const __m256 min = kMin ? half_scales(step + kCodes + 32 + 16 * half) : _mm256_setzero_ps();
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      __m256i sum = dot32<(kFive ? 31 : 15)>(w, a->q);
      if (!kMin)
        sum = _mm256_add_epi32(sum, _mm256_set1_epi32(kFive ? 2 * a->sum_x8 : a->sum_x8));
      acc[t] = add_scaled(acc[t], sum, scale, a);
      if (kMin)
        acc[t] = _mm256_fmadd_ps(min, _mm256_set1_ps(a->scaled_sum), acc[t]);
    }
  }
};

static inline void look_up(const int8_t* values, char offset, __m256i* w) {
  const __m128i moved = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)), _mm_set1_epi8(offset));
  const __m256i table = _mm256_broadcastsi128_si256(moved);
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j)
    w[j] = _mm256_shuffle_epi8(table, w[j]);
}

struct Int4Nl {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 256 + 32, kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 32 * half, w);
    look_up(kNlValues, 0, w);
    const SignedCodes codes(w);
    const __m256 scale = half_scales(step + 256 + 16 * half);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      acc[t] = add_scaled(acc[t], codes.dot(a), scale, a);
    }
  }
};

struct Int4Mx {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 256 + 16, kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  // 2^(e - 128) of eight rows; the two smallest are subnormal.
  static inline __m256 exponents(const uint8_t* p) {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e), tiny));
  }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 32 * half, w);
    look_up(kMxValues, 12, w);
    const __m256 scale = exponents(step + 256 + 8 * half);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      const __m256i start = _mm256_set1_epi32(a->sum_x8 + a->sum_x8 / 2); // -12 * sum(q)
      acc[t] = add_scaled(acc[t], _mm256_add_epi32(start, dot32<24>(w, a->q)), scale, a);
    }
  }
};

template <bool kFive> struct Int4K {
  struct Head {
    __m256 d, negated_min;
  };
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = 256 + 8 * kCodes, kGroups = 8;

  // The f16 numbers whose bytes are the top bytes of two words.
  static inline __m256 top_bytes(const uint8_t* words_at) {
    const __m256i low = _mm256_srli_epi32(load(words_at), 24), high = _mm256_srli_epi32(load(words_at + 64), 24);
    const __m256i bits = _mm256_or_si256(low, _mm256_slli_epi32(high, 8));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
  }
  static inline Head head(const uint8_t* step, size_t half) {
    return {top_bytes(step + 32 * half), top_bytes(step + 128 + 32 * half)};
  }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    __m256i w[8];
    unpack_codes<kFive>(step + 256 + kCodes * group + 32 * half, w);
    const __m256i six = _mm256_set1_epi32(63);
    const __m256i bits = _mm256_srl_epi32(load(step + 64 * (group / 2) + 32 * half),
                                          _mm_cvtsi32_si128(static_cast<int>(12 * (group % 2))));
    const __m256 scale = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_and_si256(bits, six)));
    const __m256 min =
        _mm256_mul_ps(head.negated_min, _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bits, 6), six)));
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      acc[t] = add_scaled(acc[t], dot32<(kFive ? 31 : 15)>(w, a->q), scale, a);
      acc[t] = _mm256_fmadd_ps(min, _mm256_set1_ps(a->scaled_sum), acc[t]);
    }
  }
};

struct Int6K {
  struct Head {
    __m256 d;
  };
  static constexpr size_t kGroupBytes = 256 + 128 + 32, kStepBytes = 32 + 8 * kGroupBytes, kGroups = 8;

  static inline Head head(const uint8_t* step, size_t half) { return {half_scales(step + 16 * half)}; }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    const uint8_t* loads = step + 32 + kGroupBytes * group;
    __m256i w[8];
    unpack_nibbles(loads + 32 * half, w);
    const __m256i two = _mm256_set1_epi8(0x30);
    __m256 scale[2];
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const __m256i high = load(loads + 256 + 64 * part + 32 * half);
      __m256i* to = w + 4 * part;
      to[0] = _mm256_or_si256(to[0], _mm256_and_si256(_mm256_slli_epi16(high, 4), two));
      to[1] = _mm256_or_si256(to[1], _mm256_and_si256(_mm256_slli_epi16(high, 2), two));
      to[2] = _mm256_or_si256(to[2], _mm256_and_si256(high, two));
      to[3] = _mm256_or_si256(to[3], _mm256_and_si256(_mm256_srli_epi16(high, 2), two));
      const __m128i factors = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(loads + 384 + 16 * part + 8 * half));
      scale[part] = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(factors)));
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      const __m256i low = _mm256_add_epi32(dot16<63>(w, a->q), _mm256_set1_epi32(a->low_x32));
      const __m256i high = _mm256_add_epi32(dot16<63>(w + 4, a->q + 16), _mm256_set1_epi32(a->high_x32));
      acc[t] = add_scaled(add_scaled(acc[t], low, scale[0], a), high, scale[1], a);
    }
  }
};

struct Int8 {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 512 + 32, kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = load(step + 64 * j + 32 * half);
    const SignedCodes codes(w);
    const __m256 scale = half_scales(step + 512 + 16 * half);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      acc[t] = add_scaled(acc[t], codes.dot(a), scale, a);
    }
  }
};

// Both halves in one pass: each cache line is touched once. For few tokens.
template <class Code, int kTokens>
void whole(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
           size_t out_stride) {
  constexpr size_t kGroupBytes = Code::kStepBytes / Code::kGroups; // what one group's turn fetches
  const size_t total = steps * Code::kStepBytes, ahead = total < kAhead ? total : kAhead;
  __m256 upper[kTokens], lower[kTokens];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    upper[t] = lower[t] = _mm256_setzero_ps();
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * Code::kStepBytes;
    const typename Code::Head upper_head = Code::head(step, 0), lower_head = Code::head(step, 1);
    for (size_t g = 0; g < Code::kGroups; ++g) {
      prefetch<kGroupBytes>(strip, s * Code::kStepBytes + g * kGroupBytes, total, ahead, next);
      Code::template half_group<kTokens>(upper_head, step, g, 0, s * Code::kGroups + g, x, upper);
      Code::template half_group<kTokens>(lower_head, step, g, 1, s * Code::kGroups + g, x, lower);
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * out_stride, upper[t]);
    _mm256_storeu_ps(out + t * out_stride + 8, lower[t]);
  }
}

// One half after the other, from the cache: all registers serve one half.
template <class Code, int kTokens>
void halves(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
            size_t out_stride) {
  constexpr size_t kGroupBytes = Code::kStepBytes / Code::kGroups;
  const size_t total = steps * Code::kStepBytes, ahead = total < kAhead ? total : kAhead;
  for (size_t half = 0; half < 2; ++half) {
    __m256 acc[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = _mm256_setzero_ps();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * Code::kStepBytes;
      const typename Code::Head head = Code::head(step, half);
      for (size_t g = 0; g < Code::kGroups; ++g) {
        if (half == 0)
          prefetch<kGroupBytes>(strip, s * Code::kStepBytes + g * kGroupBytes, total, ahead, next);
        Code::template half_group<kTokens>(head, step, g, half, s * Code::kGroups + g, x, acc);
      }
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm256_storeu_ps(out + t * out_stride + 8 * half, acc[t]);
  }
}

template <class Code>
void strip_int(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, size_t tokens, float* out,
               size_t out_stride) {
  while (tokens > 0) {
    size_t n = 1;
    if (tokens >= 4) {
      halves<Code, 4>(strip, steps, next, x, out, out_stride);
      n = 4;
    } else if (tokens >= 2) {
      whole<Code, 2>(strip, steps, next, x, out, out_stride);
      n = 2;
    } else {
      whole<Code, 1>(strip, steps, next, x, out, out_stride);
    }
    x += n;
    out += n * out_stride;
    tokens -= n;
  }
}

typedef void (*OneStrip)(const uint8_t*, size_t, const uint8_t*, const void* const*, size_t, float*, size_t);

// Sixteen registers are too few for two strips at once.
template <OneStrip kKernel>
void strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (!task->second) {
    kKernel(task->strip, task->steps, task->next, x, tokens, out, out_stride);
    return;
  }
  kKernel(task->strip, task->steps, task->second, x, tokens, out, out_stride);
  kKernel(task->second, task->steps, task->next ? task->next : task->strip, x, tokens, out + 16, out_stride);
}

} // namespace
} // namespace greenroom
