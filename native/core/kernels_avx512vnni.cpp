// AVX-512 F, BW, VL, DQ and VNNI. Only plain C headers: nothing compiled here may be shared with baseline files.
#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

// Every strip starts a new stream that the hardware prefetcher has to learn; 8 KB ahead hides that (measured: 0.72 of
// the read bandwidth without, 0.85 with).
constexpr size_t kAhead = 8192;

static inline int32_t word(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return value;
}

// Touches `kBytes` that will be read kAhead later, in this strip or in what follows it.
template <size_t kBytes>
static inline void prefetch(const uint8_t* strip, size_t at, size_t total, size_t ahead, const uint8_t* next) {
  const uint8_t* p = at + ahead < total ? strip + at + ahead : next + (at + ahead - total);
  GREENROOM_UNROLL
  for (size_t line = 0; line < (kBytes + 63) / 64; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(p + 64 * line), _MM_HINT_T0);
}

template <bool kWide> static inline __m512 scales(const uint8_t* p) {
  if (kWide)
    return _mm512_loadu_ps(p);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

template <bool kWide, bool kMin> struct Int4 {
  static constexpr size_t kScaleBytes = kWide ? 64 : 32;
  static constexpr size_t kStepBytes = 256 + kScaleBytes * (kMin ? 2 : 1);

  template <int kTokens>
  static void block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                    size_t out_stride) {
    const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead;
    const __m512i low = _mm512_set1_epi8(15);
    __m512 acc[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = _mm512_setzero_ps();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * kStepBytes;
      prefetch<kStepBytes>(strip, s * kStepBytes, total, ahead, next);
      __m512i w[8];
      GREENROOM_UNROLL
      for (int j = 0; j < 4; ++j) {
        const __m512i codes = _mm512_loadu_si512(step + 64 * j);
        w[j] = _mm512_and_si512(codes, low);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), low);
      }
      const __m512 scale = scales<kWide>(step + 256);
      const __m512 min = kMin ? scales<kWide>(step + 256 + kScaleBytes) : _mm512_setzero_ps();
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + s;
        // Two chains: eight dependent instructions would fill the scheduler with waiters.
        __m512i first = kMin ? _mm512_setzero_si512() : _mm512_set1_epi32(a->sum_x8);
        __m512i second = _mm512_setzero_si512();
        GREENROOM_UNROLL
        for (int j = 0; j < 4; ++j) {
          first = _mm512_dpbusd_epi32(first, w[j], _mm512_set1_epi32(word(a->q + 4 * j)));
          second = _mm512_dpbusd_epi32(second, w[j + 4], _mm512_set1_epi32(word(a->q + 16 + 4 * j)));
        }
        const __m512i sum = _mm512_add_epi32(first, second);
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(a->scale)), acc[t]);
        if (kMin)
          acc[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(a->scaled_sum), acc[t]);
      }
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm512_storeu_ps(out + t * out_stride, acc[t]);
  }
};

// int8 weights are read with offset 128, because vpdpbusd wants one unsigned side; the sums start at -128 * sum(q).
struct Int8 {
  static constexpr size_t kStepBytes = 512 + 32;

  template <int kTokens>
  static void block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                    size_t out_stride) {
    const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead;
    const __m512i offset = _mm512_set1_epi8(-128);
    __m512 acc[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = _mm512_setzero_ps();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * kStepBytes;
      prefetch<kStepBytes>(strip, s * kStepBytes, total, ahead, next);
      __m512i w[8];
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = _mm512_xor_si512(_mm512_loadu_si512(step + 64 * j), offset);
      const __m512 scale = scales<false>(step + 512);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + s;
        __m512i first = _mm512_set1_epi32(a->low_x128), second = _mm512_set1_epi32(a->high_x128);
        GREENROOM_UNROLL
        for (int j = 0; j < 4; ++j) {
          first = _mm512_dpbusd_epi32(first, w[j], _mm512_set1_epi32(word(a->q + 4 * j)));
          second = _mm512_dpbusd_epi32(second, w[j + 4], _mm512_set1_epi32(word(a->q + 16 + 4 * j)));
        }
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(first, second));
        acc[t] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale, _mm512_set1_ps(a->scale)), acc[t]);
      }
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm512_storeu_ps(out + t * out_stride, acc[t]);
  }
};

struct Int8Group16 {
  static constexpr size_t kStepBytes = 256 + 64;

