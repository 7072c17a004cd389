// How the integer kinds are read with 256-bit registers, with and without VNNI: each tier that includes this file gets
// copies of its own. Only plain C headers: nothing compiled here may be shared with baseline files.
#pragma once

#include "read_ahead.h"

namespace greenroom {
namespace {

static GREENROOM_INLINE __m256i load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Scales of eight rows.
static GREENROOM_INLINE __m256 half_scales(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Low nibbles to w[0 .. 3], high ones to w[4 .. 7].
static GREENROOM_INLINE void unpack_nibbles(const uint8_t* loads, __m256i* w) {
  const __m256i low = _mm256_set1_epi8(15);
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j) {
    const __m256i codes = load(loads + 64 * j);
    w[j] = _mm256_and_si256(codes, low);
    w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low);
  }
}

// The same, and bit j of the fifth load to bit 4 of w[j].
template <bool kFive> static GREENROOM_INLINE void unpack_codes(const uint8_t* loads, __m256i* w) {
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

// Registers j and j + 4 of the above.
template <bool kFive> static GREENROOM_INLINE void pair_of_codes(const uint8_t* loads, int j, __m256i* w) {
  const __m256i low = _mm256_set1_epi8(15), codes = load(loads + 64 * j);
  w[0] = _mm256_and_si256(codes, low);
  w[1] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), low);
  if (!kFive)
    return;
  const __m256i high = load(loads + 256), bit = _mm256_set1_epi8(16);
  w[0] = _mm256_or_si256(w[0], _mm256_and_si256(_mm256_slli_epi16(high, 4 - j), bit));
  w[1] = _mm256_or_si256(w[1], _mm256_and_si256(_mm256_srli_epi16(high, j), bit));
}

// Every code works on half a strip, eight rows. It says how a group of 32 columns becomes eight registers of bytes, and
// what the sums of products are multiplied by. A step is groups() groups; what they share is its Head. With kParts = 2
// both halves of a group have scales, and minima if any, of their own. kSigned: codes are signed bytes; others are at
// most kLargest, and start() is what their offset adds to a sum. kTurnBytes: at most what a group takes of a step.
// kWhole: scales are whole numbers times the d of a step, minima likewise. Without VNNI, whole() gives these numbers: a
// factor is one in both 16-bit halves of every lane. offset multiplies the sums of activations of both halves and
// belongs to the sum (kOffset) or, where both halves have minima, to these. kPaired: pair() gives the registers j and j
// + 4 alone.
constexpr int kSignedBytes = 128;
struct NoHead {};
#ifdef GREENROOM_VNNI_256
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// Most codes leave nothing to a Scaling.
template <size_t kBytes, size_t kGroups, int kMost, int kScales = 1> struct Fixed {
  static constexpr size_t kTurnBytes = kBytes / kGroups;
  static constexpr int kParts = kScales, kLargest = kMost;
  static constexpr bool kHasMin = false, kSigned = kMost == kSignedBytes, kWhole = false, kOffset = false,
                        kPaired = false;

  static GREENROOM_INLINE size_t step_nbytes(Scaling) { return kBytes; }
  static GREENROOM_INLINE size_t groups(Scaling) { return kGroups; }
  static GREENROOM_INLINE __m256i start(const ActivationGroup*, int) { return _mm256_setzero_si256(); }
};

template <bool kMin, bool kFive> struct Int4 : Fixed<(kFive ? 320 : 256) + (kMin ? 64 : 32), 1, (kFive ? 31 : 15)> {
  typedef NoHead Head;
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = kMin, kPaired = true;

  static GREENROOM_INLINE Head head(const uint8_t*, size_t, Scaling) { return {}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t, size_t half, __m256i* w) {
    unpack_codes<kFive>(step + 32 * half, w);
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t, size_t half, int j, __m256i* w) {
    pair_of_codes<kFive>(step + 32 * half, j, w);
  }
  static GREENROOM_INLINE void scales(const Head&, const uint8_t* step, size_t, size_t half, __m256* scale,
                                      __m256* min) {
    scale[0] = half_scales(step + kCodes + 16 * half);
    if (kMin)
      min[0] = half_scales(step + kCodes + 32 + 16 * half);
  }
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int) {
    return kMin ? _mm256_setzero_si256() : _mm256_set1_epi32(kFive ? 2 * a->sum_x8 : a->sum_x8);
  }
};

