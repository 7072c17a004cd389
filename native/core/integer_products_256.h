// Products of integer codes and activations with 256-bit registers: groups of 32 columns of half a strip. With
// GREENROOM_VNNI_256, one instruction sums four products in 32 bits. Rules as in integer_codes_256.h.
#pragma once

#include "integer_codes_256.h"

namespace greenroom {
namespace {

static GREENROOM_INLINE __m256i words(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return _mm256_set1_epi32(value);
}

static GREENROOM_INLINE __m256 add_scaled(__m256 acc, __m256i sum, __m256 scale, const ActivationGroup* a) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(a->scale)), acc);
}

// GCC would load a value anew for every use; a register holds it.
static GREENROOM_INLINE void hold(__m256i& value) {
#ifdef __GNUC__
  __asm__("" : "+x"(value));
#else
  (void)value;
#endif
}

#ifdef GREENROOM_VNNI_256

// Signed codes are made unsigned by an offset of 128; -128 * sum(q) takes it back.
template <class Code> static GREENROOM_INLINE __m256i signed_start(const ActivationGroup* a, int part) {
  return _mm256_set1_epi32(Code::kParts == 1 ? a->sum_x128 : 4 * half_x32(a, part));
}

// 16 columns of unsigned codes, times four bytes of activations each.
template <int kLargest> static GREENROOM_INLINE __m256i dot16(const __m256i* w, const int8_t* q) {
  __m256i sum = _mm256_setzero_si256();
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j)
    sum = _mm256_dpbusd_avx_epi32(sum, w[j], words(q + 4 * j));
  return sum;
}

template <int kLargest> static GREENROOM_INLINE __m256i dot32(const __m256i* w, const int8_t* q) {
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
  // Sums over columns 4 * kFirst .. 4 * kLast - 1 of a group, for several tokens.
  template <int kFirst, int kLast, int kTokens>
  GREENROOM_INLINE void dots(const void* const* x, size_t at, __m256i (&sums)[kTokens]) const {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      // low_x32 is -32 * sum(q)
      sums[t] = _mm256_set1_epi32(kLast - kFirst == 8 ? a->sum_x128 : 4 * (kFirst ? a->high_x32 : a->low_x32));
    }
    GREENROOM_UNROLL
    for (int j = kFirst; j < kLast; ++j) {
      __m256i codes = w[j];
      hold(codes);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t)
        sums[t] =
            _mm256_dpbusd_avx_epi32(sums[t], codes, words((static_cast<const ActivationGroup*>(x[t]) + at)->q + 4 * j));
    }
  }
};

#else

static GREENROOM_INLINE __m256i pairs(__m256i w, const int8_t* q) {
  return _mm256_maddubs_epi16(w, words(q));
}

// 16 columns of unsigned codes up to kLargest, times a factor. As many products of pairs, each at most
// 2 * kLargest * 127, are added in 16 bits as fit there.
template <int kLargest>
static GREENROOM_INLINE __m256i dot16(const __m256i* w, const int8_t* q, __m256i factor = _mm256_set1_epi16(1)) {
  static_assert(2 * 2 * kLargest * 127 < 32768);
  const __m256i first = _mm256_add_epi16(pairs(w[0], q), pairs(w[1], q + 4));
  const __m256i second = _mm256_add_epi16(pairs(w[2], q + 8), pairs(w[3], q + 12));
  if (4 * 2 * kLargest * 127 < 32768)
    return _mm256_madd_epi16(_mm256_add_epi16(first, second), factor);
  return _mm256_add_epi32(_mm256_madd_epi16(first, factor), _mm256_madd_epi16(second, factor));
}

template <int kLargest>
static GREENROOM_INLINE __m256i dot32(const __m256i* w, const int8_t* q, __m256i factor = _mm256_set1_epi16(1)) {
  if (8 * 2 * kLargest * 127 >= 32768)
    return _mm256_add_epi32(dot16<kLargest>(w, q, factor), dot16<kLargest>(w + 4, q + 16, factor));
  __m256i even = pairs(w[0], q), odd = pairs(w[1], q + 4);
  GREENROOM_UNROLL
  for (int j = 2; j < 8; j += 2) {
    even = _mm256_add_epi16(even, pairs(w[j], q + 4 * j));
    odd = _mm256_add_epi16(odd, pairs(w[j + 1], q + 4 * j + 4));
  }
  return _mm256_madd_epi16(_mm256_add_epi16(even, odd), factor);
}

// 32 columns of signed codes: |w| is the unsigned side and its sign goes to the activation. A pair is at most
// 2 * 128 * 127 and fits 16 bits; two pairs would not, so each is widened by itself.
struct SignedCodes {
  __m256i w[8];