  template <int kTokens>
  static void block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                    size_t out_stride) {
    const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead;
    const __m512i offset = _mm512_set1_epi8(-128);
    __m512 acc[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = _mm512_setzero_ps();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * kStepBytes;
      prefetch<kStepBytes>(strip, s * kStepBytes, total, ahead, next);
      __m512i w[4];
      GREENROOM_UNROLL
      for (int j = 0; j < 4; ++j)
        w[j] = _mm512_xor_si512(_mm512_loadu_si512(step + 64 * j), offset);
      const __m512 scale = scales<true>(step + 256);
      const size_t half = s % 2;
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + s / 2;
        __m512i sum = _mm512_set1_epi32(half ? a->high_x128 : a->low_x128);
        GREENROOM_UNROLL
        for (int j = 0; j < 4; ++j)
          sum = _mm512_dpbusd_epi32(sum, w[j], _mm512_set1_epi32(word(a->q + 16 * half + 4 * j)));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(a->scale)), acc[t]);
      }
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm512_storeu_ps(out + t * out_stride, acc[t]);
  }
};

// The weights of one column as f32.
template <Kind kKind> static inline __m512 float_weights(const uint8_t* strip, size_t column) {
  if (kKind == kF32)
    return _mm512_loadu_ps(strip + 64 * column);
  if (kKind == kF16)
    return scales<false>(strip + 32 * column);
  const __m512i pair = _mm512_loadu_si512(strip + 64 * (column / 2));
  if (column % 2 == 0)
    return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
  return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

template <Kind kKind> struct Floating {
  static constexpr size_t kColumns = kKind == kBf16 ? 2 : 1;
  static constexpr size_t kStepBytes = kKind == kF16 ? 32 : 64;

  // Four chains per token, columns c, c + 4, ...
  template <int kTokens>
  static void block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                    size_t out_stride) {
    constexpr size_t kTurnBytes = 4 / kColumns * kStepBytes;
    const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead;
    const size_t columns = steps * kColumns;
    __m512 acc[kTokens][4];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      GREENROOM_UNROLL
    for (int k = 0; k < 4; ++k)
      acc[t][k] = _mm512_setzero_ps();
    size_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      prefetch<kTurnBytes>(strip, c / 4 * kTurnBytes, total, ahead, next);
      GREENROOM_UNROLL
      for (int k = 0; k < 4; ++k) {
        const __m512 w = float_weights<kKind>(strip + c / kColumns * kStepBytes, static_cast<size_t>(k));
        GREENROOM_UNROLL
        for (int t = 0; t < kTokens; ++t)
          acc[t][k] = _mm512_fmadd_ps(w, _mm512_set1_ps(static_cast<const float*>(x[t])[c + k]), acc[t][k]);
      }
    }
    GREENROOM_UNROLL
    for (int k = 0; k < 3; ++k) {
      if (c + k >= columns)
        continue;
      const __m512 w = float_weights<kKind>(strip + c / kColumns * kStepBytes, static_cast<size_t>(k));
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t)
        acc[t][k] = _mm512_fmadd_ps(w, _mm512_set1_ps(static_cast<const float*>(x[t])[c + k]), acc[t][k]);
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm512_storeu_ps(out + t * out_stride,
                       _mm512_add_ps(_mm512_add_ps(acc[t][0], acc[t][1]), _mm512_add_ps(acc[t][2], acc[t][3])));
  }
};

// Cuts any number of tokens into blocks that fit the registers.
template <class Code, int kLargest>
void strip(const uint8_t* weights, size_t steps, const uint8_t* next, const void* const* x, size_t tokens, float* out,
           size_t out_stride) {
  while (tokens > 0) {
    size_t n;
    if (kLargest >= 16 && tokens >= 16) {
      Code::template block<kLargest >= 16 ? 16 : 1>(weights, steps, next, x, out, out_stride);
      n = 16;
    } else if (kLargest >= 8 && tokens >= 8) {
      Code::template block<kLargest >= 8 ? 8 : 1>(weights, steps, next, x, out, out_stride);
      n = 8;
    } else if (tokens >= 4) {
      Code::template block<4>(weights, steps, next, x, out, out_stride);
      n = 4;
    } else if (tokens >= 2) {
      Code::template block<2>(weights, steps, next, x, out, out_stride);
      n = 2;
    } else {
      Code::template block<1>(weights, steps, next, x, out, out_stride);
      n = 1;
    }
    x += n;
    out += n * out_stride;
    tokens -= n;
  }
}

} // namespace

