// How the integer kinds are read and multiplied with 256-bit registers, with and without VNNI: each tier that includes
// this file gets copies of its own. Only plain C headers: nothing compiled here may be shared with baseline files.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

static inline __m256i words(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return _mm256_set1_epi32(value);
}

static inline __m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
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

// GCC would load a value anew for every use; a register holds it.
static inline void hold(__m256i& value) {
#ifdef __GNUC__
  __asm__("" : "+x"(value));
#else
  (void)value;
#endif
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
  // Sums over columns 4 * kFirst .. 4 * kLast - 1 of a group, for several tokens.
  template <int kFirst, int kLast, int kTokens>
  inline void dots(const void* const* x, size_t at, __m256i (&sums)[kTokens]) const {
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
  __m256i w[8];

  explicit SignedCodes(const __m256i* codes) {
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = codes[j];
  }
  // Sums over columns 4 * kFirst .. 4 * kLast - 1 of a group, for several tokens: four columns of all tokens before the
  // next four, because weights and magnitudes of eight rows are more than the registers hold.
  template <int kFirst, int kLast, int kTokens>
  inline void dots(const void* const* x, size_t at, __m256i (&sums)[kTokens]) const {
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
// is groups() groups of 32 columns; what they share is its Head. at: index of the group among the activations.
// kTurnBytes: at most what a group takes of a step.
struct NoHead {};

// Most codes leave nothing to a Scaling.
template <size_t kBytes, size_t kGroups> struct Fixed {
  static constexpr size_t kTurnBytes = kBytes / kGroups;

  static inline size_t step_nbytes(Scaling) { return kBytes; }
  static inline size_t groups(Scaling) { return kGroups; }
};

template <bool kMin, bool kFive> struct Int4 : Fixed<(kFive ? 320 : 256) + (kMin ? 64 : 32), 1> {
  typedef NoHead Head;
  static constexpr size_t kCodes = kFive ? 320 : 256;

  static inline Head head(const uint8_t*, size_t, Scaling) { return {}; }

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

struct Int4Nl : Fixed<256 + 32, 1> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, size_t, Scaling) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 32 * half, w);
    look_up(kNlValues, 0, w);
    const SignedCodes codes(w);
    const __m256 scale = half_scales(step + 256 + 16 * half);
    __m256i sums[kTokens];
    codes.dots<0, 8, kTokens>(x, at, sums);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = add_scaled(acc[t], sums[t], scale, static_cast<const ActivationGroup*>(x[t]) + at);
  }
};

struct Int4Mx : Fixed<256 + 16, 1> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, size_t, Scaling) { return {}; }

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

// Two sums of 16 columns under scales of their own.
static inline __m256 add_halves(__m256 acc, __m256i low, __m256i high, const __m256* scale, const ActivationGroup* a) {
  return add_scaled(add_scaled(acc, low, scale[0], a), high, scale[1], a);
}

struct Int4Nv : Fixed<256 + 32, 1> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, size_t, Scaling) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 32 * half, w);
    look_up(kMxValues, 12, w);
    __m256 scale[2];
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      // Half an unsigned e4m3: its bits moved up are an f16 number 2^8 times smaller.
      const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(step + 256 + 16 * part + 8 * half));
      const __m256 small = _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bits), 7));
      scale[part] = _mm256_mul_ps(small, _mm256_set1_ps(128.0f));
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      // The table's offset is 12, low_x32 is -32 * sum(q).
      const __m256i low = _mm256_add_epi32(dot16<24>(w, a->q), _mm256_set1_epi32(a->low_x32 / 8 * 3));
      const __m256i high = _mm256_add_epi32(dot16<24>(w + 4, a->q + 16), _mm256_set1_epi32(a->high_x32 / 8 * 3));
      acc[t] = add_halves(acc[t], low, high, scale, a);
    }
  }
};

// The f16 numbers whose bytes are the top bytes of two words.
static inline __m256 top_bytes(const uint8_t* words_at) {
  const __m256i low = _mm256_srli_epi32(load(words_at), 24), high = _mm256_srli_epi32(load(words_at + 64), 24);
  const __m256i bits = _mm256_or_si256(low, _mm256_slli_epi32(high, 8));
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

// d * (six bits - 32).
static inline __m256 six_bit_scale(__m256 d, __m256i bits) {
  const __m256i six = _mm256_and_si256(bits, _mm256_set1_epi32(63));
  return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(six, _mm256_set1_epi32(32))));
}

static inline __m256i shifted(__m256i words_in, size_t bits) {
  return _mm256_srl_epi32(words_in, _mm_cvtsi32_si128(static_cast<int>(bits)));
}

struct Int4Xs : Fixed<128 + 8 * 256, 8> {
  struct Head {
    __m256 d;
  };

