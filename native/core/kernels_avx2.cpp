// AVX2, FMA and F16C. Only plain C headers: nothing compiled here may be shared with baseline files.
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

// Eight products of pairs, each at most 2 * 15 * 127, fit 16 bits together.
static inline __m256i int4_dot(const __m256i* w, const int8_t* q) {
  __m256i even = _mm256_maddubs_epi16(w[0], words(q)), odd = _mm256_maddubs_epi16(w[1], words(q + 4));
  GREENROOM_UNROLL
  for (int j = 2; j < 8; j += 2) {
    even = _mm256_add_epi16(even, _mm256_maddubs_epi16(w[j], words(q + 4 * j)));
    odd = _mm256_add_epi16(odd, _mm256_maddubs_epi16(w[j + 1], words(q + 4 * j + 4)));
  }
  return _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1));
}

// Every code works on half a strip, eight rows: sixteen registers hold the weights of a group and a few tokens. A step
// is kGroups groups of 32 columns; what they share is its Head. at: index of the group among the activations.
struct NoHead {};

template <bool kMin> struct Int4 {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 256 + (kMin ? 64 : 32), kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 32 * half, w);
    const __m256 scale = half_scales(step + 256 + 16 * half);
    const __m256 min = kMin ? half_scales(step + 288 + 16 * half) : _mm256_setzero_ps();
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      __m256i sum = int4_dot(w, a->q);
      if (!kMin)
        sum = _mm256_add_epi32(sum, _mm256_set1_epi32(a->sum_x8));
      acc[t] = add_scaled(acc[t], sum, scale, a);
      if (kMin)
        acc[t] = _mm256_fmadd_ps(min, _mm256_set1_ps(a->scaled_sum), acc[t]);
    }
  }
};

struct Int4K {
  struct Head {
    __m256 d, negated_min;
  };
  static constexpr size_t kStepBytes = 256 + 8 * 256, kGroups = 8;

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
    unpack_nibbles(step + 256 + 256 * group + 32 * half, w);
    const __m256i six = _mm256_set1_epi32(63);
    const __m256i bits = _mm256_srl_epi32(load(step + 64 * (group / 2) + 32 * half),
                                          _mm_cvtsi32_si128(static_cast<int>(12 * (group % 2))));
    const __m256 scale = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_and_si256(bits, six)));
    const __m256 min =
        _mm256_mul_ps(head.negated_min, _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bits, 6), six)));
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      acc[t] = add_scaled(acc[t], int4_dot(w, a->q), scale, a);
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

  // Two products of pairs, each at most 2 * 63 * 127, fit 16 bits together; four would not.
  static inline __m256i dot(const __m256i* w, const int8_t* q) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i first =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[0], words(q)), _mm256_maddubs_epi16(w[1], words(q + 4)));
    const __m256i second =
        _mm256_add_epi16(_mm256_maddubs_epi16(w[2], words(q + 8)), _mm256_maddubs_epi16(w[3], words(q + 12)));
    return _mm256_add_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones));
  }

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
      const __m256i low = _mm256_add_epi32(dot(w, a->q), _mm256_set1_epi32(a->low_x32));
      const __m256i high = _mm256_add_epi32(dot(w + 4, a->q + 16), _mm256_set1_epi32(a->high_x32));
      acc[t] = add_scaled(add_scaled(acc[t], low, scale[0], a), high, scale[1], a);
    }
  }
};

// int8 codes take |w| as the unsigned side and give its sign to the activation. A pair is at most 2 * 128 * 127 and
// fits 16 bits; two pairs would not, so each is widened by itself.
struct Int8 {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 512 + 32, kGroups = 1;

  static inline Head head(const uint8_t*, size_t) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i absolute[8];
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      absolute[j] = _mm256_abs_epi8(load(step + 64 * j + 32 * half));
    const __m256 scale = half_scales(step + 512 + 16 * half);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      __m256i sum = _mm256_setzero_si256();
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j) {
        const __m256i signed_q = _mm256_sign_epi8(words(a->q + 4 * j), load(step + 64 * j + 32 * half));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(absolute[j], signed_q), ones));
      }
      acc[t] = add_scaled(acc[t], sum, scale, a);
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

// The weights of one column for eight rows as f32; p points at the column's step.
template <Kind kKind> static inline __m256 float_weights(const uint8_t* p, size_t column, size_t half) {
  if (kKind == kF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 64 * column + 32 * half));
  if (kKind == kF16)
    return half_scales(p + 32 * column + 16 * half);
  const __m256i pair = load(p + 64 * (column / 2) + 32 * half);
  if (column % 2 == 0)
    return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Four columns from c on, or the last few. Two chains per token and half, even and odd columns: with both halves,
// enough to keep two FMA units busy.
template <Kind kKind, int kTokens, bool kLast>
static inline void float_turn(const uint8_t* strip, size_t c, size_t columns, const void* const* x,
                              __m256 (&acc)[kTokens][2][2]) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  const uint8_t* p = strip + c / kColumns * kStepBytes;
  GREENROOM_UNROLL
  for (int k = 0; k < (kLast ? 3 : 4); ++k) {
    if (kLast && c + k >= columns)
      continue;
    const __m256 upper = float_weights<kKind>(p, static_cast<size_t>(k), 0);
    const __m256 lower = float_weights<kKind>(p, static_cast<size_t>(k), 1);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256 value = _mm256_set1_ps(static_cast<const float*>(x[t])[c + k]);
      acc[t][0][k % 2] = _mm256_fmadd_ps(upper, value, acc[t][0][k % 2]);
      acc[t][1][k % 2] = _mm256_fmadd_ps(lower, value, acc[t][1][k % 2]);
    }
  }
}