template <int kCount = 8> static GREENROOM_INLINE void look_up(const int8_t* values, char offset, __m256i* w) {
  const __m128i moved = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)), _mm_set1_epi8(offset));
  const __m256i table = _mm256_broadcastsi128_si256(moved);
  GREENROOM_UNROLL
  for (int j = 0; j < kCount; ++j)
    w[j] = _mm256_shuffle_epi8(table, w[j]);
}

struct Int4Nl : Fixed<256 + 32, 1, kSignedBytes> {
  typedef NoHead Head;

  static GREENROOM_INLINE Head head(const uint8_t*, size_t, Scaling) { return {}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t, size_t half, __m256i* w) {
    unpack_nibbles(step + 32 * half, w);
    look_up(kNlValues, 0, w);
  }
  static GREENROOM_INLINE void scales(const Head&, const uint8_t* step, size_t, size_t half, __m256* scale, __m256*) {
    scale[0] = half_scales(step + 256 + 16 * half);
  }
};

// 2^(e - 128) of eight rows; the two smallest are subnormal.
static GREENROOM_INLINE __m256 exponents(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e), tiny));
}

// Codes count from -12.
struct Int4Mx : Fixed<256 + 16, 1, 24> {
  typedef NoHead Head;
  static constexpr bool kPaired = true;

  static GREENROOM_INLINE Head head(const uint8_t*, size_t, Scaling) { return {}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t, size_t half, __m256i* w) {
    unpack_nibbles(step + 32 * half, w);
    look_up(kMxValues, 12, w);
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t, size_t half, int j, __m256i* w) {
    pair_of_codes<false>(step + 32 * half, j, w);
    look_up<2>(kMxValues, 12, w);
  }
  static GREENROOM_INLINE void scales(const Head&, const uint8_t* step, size_t, size_t half, __m256* scale, __m256*) {
    scale[0] = exponents(step + 256 + 8 * half);
  }
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int) {
    return _mm256_set1_epi32(a->sum_x8 + a->sum_x8 / 2);
  }
};

// -32 * sum(q) of half a group.
static GREENROOM_INLINE int32_t half_x32(const ActivationGroup* a, int part) {
  return part ? a->high_x32 : a->low_x32;
}

struct Int4Nv : Fixed<256 + 32, 1, 24, 2> {
  typedef NoHead Head;

  static GREENROOM_INLINE Head head(const uint8_t*, size_t, Scaling) { return {}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t, size_t half, __m256i* w) {
    Int4Mx::unpack(step, 0, half, w);
  }
  static GREENROOM_INLINE void scales(const Head&, const uint8_t* step, size_t, size_t half, __m256* scale, __m256*) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      // Half an unsigned e4m3: its bits moved up are an f16 number 2^8 times smaller.
      const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(step + 256 + 16 * part + 8 * half));
      const __m256 small = _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(bits), 7));
      scale[part] = _mm256_mul_ps(small, _mm256_set1_ps(128.0f));
    }
  }
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int part) {
    return _mm256_set1_epi32(half_x32(a, part) / 8 * 3);
  }
};

// The f16 numbers whose bytes are the top bytes of two words.
static GREENROOM_INLINE __m256 top_bytes(const uint8_t* words_at) {
  const __m256i low = _mm256_srli_epi32(load(words_at), 24), high = _mm256_srli_epi32(load(words_at + 64), 24);
  const __m256i bits = _mm256_or_si256(low, _mm256_slli_epi32(high, 8));
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

// d * (six bits - 32).
static GREENROOM_INLINE __m256 six_bit_scale(__m256 d, __m256i bits) {
  const __m256i six = _mm256_and_si256(bits, _mm256_set1_epi32(63));
  return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(six, _mm256_set1_epi32(32))));
}

