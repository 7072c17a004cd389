// How the integer kinds are read with 512-bit registers: by the VNNI kernels, and by the AMX ones, whose tiles take the
// same registers as rows. Each file that includes this gets a copy of its own. Only plain C headers: nothing compiled
// here may be shared with baseline files.
#pragma once

#include "strips_512.h"

namespace greenroom {
namespace {

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
// multiplied by. groups() of them make a step of step_nbytes(); what they share is its Head. With kParts = 2 both
// halves of a group have scales, and minima if any, of their own. kTurnBytes: at most what a group takes of a step.
// kBytes: the group's codes are bytes and nothing else, from codes() on.
struct NoHead {};

// Most codes leave nothing to a Scaling.
template <size_t kStepBytes, size_t kGroups, int kScales = 1> struct Fixed {
  static constexpr size_t kTurnBytes = kStepBytes / kGroups;
  static constexpr int kParts = kScales;
  static constexpr bool kHasMin = false, kBytes = false;

  static inline size_t step_nbytes(Scaling) { return kStepBytes; }
  static inline size_t groups(Scaling) { return kGroups; }
};

template <bool kMin, bool kFive> struct Int4 : Fixed<(kFive ? 320 : 256) + (kMin ? 64 : 32), 1> {
  typedef NoHead Head;
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = kMin;

  static inline Head head(const uint8_t*, Scaling) { return {}; }
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
static inline void unpack_table(const uint8_t* loads, const int8_t* values, __m512i* w) {
  const __m128i signed_values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  const __m512i table = _mm512_broadcast_i32x4(_mm_xor_si128(signed_values, _mm_set1_epi8(-128)));
  unpack_nibbles(loads, w);
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j)
    w[j] = _mm512_shuffle_epi8(table, w[j]);
}

template <bool kMx> struct Int4Table : Fixed<256 + (kMx ? 16 : 32), 1> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, Scaling) { return {}; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) {
    unpack_table(step, kMx ? kMxValues : kNlValues, w);
  }
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512*) {
    scale[0] = kMx ? exponents(step + 256) : half_scales(step + 256);
  }
  static inline __m512i start(const ActivationGroup* a, int) { return _mm512_set1_epi32(a->sum_x128); }
};

// Start value of half a group where weights are read with offset 128; low_x32 is -32 * sum(q).
static inline __m512i half_start_128(const ActivationGroup* a, int part) {
  return _mm512_set1_epi32(4 * (part ? a->high_x32 : a->low_x32));
}

struct Int4Nv : Fixed<256 + 32, 1, 2> {
  typedef NoHead Head;

  static inline Head head(const uint8_t*, Scaling) { return {}; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) { unpack_table(step, kMxValues, w); }
  // Half an unsigned e4m3: its bits moved up are an f16 number 2^8 times smaller.
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512*) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step + 256 + 16 * part));
      const __m512 small = _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bits), 7));
      scale[part] = _mm512_mul_ps(small, _mm512_set1_ps(128.0f));
    }
  }
  static inline __m512i start(const ActivationGroup* a, int part) { return half_start_128(a, part); }
};

// The f16 numbers whose bytes are the top bytes of two words.
static inline __m512 top_bytes(const uint8_t* step) {
  const __m512i low = _mm512_srli_epi32(_mm512_loadu_si512(step), 24);
  const __m512i high = _mm512_srli_epi32(_mm512_loadu_si512(step + 64), 24);
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_or_si512(low, _mm512_slli_epi32(high, 8))));
}

// d * (six bits - 32).
static inline __m512 six_bit_scale(__m512 d, __m512i bits) {
  const __m512i six = _mm512_and_si512(bits, _mm512_set1_epi32(63));
  return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_sub_epi32(six, _mm512_set1_epi32(32))));
}

static inline __m512i shifted(__m512i words, size_t bits) {
  return _mm512_srl_epi32(words, _mm_cvtsi32_si128(static_cast<int>(bits)));
}

struct Int4Xs : Fixed<128 + 8 * 256, 8> {
  struct Head {
    __m512 d;
  };

  static inline Head head(const uint8_t* step, Scaling) { return {top_bytes(step)}; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    unpack_table(step + 128 + 256 * group, kNlValues, w);
  }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512*) {
    scale[0] = six_bit_scale(head.d, shifted(_mm512_loadu_si512(step + 64 * (group / 4)), 6 * (group % 4)));
  }
  static inline __m512i start(const ActivationGroup* a, int) { return _mm512_set1_epi32(a->sum_x128); }
};