template <Kind kKind, int kTokens>
void float_block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                 size_t out_stride) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead, columns = steps * kColumns;
  __m256 acc[kTokens][2][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      GREENROOM_UNROLL
      for (int k = 0; k < 2; ++k)
        acc[t][h][k] = _mm256_setzero_ps();
    }
  }
  size_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    prefetch<4 / kColumns * kStepBytes>(strip, c / kColumns * kStepBytes, total, ahead, next);
    float_turn<kKind, kTokens, false>(strip, c, columns, x, acc);
  }
  float_turn<kKind, kTokens, true>(strip, c, columns, x, acc);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int h = 0; h < 2; ++h)
      _mm256_storeu_ps(out + t * out_stride + 8 * h, _mm256_add_ps(acc[t][h][0], acc[t][h][1]));
  }
}

template <Kind kKind>
void strip_float(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, size_t tokens,
                 float* out, size_t out_stride) {
  for (; tokens >= 3; tokens -= 3, x += 3, out += 3 * out_stride)
    float_block<kKind, 3>(strip, steps, next, x, out, out_stride);
  if (tokens == 2)
    float_block<kKind, 2>(strip, steps, next, x, out, out_stride);
  else if (tokens == 1)
    float_block<kKind, 1>(strip, steps, next, x, out, out_stride);
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

static inline int32_t largest_of(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

static inline int32_t sum_of(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

void quantise(const float* x, size_t groups, ActivationGroup* out) {
  const uint32_t nan_bits = 0x7fc00000u;
  float nan;
  memcpy(&nan, &nan_bits, sizeof nan);
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  for (size_t g = 0; g < groups; ++g, x += kGroup) {
    ActivationGroup* a = out + g;
    // Compared as bits: a NaN is larger than infinity, infinity than any number.
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_bits));
    }
    const int32_t largest = largest_of(most);
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    const bool finite = largest < 0x7f800000, usable = finite && magnitude >= 1e-30f;
    a->scale = usable ? magnitude / 127.0f : finite ? 0.0f : nan;
    const __m256 inverse = _mm256_set1_ps(usable ? 127.0f / magnitude : 0.0f);
    const __m256i keep = _mm256_set1_epi32(usable ? -1 : 0); // NaN * 0 would still be NaN
    __m256i q[4];
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
    // The packs work on each 128-bit half by itself; the permutation puts the pieces in order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_store_si256(reinterpret_cast<__m256i*>(a->q),
                       _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    const int32_t low = sum_of(_mm256_add_epi32(q[0], q[1])), high = sum_of(_mm256_add_epi32(q[2], q[3]));
    a->sum_x8 = -8 * (low + high);
    a->low_x32 = -32 * low;
    a->high_x32 = -32 * high;
    a->sum_x128 = -128 * (low + high);
    a->scaled_sum = a->scale * static_cast<float>(low + high);
  }
}

// Nearest even; NaN keeps its sign and becomes quiet.
void round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    out[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

// As in kernels_avx512vnni.cpp; 2^n is made of exponent bits, so n must stay within -126 .. 127.
static inline __m256 exponential(__m256 x) {
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145751953125f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860682030941723e-6f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

void swiglu(const float* gate, const float* up, size_t n, float* h) {
  // Beyond 87 the sigmoid is 0 or 1 in f32. NaN passes: it is the second operand.
  const __m256 one = _mm256_set1_ps(1.0f);
  for (size_t i = 0; i < n; i += 8) {
    const __m256 g = _mm256_loadu_ps(gate + i);
    const __m256 negated = _mm256_sub_ps(_mm256_setzero_ps(), g);
    const __m256 bounded = _mm256_min_ps(_mm256_set1_ps(87.0f), _mm256_max_ps(_mm256_set1_ps(-87.0f), negated));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exponential(bounded)));
    _mm256_storeu_ps(h + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
}

uint64_t read(const uint8_t* p, size_t n) {
  __m256i sum[8];
  GREENROOM_UNROLL
  for (int k = 0; k < 8; ++k)
    sum[k] = _mm256_setzero_si256();
  for (size_t at = 0; at < n; at += 256) {
    GREENROOM_UNROLL
    for (int k = 0; k < 8; ++k)
      sum[k] = _mm256_add_epi64(sum[k], load(p + at + 32 * k));
  }
  GREENROOM_UNROLL
  for (int k = 1; k < 8; ++k)
    sum[0] = _mm256_add_epi64(sum[0], sum[k]);
  uint64_t lanes[4];
  memcpy(lanes, &sum[0], sizeof lanes);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

} // namespace

const KernelTable kAvx2Kernels = {
    "avx2",
    {strips<strip_int<Int4<false>>>, strips<strip_int<Int4<true>>>, strips<strip_int<Int4K>>, strips<strip_int<Int8>>,
     strips<strip_int<Int6K>>, strips<strip_float<kBf16>>, strips<strip_float<kF16>>, strips<strip_float<kF32>>},
    kActF32,
    quantise,
    round_bf16,
    swiglu,
    read,
};

} // namespace greenroom