static GREENROOM_INLINE __m256i shifted(__m256i words_in, size_t bits) {
  return _mm256_srl_epi32(words_in, _mm_cvtsi32_si128(static_cast<int>(bits)));
}

// Low 16 bits of every lane to both of its halves.
static GREENROOM_INLINE __m256i twice(__m256i lanes) {
  const __m128i low = _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
  return _mm256_shuffle_epi8(lanes, _mm256_broadcastsi128_si256(low));
}

// Six bits less 32, in both halves of every lane.
static GREENROOM_INLINE __m256i six_bit_factor(__m256i bits) {
  return _mm256_sub_epi16(twice(_mm256_and_si256(bits, _mm256_set1_epi32(63))), _mm256_set1_epi16(32));
}

// What the sums of both halves are multiplied by, -2^kBits times their factors.
template <int kBits> static GREENROOM_INLINE __m256i offset_pair(const __m256i* factor) {
  const __m256i both = _mm256_blend_epi16(factor[0], factor[1], 0xaa);
  return _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(both, kBits));
}

struct Int4Xs : Fixed<128 + 8 * 256, 8, kSignedBytes> {
  struct Head {
    __m256 d;
  };

  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling) { return {top_bytes(step + 32 * half)}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    unpack_nibbles(step + 128 + 256 * group + 32 * half, w);
    look_up(kNlValues, 0, w);
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t* step, size_t group, size_t half, __m256* scale,
                                      __m256*) {
    scale[0] = six_bit_scale(head.d, shifted(load(step + 64 * (group / 4) + 32 * half), 6 * (group % 4)));
  }
};

template <bool kFive> struct Int4K : Fixed<256 + 8 * (kFive ? 320 : 256), 8, (kFive ? 31 : 15)> {
  struct Head {
    __m256 d, negated_min;
  };
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = true, kWhole = !kVnni, kPaired = true;

  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling) {
    return {top_bytes(step + 32 * half), top_bytes(step + 128 + 32 * half)};
  }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    unpack_codes<kFive>(step + 256 + kCodes * group + 32 * half, w);
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t group, size_t half, int j, __m256i* w) {
    pair_of_codes<kFive>(step + 256 + kCodes * group + 32 * half, j, w);
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t* step, size_t group, size_t half, __m256* scale,
                                      __m256* min) {
    const __m256i six = _mm256_set1_epi32(63);
    const __m256i bits = shifted(load(step + 64 * (group / 2) + 32 * half), 12 * (group % 2));
    scale[0] = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_and_si256(bits, six)));
    min[0] = _mm256_mul_ps(head.negated_min, _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bits, 6), six)));
  }
  static GREENROOM_INLINE void whole(const Head&, const uint8_t* step, size_t group, size_t half, __m256i* factor,
                                     __m256i*, __m256* min) {
    const __m256i six = _mm256_set1_epi32(63);
    const __m256i bits = shifted(load(step + 64 * (group / 2) + 32 * half), 12 * (group % 2));
    factor[0] = twice(_mm256_and_si256(bits, six));
    *min = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(bits, 6), six));
  }
};

// Two bits of 32 columns.
static GREENROOM_INLINE void unpack_pairs(const uint8_t* loads, __m256i* w) {
  const __m256i three = _mm256_set1_epi8(3);
  GREENROOM_UNROLL
  for (int part = 0; part < 2; ++part) {
    const __m256i codes = load(loads + 64 * part);
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      w[4 * part + i] = _mm256_and_si256(_mm256_srli_epi16(codes, 2 * i), three);
  }
}