  static inline Head head(const uint8_t* step, size_t half, Scaling) { return {top_bytes(step + 32 * half)}; }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    __m256i w[8];
    unpack_nibbles(step + 128 + 256 * group + 32 * half, w);
    look_up(kNlValues, 0, w);
    const SignedCodes codes(w);
    const __m256 scale = six_bit_scale(head.d, shifted(load(step + 64 * (group / 4) + 32 * half), 6 * (group % 4)));
    __m256i sums[kTokens];
    codes.dots<0, 8, kTokens>(x, at, sums);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = add_scaled(acc[t], sums[t], scale, static_cast<const ActivationGroup*>(x[t]) + at);
  }
};

template <bool kFive> struct Int4K : Fixed<256 + 8 * (kFive ? 320 : 256), 8> {
  struct Head {
    __m256 d, negated_min;
  };
  static constexpr size_t kCodes = kFive ? 320 : 256;

  static inline Head head(const uint8_t* step, size_t half, Scaling) {
    return {top_bytes(step + 32 * half), top_bytes(step + 128 + 32 * half)};
  }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    __m256i w[8];
    unpack_codes<kFive>(step + 256 + kCodes * group + 32 * half, w);
    const __m256i six = _mm256_set1_epi32(63);
    const __m256i bits = shifted(load(step + 64 * (group / 2) + 32 * half), 12 * (group % 2));
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

// Two bits of 32 columns.
static inline void unpack_pairs(const uint8_t* loads, __m256i* w) {
  const __m256i three = _mm256_set1_epi8(3);
  GREENROOM_UNROLL
  for (int part = 0; part < 2; ++part) {
    const __m256i codes = load(loads + 64 * part);
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      w[4 * part + i] = _mm256_and_si256(_mm256_srli_epi16(codes, 2 * i), three);
  }
}

struct Int2K : Fixed<64 + 8 * 160, 8> {
  struct Head {
    __m256 d, negated_min;
  };

  static inline Head head(const uint8_t* step, size_t half, Scaling) {
    return {half_scales(step + 16 * half), half_scales(step + 32 + 16 * half)};
  }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    const uint8_t* loads = step + 64 + 160 * group;
    __m256i w[8];
    unpack_pairs(loads + 32 * half, w);
    __m256 scale[2], min[2];
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(loads + 128 + 16 * part + 8 * half));
      const __m256i pair = _mm256_cvtepu8_epi32(bytes);
      scale[part] = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_and_si256(pair, _mm256_set1_epi32(15))));
      min[part] = _mm256_mul_ps(head.negated_min, _mm256_cvtepi32_ps(_mm256_srli_epi32(pair, 4)));
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      acc[t] = add_halves(acc[t], dot16<3>(w, a->q), dot16<3>(w + 4, a->q + 16), scale, a);
      acc[t] = _mm256_fmadd_ps(min[0], _mm256_set1_ps(a->scaled_low), acc[t]);
      acc[t] = _mm256_fmadd_ps(min[1], _mm256_set1_ps(a->scaled_high), acc[t]);
    }
  }
};

struct Int3K : Fixed<224 + 8 * 192, 8> {
  struct Head {
    __m256 d;
    __m256i last; // scale words of columns 192 on
  };

  static inline Head head(const uint8_t* step, size_t half, Scaling) {
    const uint8_t* scales = step + 32 + 32 * half;
    const __m256i first = _mm256_srli_epi32(load(scales), 24), second = _mm256_srli_epi32(load(scales + 64), 24);
    const __m256i third = _mm256_srli_epi32(load(scales + 128), 24);
    return {half_scales(step + 16 * half),
            _mm256_or_si256(first, _mm256_or_si256(_mm256_slli_epi32(second, 8), _mm256_slli_epi32(third, 16)))};
  }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    const uint8_t* loads = step + 224 + 192 * group + 32 * half;
    __m256i w[8];
    unpack_pairs(loads, w);
    const __m256i third = load(loads + 128), bit = _mm256_set1_epi8(4);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j) {
      const __m256i moved = j < 2 ? _mm256_slli_epi16(third, (2 - j) & 7) : _mm256_srli_epi16(third, (j - 2) & 7);
      w[j] = _mm256_or_si256(w[j], _mm256_and_si256(moved, bit));
    }
    const __m256i scale_words = group < 6 ? load(step + 32 + 64 * (group / 2) + 32 * half) : head.last;
    const __m256 scale[2] = {six_bit_scale(head.d, shifted(scale_words, 12 * (group % 2))),
                             six_bit_scale(head.d, shifted(scale_words, 12 * (group % 2) + 6))};
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
      // Codes count from 4, low_x32 is -32 * sum(q).
      const __m256i low = _mm256_add_epi32(dot16<7>(w, a->q), _mm256_set1_epi32(a->low_x32 / 8));
      const __m256i high = _mm256_add_epi32(dot16<7>(w + 4, a->q + 16), _mm256_set1_epi32(a->high_x32 / 8));
      acc[t] = add_halves(acc[t], low, high, scale, a);
    }
  }
};

struct Int6K : Fixed<32 + 8 * (256 + 128 + 32), 8> {
  struct Head {
    __m256 d;
  };
  static constexpr size_t kGroupBytes = 256 + 128 + 32;