template <bool kFive> struct Int4K : Fixed<256 + 8 * (kFive ? 320 : 256), 8> {
  struct Head {
    __m512 d, negated_min;
  };
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = true;

  static inline Head head(const uint8_t* step, Scaling) { return {top_bytes(step), top_bytes(step + 128)}; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    unpack_codes<kFive>(step + 256 + kCodes * group, w);
  }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512* min) {
    const __m512i six = _mm512_set1_epi32(63);
    const __m512i bits = shifted(_mm512_loadu_si512(step + 64 * (group / 2)), 12 * (group % 2));
    scale[0] = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(_mm512_and_si512(bits, six)));
    *min = _mm512_mul_ps(head.negated_min, _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(bits, 6), six)));
  }
  static inline __m512i start(const ActivationGroup*, int) { return _mm512_setzero_si512(); }
};

// Two bits of 32 columns.
static inline void unpack_pairs(const uint8_t* loads, __m512i* w) {
  const __m512i three = _mm512_set1_epi8(3);
  GREENROOM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const __m512i codes = _mm512_loadu_si512(loads + 64 * half);
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      w[4 * half + i] = _mm512_and_si512(_mm512_srli_epi16(codes, static_cast<unsigned>(2 * i)), three);
  }
}

struct Int2K : Fixed<64 + 8 * 160, 8, 2> {
  struct Head {
    __m512 d, negated_min;
  };
  static constexpr bool kHasMin = true;

  static inline Head head(const uint8_t* step, Scaling) { return {half_scales(step), half_scales(step + 32)}; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) { unpack_pairs(step + 64 + 160 * group, w); }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512* min) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const uint8_t* p = step + 64 + 160 * group + 128 + 16 * part;
      const __m512i pair = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      scale[part] = _mm512_mul_ps(head.d, _mm512_cvtepi32_ps(_mm512_and_si512(pair, _mm512_set1_epi32(15))));
      min[part] = _mm512_mul_ps(head.negated_min, _mm512_cvtepi32_ps(_mm512_srli_epi32(pair, 4)));
    }
  }
  static inline __m512i start(const ActivationGroup*, int) { return _mm512_setzero_si512(); }
};

struct Int3K : Fixed<224 + 8 * 192, 8, 2> {
  struct Head {
    __m512 d;
    __m512i last; // scale words of columns 192 on
  };

  static inline Head head(const uint8_t* step, Scaling) {
    __m512i last = _mm512_srli_epi32(_mm512_loadu_si512(step + 32), 24);
    last = _mm512_or_si512(last, _mm512_slli_epi32(_mm512_srli_epi32(_mm512_loadu_si512(step + 96), 24), 8));
    last = _mm512_or_si512(last, _mm512_slli_epi32(_mm512_srli_epi32(_mm512_loadu_si512(step + 160), 24), 16));
    return {half_scales(step), last};
  }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    const uint8_t* loads = step + 224 + 192 * group;
    unpack_pairs(loads, w);
    const __m512i third = _mm512_loadu_si512(loads + 128), bit = _mm512_set1_epi8(4);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 2 ? _mm512_slli_epi16(third, static_cast<unsigned>(2 - j) & 7)
                                  : _mm512_srli_epi16(third, static_cast<unsigned>(j - 2) & 7);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xf8); // w | (moved & bit)
    }
  }
  static inline void scales(const Head& head, const uint8_t* step, size_t group, __m512* scale, __m512*) {
    const __m512i words = group < 6 ? _mm512_loadu_si512(step + 32 + 64 * (group / 2)) : head.last;
    scale[0] = six_bit_scale(head.d, shifted(words, 12 * (group % 2)));
    scale[1] = six_bit_scale(head.d, shifted(words, 12 * (group % 2) + 6));
  }
  // -4 * sum(q)
  static inline __m512i start(const ActivationGroup* a, int part) {
    return _mm512_set1_epi32((part ? a->high_x32 : a->low_x32) / 8);
  }
};

struct Int6K : Fixed<32 + 8 * (256 + 128 + 32), 8, 2> {
  struct Head {
    __m512 d;
  };
  static constexpr size_t kGroupBytes = 256 + 128 + 32;