// Registers j and j + 4 of the above.
static GREENROOM_INLINE void pair_of_pairs(const uint8_t* loads, int j, __m256i* w) {
  const __m256i three = _mm256_set1_epi8(3);
  w[0] = _mm256_and_si256(_mm256_srli_epi16(load(loads), 2 * j), three);
  w[1] = _mm256_and_si256(_mm256_srli_epi16(load(loads + 64), 2 * j), three);
}

struct Int2K : Fixed<64 + 8 * 160, 8, 3, 2> {
  struct Head {
    __m256 d, negated_min;
  };
  static constexpr bool kHasMin = true, kWhole = !kVnni, kPaired = true;

  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling) {
    return {half_scales(step + 16 * half), half_scales(step + 32 + 16 * half)};
  }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    unpack_pairs(step + 64 + 160 * group + 32 * half, w);
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t group, size_t half, int j, __m256i* w) {
    pair_of_pairs(step + 64 + 160 * group + 32 * half, j, w);
  }
  static GREENROOM_INLINE void whole(const Head&, const uint8_t* step, size_t group, size_t half, __m256i* factor,
                                     __m256i* offset, __m256*) {
    const uint8_t* p = step + 64 + 160 * group + 128 + 8 * half;
    const __m256i four = _mm256_set1_epi16(15);
    __m256i pair[2];
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      pair[part] = twice(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16 * part))));
      factor[part] = _mm256_and_si256(pair[part], four);
    }
    *offset = _mm256_srli_epi16(_mm256_blend_epi16(pair[0], pair[1], 0xaa), 4);
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t* step, size_t group, size_t half, __m256* scale,
                                      __m256* min) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const uint8_t* p = step + 64 + 160 * group + 128 + 16 * part + 8 * half;
      const __m256i pair = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
      scale[part] = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(_mm256_and_si256(pair, _mm256_set1_epi32(15))));
      min[part] = _mm256_mul_ps(head.negated_min, _mm256_cvtepi32_ps(_mm256_srli_epi32(pair, 4)));
    }
  }
};

// Codes count from -4.
struct Int3K : Fixed<224 + 8 * 192, 8, 7, 2> {
  struct Head {
    __m256 d;
    __m256i last; // scale words of columns 192 on
  };
  static constexpr bool kWhole = !kVnni, kOffset = true, kPaired = true;

  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling) {
    const uint8_t* scales = step + 32 + 32 * half;
    const __m256i first = _mm256_srli_epi32(load(scales), 24), second = _mm256_srli_epi32(load(scales + 64), 24);
    const __m256i third = _mm256_srli_epi32(load(scales + 128), 24);
    return {half_scales(step + 16 * half),
            _mm256_or_si256(first, _mm256_or_si256(_mm256_slli_epi32(second, 8), _mm256_slli_epi32(third, 16)))};
  }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    const uint8_t* loads = step + 224 + 192 * group + 32 * half;
    unpack_pairs(loads, w);
    const __m256i third = load(loads + 128), bit = _mm256_set1_epi8(4);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j) {
      const __m256i moved = j < 2 ? _mm256_slli_epi16(third, (2 - j) & 7) : _mm256_srli_epi16(third, (j - 2) & 7);
      w[j] = _mm256_or_si256(w[j], _mm256_and_si256(moved, bit));
    }
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t group, size_t half, int j, __m256i* w) {
    const uint8_t* loads = step + 224 + 192 * group + 32 * half;
    pair_of_pairs(loads, j, w);
    const __m256i third = load(loads + 128), bit = _mm256_set1_epi8(4);
    const __m256i moved = j < 2 ? _mm256_slli_epi16(third, (2 - j) & 7) : _mm256_srli_epi16(third, (j - 2) & 7);
    w[0] = _mm256_or_si256(w[0], _mm256_and_si256(moved, bit));
    w[1] = _mm256_or_si256(w[1], _mm256_and_si256(_mm256_srli_epi16(third, j + 2), bit));
  }
  static GREENROOM_INLINE void whole(const Head& head, const uint8_t* step, size_t group, size_t half, __m256i* factor,
                                     __m256i* offset, __m256*) {
    const __m256i words = group < 6 ? load(step + 32 + 64 * (group / 2) + 32 * half) : head.last;
    factor[0] = six_bit_factor(shifted(words, 12 * (group % 2)));
    factor[1] = six_bit_factor(shifted(words, 12 * (group % 2) + 6));
    *offset = offset_pair<2>(factor);
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t* step, size_t group, size_t half, __m256* scale,
                                      __m256*) {
    const __m256i words = group < 6 ? load(step + 32 + 64 * (group / 2) + 32 * half) : head.last;
    scale[0] = six_bit_scale(head.d, shifted(words, 12 * (group % 2)));
    scale[1] = six_bit_scale(head.d, shifted(words, 12 * (group % 2) + 6));
  }
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int part) {
    return _mm256_set1_epi32(half_x32(a, part) / 8);
  }
};