  static inline Head head(const uint8_t* step, size_t half, Scaling) { return {half_scales(step + 16 * half)}; }

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
      acc[t] = add_halves(acc[t], low, high, scale, a);
    }
  }
};

struct Int8 : Fixed<512 + 32, 1> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, size_t, Scaling) { return {}; }

  template <int kTokens>
  static inline void half_group(const Head&, const uint8_t* step, size_t, size_t half, size_t at, const void* const* x,
                                __m256* acc) {
    __m256i w[8];
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = load(step + 64 * j + 32 * half);
    const SignedCodes codes(w);
    const __m256 scale = half_scales(step + 512 + 16 * half);
    __m256i sums[kTokens];
    codes.dots<0, 8, kTokens>(x, at, sums);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = add_scaled(acc[t], sums[t], scale, static_cast<const ActivationGroup*>(x[t]) + at);
  }
};

static inline size_t scale_nbytes(ScaleType type) {
  return type == kScaleF32 ? 4 : 2;
}

// Scales of the eight rows of one half; p: of row 0 of the strip.
static inline __m256 typed_scales(ScaleType type, const uint8_t* p, size_t half) {
  if (type == kScaleF16)
    return half_scales(p + 16 * half);
  if (type == kScaleF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 32 * half));
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * half)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

// Generic blocks of one scale, of 16 columns (kHalves) or of Scaling::columns. A zero point makes a minimum; both sides
// of it are counted from the middle of the codes, so that little cancels.
template <bool kNibbles, bool kZero, bool kHalves> struct Block {
  static constexpr int kParts = kHalves ? 2 : 1;
  static constexpr size_t kCodes = kNibbles ? 256 : 512, kTurnBytes = kCodes + kParts * 16 * (kZero ? 5 : 4);
  struct Head {
    __m256 scale[kParts], min[kParts];
  };

  static inline size_t groups(Scaling scaling) { return kHalves ? 1 : scaling.columns / kGroup; }
  static inline size_t step_nbytes(Scaling scaling) {
    return groups(scaling) * kCodes + kParts * kStripRows * (scale_nbytes(scaling.type) + kZero);
  }
  static inline Head head(const uint8_t* step, size_t half, Scaling scaling) {
    Head head;
    const size_t one = kStripRows * scale_nbytes(scaling.type);
    const uint8_t* scales = step + groups(scaling) * kCodes;
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      head.scale[part] = typed_scales(scaling.type, scales + part * one, half);
      if (kZero) {
        const uint8_t* zeros = scales + kParts * one + kStripRows * part + 8 * half;
        const __m256i zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
        const __m256i negated = _mm256_sub_epi32(_mm256_set1_epi32(kNibbles ? 8 : 128), zero);
        head.min[part] = _mm256_mul_ps(head.scale[part], _mm256_cvtepi32_ps(negated));
      }
    }
    return head;
  }

  template <int kTokens>
  static inline void half_group(const Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                                const void* const* x, __m256* acc) {
    const uint8_t* loads = step + kCodes * group + 32 * half;
    __m256i w[8];
    if (kNibbles) {
      unpack_nibbles(loads, w);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
        if (kHalves) {
          const __m256i low = _mm256_add_epi32(dot16<15>(w, a->q), _mm256_set1_epi32(a->low_x32 / 4));
          const __m256i high = _mm256_add_epi32(dot16<15>(w + 4, a->q + 16), _mm256_set1_epi32(a->high_x32 / 4));
          acc[t] = add_halves(acc[t], low, high, head.scale, a);
        } else {
          acc[t] =
              add_scaled(acc[t], _mm256_add_epi32(dot32<15>(w, a->q), _mm256_set1_epi32(a->sum_x8)), head.scale[0], a);
        }
        acc[t] = add_min(acc[t], head, a);
      }
    } else {
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = load(loads + 64 * j);
      const SignedCodes codes(w);
      __m256i sums[kTokens], high[kTokens];
      codes.dots<0, (kHalves ? 4 : 8), kTokens>(x, at, sums);
      if (kHalves)
        codes.dots<4, 8, kTokens>(x, at, high);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + at;
        if (kHalves)
          acc[t] = add_halves(acc[t], sums[t], high[t], head.scale, a);
        else
          acc[t] = add_scaled(acc[t], sums[t], head.scale[0], a);
        acc[t] = add_min(acc[t], head, a);
      }
    }
  }

private:
  static inline __m256 add_min(__m256 acc, const Head& head, const ActivationGroup* a) {
    if (!kZero)
      return acc;
    if (!kHalves)
      return _mm256_fmadd_ps(head.min[0], _mm256_set1_ps(a->scaled_sum), acc);
    acc = _mm256_fmadd_ps(head.min[0], _mm256_set1_ps(a->scaled_low), acc);
    return _mm256_fmadd_ps(head.min[kParts - 1], _mm256_set1_ps(a->scaled_high), acc);
  }
};

} // namespace
} // namespace greenroom