  static inline Head head(const uint8_t* step, Scaling) { return {half_scales(step)}; }
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
static inline __m512i unpack_four_bytes(const uint8_t* loads, int j) {
  return _mm512_xor_si512(_mm512_loadu_si512(loads + 64 * j), _mm512_set1_epi8(-128));
}

static inline void unpack_bytes(const uint8_t* loads, __m512i* w) {
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j)
    w[j] = unpack_four_bytes(loads, j);
}

struct Int8 : Fixed<512 + 32, 1> {
  typedef NoHead Head;
  static constexpr bool kBytes = true;

  static inline Head head(const uint8_t*, Scaling) { return {}; }
  static inline const uint8_t* codes(const uint8_t* step, size_t) { return step; }
  static inline void unpack(const uint8_t* step, size_t, __m512i* w) { unpack_bytes(step, w); }
  static inline void scales(const Head&, const uint8_t* step, size_t, __m512* scale, __m512*) {
    scale[0] = half_scales(step + 512);
  }
  static inline __m512i start(const ActivationGroup* a, int) { return _mm512_set1_epi32(a->sum_x128); }
};

static inline size_t scale_nbytes(ScaleType type) {
  return type == kScaleF32 ? 4 : 2;
}

static inline __m512 typed_scales(ScaleType type, const uint8_t* p) {
  if (type == kScaleF16)
    return half_scales(p);
  if (type == kScaleF32)
    return _mm512_loadu_ps(p);
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

// Generic blocks of one scale, of 16 columns (kHalves) or of Scaling::columns. A zero point makes a minimum; both sides
// of it are counted from the middle of the codes, so that little cancels.
template <bool kNibbles, bool kZero, bool kHalves> struct Block {
  static constexpr int kParts = kHalves ? 2 : 1;
  static constexpr bool kHasMin = kZero, kBytes = !kNibbles;
  static constexpr size_t kCodes = kNibbles ? 256 : 512, kTurnBytes = kCodes + kParts * 16 * (kZero ? 5 : 4);
  struct Head {
    __m512 scale[kParts], min[kParts];
  };

  static inline size_t groups(Scaling scaling) { return kHalves ? 1 : scaling.columns / kGroup; }
  static inline size_t step_nbytes(Scaling scaling) {
    return groups(scaling) * kCodes + kParts * kStripRows * (scale_nbytes(scaling.type) + kZero);
  }
  static inline Head head(const uint8_t* step, Scaling scaling) {
    Head head;
    const size_t one = kStripRows * scale_nbytes(scaling.type);
    const uint8_t* scales = step + groups(scaling) * kCodes;
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      head.scale[part] = typed_scales(scaling.type, scales + part * one);
      if (kZero) {
        const uint8_t* zeros = scales + kParts * one + kStripRows * part;
        const __m512i zero = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
        const __m512i negated = _mm512_sub_epi32(_mm512_set1_epi32(kNibbles ? 8 : 128), zero);
        head.min[part] = _mm512_mul_ps(head.scale[part], _mm512_cvtepi32_ps(negated));
      }
    }
    return head;
  }
  static inline const uint8_t* codes(const uint8_t* step, size_t group) { return step + kCodes * group; }
  static inline void unpack(const uint8_t* step, size_t group, __m512i* w) {
    if (kNibbles)
      unpack_nibbles(codes(step, group), w);
    else
      unpack_bytes(codes(step, group), w);
  }
  static inline void scales(const Head& head, const uint8_t*, size_t, __m512* scale, __m512* min) {
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      scale[part] = head.scale[part];
      if (kZero)
        min[part] = head.min[part];
    }
  }
  static inline __m512i start(const ActivationGroup* a, int part) {
    if (kHalves)
      return kNibbles ? _mm512_set1_epi32((part ? a->high_x32 : a->low_x32) / 4) : half_start_128(a, part);
    return _mm512_set1_epi32(kNibbles ? a->sum_x8 : a->sum_x128);
  }
};

// What the minimum of a group, or of half a group, is multiplied by.
template <class Code> static inline __m512 min_factor(const ActivationGroup* a, int part) {
  return _mm512_set1_ps(Code::kParts == 1 ? a->scaled_sum : part ? a->scaled_sum - a->scaled_low : a->scaled_low);
}

} // namespace
} // namespace greenroom