// Codes count from -32.
struct Int6K : Fixed<32 + 8 * (256 + 128 + 32), 8, 63, 2> {
  struct Head {
    __m256 d;
  };
  static constexpr bool kWhole = !kVnni, kOffset = true, kPaired = true;
  static constexpr size_t kGroupBytes = 256 + 128 + 32;

  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling) {
    return {half_scales(step + 16 * half)};
  }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    const uint8_t* loads = step + 32 + kGroupBytes * group + 32 * half;
    unpack_nibbles(loads, w);
    const __m256i two = _mm256_set1_epi8(0x30);
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const __m256i high = load(loads + 256 + 64 * part);
      __m256i* to = w + 4 * part;
      to[0] = _mm256_or_si256(to[0], _mm256_and_si256(_mm256_slli_epi16(high, 4), two));
      to[1] = _mm256_or_si256(to[1], _mm256_and_si256(_mm256_slli_epi16(high, 2), two));
      to[2] = _mm256_or_si256(to[2], _mm256_and_si256(high, two));
      to[3] = _mm256_or_si256(to[3], _mm256_and_si256(_mm256_srli_epi16(high, 2), two));
    }
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t group, size_t half, int j, __m256i* w) {
    const uint8_t* loads = step + 32 + kGroupBytes * group + 32 * half;
    pair_of_codes<false>(loads, j, w);
    const __m256i two = _mm256_set1_epi8(0x30);
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const __m256i high = load(loads + 256 + 64 * part);
      const __m256i moved = j < 2 ? _mm256_slli_epi16(high, (4 - 2 * j) & 7) : _mm256_srli_epi16(high, (2 * j - 4) & 7);
      w[part] = _mm256_or_si256(w[part], _mm256_and_si256(moved, two));
    }
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t* step, size_t group, size_t half, __m256* scale,
                                      __m256*) {
    GREENROOM_UNROLL
    for (int part = 0; part < 2; ++part) {
      const uint8_t* p = step + 32 + kGroupBytes * group + 384 + 16 * part + 8 * half;
      const __m256i factors = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
      scale[part] = _mm256_mul_ps(head.d, _mm256_cvtepi32_ps(factors));
    }
  }
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int part) {
    return _mm256_set1_epi32(half_x32(a, part));
  }
  static GREENROOM_INLINE void whole(const Head&, const uint8_t* step, size_t group, size_t half, __m256i* factor,
                                     __m256i* offset, __m256*) {
    const uint8_t* p = step + 32 + kGroupBytes * group + 384 + 8 * half;
    const __m256i low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 16)));
    factor[0] = twice(low);
    factor[1] = twice(high);
    *offset = offset_pair<5>(factor);
  }
};

static GREENROOM_INLINE void load_bytes(const uint8_t* loads, __m256i* w) {
  GREENROOM_UNROLL
  for (int j = 0; j < 8; ++j)
    w[j] = load(loads + 64 * j);
}

struct Int8 : Fixed<512 + 32, 1, kSignedBytes> {
  typedef NoHead Head;