  explicit SignedCodes(const __m256i* codes) {
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = codes[j];
  }
  // Sums over columns 4 * kFirst .. 4 * kLast - 1 of a group, for several tokens: four columns of all tokens before the
  // next four, because weights and magnitudes of eight rows are more than the registers hold.
  template <int kFirst, int kLast, int kTokens>
  GREENROOM_INLINE void dots(const void* const* x, size_t at, __m256i (&sums)[kTokens]) const {
    const __m256i ones = _mm256_set1_epi16(1);
    GREENROOM_UNROLL
    for (int j = kFirst; j < kLast; ++j) {
      __m256i codes = w[j], absolute = _mm256_abs_epi8(w[j]);
      hold(codes);
      hold(absolute);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
        const __m256i signed_q = _mm256_sign_epi8(words(a->q + 4 * j), codes);
        const __m256i four = _mm256_madd_epi16(_mm256_maddubs_epi16(absolute, signed_q), ones);
        sums[t] = j == kFirst ? four : _mm256_add_epi32(sums[t], four);
        hold(sums[t]); // not in memory
      }
    }
  }
};

#endif

// Adds a group of half a strip to the sums of some tokens. at: index of the group among the activations.
template <class Code, int kTokens>
static GREENROOM_INLINE void half_group(const typename Code::Head& head, const uint8_t* step, size_t group, size_t half,
                                        size_t at, const void* const* x, __m256* acc) {
  constexpr int kParts = Code::kParts;
  __m256i w[8], sums[kParts][kTokens];
  __m256 scale[kParts], min[kParts];
  Code::unpack(step, group, half, w);
  Code::scales(head, step, group, half, scale, min);
  if constexpr (Code::kSigned) {
    const SignedCodes codes(w);
    codes.template dots<0, 8 / kParts, kTokens>(x, at, sums[0]);
    if constexpr (kParts == 2)
      codes.template dots<4, 8, kTokens>(x, at, sums[1]);
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      if constexpr (!Code::kSigned) {
        const __m256i sum =
            kParts == 1 ? dot32<Code::kLargest>(w, a->q) : dot16<Code::kLargest>(w + 4 * part, a->q + 16 * part);
        sums[part][t] = _mm256_add_epi32(sum, Code::start(a, part));
      }
      acc[t] = add_scaled(acc[t], sums[part][t], scale[part], a);
    }
    if (Code::kHasMin) {
      GREENROOM_UNROLL
      for (int part = 0; part < kParts; ++part)
        acc[t] = _mm256_fmadd_ps(min[part], min_factor<Code>(a, part), acc[t]);
    }
  }
}

static GREENROOM_INLINE __m256i half_sums(const ActivationGroup* a) {
  int32_t value;
  memcpy(&value, a->halves, sizeof value);
  return _mm256_set1_epi32(value);
}

// What a group of half a strip adds to a step for one token, before d: to the sums what its products are, to the minima
// what they add before theirs.
template <class Code>
static GREENROOM_INLINE void add_whole(__m256i products, __m256i offset, __m256 min, const ActivationGroup* a,
                                       __m256* sum, __m256* mins) {
  const __m256 x_scale = _mm256_set1_ps(a->scale);
  if constexpr (Code::kOffset)
    products = _mm256_add_epi32(products, _mm256_madd_epi16(offset, half_sums(a)));
  *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), x_scale, *sum);
  if constexpr (Code::kHasMin && Code::kParts == 1)
    *mins = _mm256_fmadd_ps(min, _mm256_set1_ps(a->scaled_sum), *mins);
  if constexpr (Code::kHasMin && Code::kParts == 2)
    *mins = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(offset, half_sums(a))), x_scale, *mins);
}

// The same for codes whose scales are whole numbers.
template <class Code, int kTokens>
static GREENROOM_INLINE void whole_group(const typename Code::Head& head, const uint8_t* step, size_t group,
                                         size_t half, size_t at, const void* const* x, __m256* sums, __m256* mins) {
  constexpr int kParts = Code::kParts;
  __m256i w[8], factor[kParts], offset, products[kTokens];
  __m256 min;
  Code::unpack(step, group, half, w);
  Code::whole(head, step, group, half, factor, &offset, &min);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
    if constexpr (kParts == 1)
      products[t] = dot32<Code::kLargest>(w, a->q, factor[0]);
    else
      products[t] = _mm256_add_epi32(dot16<Code::kLargest>(w, a->q, factor[0]),
                                     dot16<Code::kLargest>(w + 4, a->q + 16, factor[1]));
    add_whole<Code>(products[t], offset, min, a, sums + t, mins + t);
  }
}

// A step's sums are multiplied by its d and added up: the same order everywhere.
template <class Code>
static GREENROOM_INLINE __m256 add_step(const typename Code::Head& head, __m256 acc, __m256 sum, __m256 mins) {
  acc = _mm256_fmadd_ps(head.d, sum, acc);
  if constexpr (Code::kHasMin)
    acc = _mm256_fmadd_ps(head.negated_min, mins, acc);
  return acc;
}

} // namespace
} // namespace greenroom
