// How the integer kinds are read with 512-bit registers: by the VNNI kernels, and by the AMX ones, whose tiles take the
// same registers as rows. Each file that includes this gets a copy of its own. Only plain C headers: nothing compiled
// here may be shared with baseline files.
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

static inline void touch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

static inline __m512 half_scales(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Low nibbles to w[0 .. 3], high ones to w[4 .. 7].
static inline void unpack_nibbles(const uint8_t* loads, __m512i* w) {
  const __m512i low = _mm512_set1_epi8(15);
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j) {
    const __m512i codes = _mm512_loadu_si512(loads + 64 * j);
    w[j] = _mm512_and_si512(codes, low);
    w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), low);
  }
}

// The same, and bit j of the fifth load to bit 4 of w[j].
template <bool kFive> static inline void unpack_codes(const uint8_t* loads, __m512i* w) {
  unpack_nibbles(loads, w);
  if (!kFive)
    return;
  const __m512i high = _mm512_loadu_si512(loads + 256), bit = _mm512_set1_epi8(16);
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j) {
    const __m512i moved = j < 4 ? _mm512_slli_epi16(high, static_cast<unsigned>(4 - j) & 7)
                                : _mm512_srli_epi16(high, static_cast<unsigned>(j - 4) & 7);
    w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xf8); // w | (moved & bit)
  }
}

// A code says how one group of 32 columns becomes eight registers of unsigned bytes for vpdpbusd, and what the sums are
// multiplied by. kGroups of them make a step; what they share is its Head. With kParts = 2 both halves of a group have
// scales of their own.
struct NoHead {};

template <bool kMin, bool kFive> struct Int4 {
  typedef NoHead Head;
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = kCodes + (kMin ? 64 : 32), kGroups = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = kMin;

  static inline Head head(const uint8_t*) { return {}; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) { unpack_codes<kFive>(step, w); }
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512* min) {
    scale[0] = half_scales(step + kCodes);
    if (kMin)
      *min = half_scales(step + kCodes + 32);
  }
  static inline __m512i start(const ActivationGroup* a, int) {
    return kMin ? _mm512_setzero_si512() : _mm512_set1_epi32(kFive ? 2 * a->sum_x8 : a->sum_x8);
  }
};

// 2^(e - 128) of 16 rows; the two smallest are subnormal.
static inline __m512 exponents(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __mmask16 tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
  const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(bits, tiny, _mm512_set1_epi32(0x00200000), e));
}

// Codes through a table, with offset 128.
template <bool kMx> struct Int4Table {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 256 + (kMx ? 16 : 32), kGroups = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;

  static inline Head head(const uint8_t*) { return {}; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMx ? kMxValues : kNlValues));
    const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(values, _mm_set1_epi8(-128)));
    unpack_nibbles(step, w);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = _mm512_shuffle_epi8(table, w[j]);
  }
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512*) {
    scale[0] = kMx ? exponents(step + 256) : half_scales(step + 256);
  }
  static inline __m512i start(const ActivationGroup* a, int) { return _mm512_set1_epi32(a->sum_x128); }
};

template <bool kFive> struct Int4K {
  struct Head {
    __m512 d, negated_min;
  };
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = 256 + 8 * kCodes, kGroups = 8;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = true;

  // The f16 numbers whose bytes are the top bytes of two words.
  static inline __m512 top_bytes(const uint8_t* step) {
    const __m512i low = _mm512_srli_epi32(_mm512_loadu_si512(step), 24);
    const __m512i high = _mm512_srli_epi32(_mm512_loadu_si512(step + 64), 24);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_or_si512(low, _mm512_slli_epi32(high, 8))));
  }
  static inline Head head(const uint8_t* step) { return {top_bytes(step), top_bytes(step + 128)}; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    unpack_codes<kFive>(step + 256 + kCodes * group, w);
  }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512* min) {
    const __m512i six = _mm512_set1_epi32(63);
    const __m512i bits = _mm512_srl_epi32(_mm512_loadu_si512(step + 64 * (group / 2)),
                                          _mm_cvtsi32_si128(static_cast<int>(12 * (group % 2))));
    scale[0] = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(_mm512_and_si512(bits, six)));
    *min = _mm512_mul_ps(head.negated_min, _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(bits, 6), six)));
  }
  static inline __m512i start(const ActivationGroup*, int) { return _mm512_setzero_si512(); }
};

struct Int6K {
  struct Head {
    __m512 d;
  };
  static constexpr size_t kGroupBytes = 256 + 128 + 32, kStepBytes = 32 + 8 * kGroupBytes, kGroups = 8;
  static constexpr int kParts = 2;
  static constexpr bool kHasMin = false;

  static inline Head head(const uint8_t* step) { return {half_scales(step)}; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    const uint8_t* loads = step + 32 + kGroupBytes * group;
    unpack_nibbles(loads, w);
    const __m512i two = _mm512_set1_epi8(0x30);
    GREENROOM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m512i high = _mm512_loadu_si512(loads + 256 + 64 * half);
      __m512i* to = w + 4 * half;
      // low | (high & 0x30), the two bits moved to their place first.
      to[0] = _mm512_ternarylogic_epi32(to[0], _mm512_slli_epi16(high, 4), two, 0xf8);
      to[1] = _mm512_ternarylogic_epi32(to[1], _mm512_slli_epi16(high, 2), two, 0xf8);
      to[2] = _mm512_ternarylogic_epi32(to[2], high, two, 0xf8);
      to[3] = _mm512_ternarylogic_epi32(to[3], _mm512_srli_epi16(high, 2), two, 0xf8);
    }
  }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512*) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const uint8_t* p = step + 32 + kGroupBytes * group + 384 + 16 * part;
      const __m512i factor = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      scale[part] = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(factor));
    }
  }
  static inline __m512i start(const ActivationGroup* a, int part) {
    return _mm512_set1_epi32(part ? a->high_x32 : a->low_x32);
  }
};

// int8 weights are read with offset 128, because vpdpbusd wants one unsigned side; the sums start at -128 * sum(q).
struct Int8 {
  typedef NoHead Head;
  static constexpr size_t kStepBytes = 512 + 32, kGroups = 1;
  static constexpr int kParts = 1;
  static constexpr bool kHasMin = false;

  static inline Head head(const uint8_t*) { return {}; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) {
    const __m512i offset = _mm512_set1_epi8(-128);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = _mm512_xor_si512(_mm512_loadu_si512(step + 64 * j), offset);
  }
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512*) {
    scale[0] = half_scales(step + 512);
  }
  static inline __m512i start(const ActivationGroup* a, int) { return _mm512_set1_epi32(a->sum_x128); }
};

} // namespace
} // namespace greenroom