  static GREENROOM_INLINE Head head(const uint8_t*, size_t, Scaling) { return {}; }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t, size_t half, __m256i* w) {
    load_bytes(step + 32 * half, w);
  }
  static GREENROOM_INLINE void scales(const Head&, const uint8_t* step, size_t, size_t half, __m256* scale, __m256*) {
    scale[0] = half_scales(step + 512 + 16 * half);
  }
};

static GREENROOM_INLINE size_t scale_nbytes(ScaleType type) {
  return type == kScaleF32 ? 4 : 2;
}

// Scales of the eight rows of one half; p: of row 0 of the strip.
static GREENROOM_INLINE __m256 typed_scales(ScaleType type, const uint8_t* p, size_t half) {
  if (type == kScaleF16)
    return half_scales(p + 16 * half);
  if (type == kScaleF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 32 * half));
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * half)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

// Generic blocks of one scale, of 16 columns (kHalves) or of Scaling::columns. A zero point makes a minimum; both sides
// of it are counted from the middle of the codes, so that little cancels.
template <bool kFour, bool kZero, bool kHalves> struct Block {
  static constexpr int kParts = kHalves ? 2 : 1, kLargest = kFour ? 15 : kSignedBytes;
  static constexpr bool kHasMin = kZero, kSigned = !kFour, kWhole = false, kOffset = false, kPaired = kFour && !kHalves;
  static constexpr size_t kCodes = kFour ? 256 : 512, kTurnBytes = kCodes + kParts * 16 * (kZero ? 5 : 4);
  struct Head {
    __m256 scale[kParts], min[kParts];
  };

  static GREENROOM_INLINE size_t groups(Scaling scaling) { return kHalves ? 1 : scaling.columns / kGroup; }
  static GREENROOM_INLINE size_t step_nbytes(Scaling scaling) {
    return groups(scaling) * kCodes + kParts * kStripRows * (scale_nbytes(scaling.type) + kZero);
  }
  static GREENROOM_INLINE Head head(const uint8_t* step, size_t half, Scaling scaling) {
    Head head;
    const size_t one = kStripRows * scale_nbytes(scaling.type);
    const uint8_t* scales = step + groups(scaling) * kCodes;
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      head.scale[part] = typed_scales(scaling.type, scales + part * one, half);
      if (kZero) {
        const uint8_t* zeros = scales + kParts * one + kStripRows * part + 8 * half;
        const __m256i zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
        const __m256i negated = _mm256_sub_epi32(_mm256_set1_epi32(kFour ? 8 : 128), zero);
        head.min[part] = _mm256_mul_ps(head.scale[part], _mm256_cvtepi32_ps(negated));
      }
    }
    return head;
  }
  static GREENROOM_INLINE void pair(const uint8_t* step, size_t group, size_t half, int j, __m256i* w) {
    pair_of_codes<false>(step + kCodes * group + 32 * half, j, w);
  }
  static GREENROOM_INLINE void unpack(const uint8_t* step, size_t group, size_t half, __m256i* w) {
    const uint8_t* loads = step + kCodes * group + 32 * half;
    if (kFour)
      unpack_nibbles(loads, w);
    else
      load_bytes(loads, w);
  }
  static GREENROOM_INLINE void scales(const Head& head, const uint8_t*, size_t, size_t, __m256* scale, __m256* min) {
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      scale[part] = head.scale[part];
      if (kZero)
        min[part] = head.min[part];
    }
  }
  // Nibbles count from -8.
  static GREENROOM_INLINE __m256i start(const ActivationGroup* a, int part) {
    return _mm256_set1_epi32(kHalves ? half_x32(a, part) / 4 : a->sum_x8);
  }
};

// What the minimum of a group, or of half a group, is multiplied by.
template <class Code> static GREENROOM_INLINE __m256 min_factor(const ActivationGroup* a, int part) {
  return _mm256_set1_ps(Code::kParts == 1 ? a->scaled_sum : part ? a->scaled_sum - a->scaled_low : a->scaled_low);
}

} // namespace
} // namespace greenroom