namespace avx512 {

void quantise(const float* x, size_t groups, ActivationGroup* out) {
  const uint32_t nan_bits = 0x7fc00000u;
  float nan;
  memcpy(&nan, &nan_bits, sizeof nan);
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  for (size_t g = 0; g < groups; ++g, x += kGroup) {
    ActivationGroup* a = out + g;
    const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
    // Compared as bits: a NaN is larger than infinity, infinity than any number.
    const int32_t largest =
        _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(first), magnitude_bits),
                                                 _mm512_and_si512(_mm512_castps_si512(second), magnitude_bits)));
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    const bool finite = largest < 0x7f800000, usable = finite && magnitude >= 1e-30f;
    a->scale = usable ? magnitude / 127.0f : finite ? 0.0f : nan;
    const __m512 inverse = _mm512_set1_ps(usable ? 127.0f / magnitude : 0.0f);
    const __mmask16 keep = usable ? 0xffff : 0; // NaN * 0 would still be NaN
    const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(first, inverse));
    const __m512i q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(second, inverse));
    _mm_store_si128(reinterpret_cast<__m128i*>(a->q), _mm512_cvtepi32_epi8(q0));
    _mm_store_si128(reinterpret_cast<__m128i*>(a->q + 16), _mm512_cvtepi32_epi8(q1));
    const int32_t low = _mm512_reduce_add_epi32(q0), high = _mm512_reduce_add_epi32(q1);
    a->sum_x8 = -8 * (low + high);
    a->low_x128 = -128 * low;
    a->high_x128 = -128 * high;
    a->scaled_sum = a->scale * static_cast<float>(low + high);
  }
}

// Nearest even; NaN keeps its sign and becomes quiet.
void round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
  }
}

} // namespace avx512

namespace {

// e^x to about one unit in the last place: x = n ln 2 + r, a polynomial in r, scaled by 2^n (which also saturates).
static inline __m512 exponential(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145751953125f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860682030941723e-6f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

} // namespace

void avx512::swiglu(const float* gate, const float* up, size_t n, float* h) {
  // Beyond 88 the sigmoid is 0 or 1 in f32; the bound keeps infinities out of r. NaN passes: it is the second operand.
  const __m512 bound = _mm512_set1_ps(88.0f), one = _mm512_set1_ps(1.0f);
  for (size_t i = 0; i < n; i += 16) {
    const __m512 g = _mm512_loadu_ps(gate + i);
    const __m512 negated = _mm512_sub_ps(_mm512_setzero_ps(), g);
    const __m512 bounded = _mm512_min_ps(bound, _mm512_max_ps(_mm512_set1_ps(-88.0f), negated));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exponential(bounded)));
    _mm512_storeu_ps(h + i, _mm512_mul_ps(silu, _mm512_loadu_ps(up + i)));
  }
}

uint64_t avx512::read(const uint8_t* p, size_t n) {
  __m512i sum[8];
  GREENROOM_UNROLL
  for (int k = 0; k < 8; ++k)
    sum[k] = _mm512_setzero_si512();
  for (size_t at = 0; at < n; at += 512) {
    GREENROOM_UNROLL
    for (int k = 0; k < 8; ++k)
      sum[k] = _mm512_add_epi64(sum[k], _mm512_load_si512(p + at + 64 * k));
  }
  GREENROOM_UNROLL
  for (int k = 1; k < 8; ++k)
    sum[0] = _mm512_add_epi64(sum[0], sum[k]);
  uint64_t lanes[8], total = 0;
  memcpy(lanes, &sum[0], sizeof lanes);
  for (int k = 0; k < 8; ++k) total += lanes[k];
  return total;
}

const KernelTable kAvx512VnniKernels = {
    "avx512vnni",
    {strip<Int4<false, false>, 16>, strip<Int4<false, true>, 16>, strip<Int4<true, true>, 16>, strip<Int8, 16>,
     strip<Int8Group16, 16>, strip<Floating<kBf16>, 4>, strip<Floating<kF16>, 4>, strip<Floating<kF32>, 4>},
    kActF32,
    avx512::quantise,
    avx512::round_bf16,
    avx512::swiglu,
    avx512::read,
};

} // namespace greenroom
