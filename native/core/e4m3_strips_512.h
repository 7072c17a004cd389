// Strips of e4m3 with 512-bit registers: codes become pairs of bf16, which hold every one of them, and the including
// file says how a pair is multiplied. Only plain C headers: nothing compiled here may be shared with baseline files.
#pragma once

#include "integer_codes_512.h"

namespace greenroom {
namespace {

// A load of 16 rows of four columns, in the order 0, 2, 1, 3, to pairs of bf16: columns 0 and 1, columns 2 and 3. The
// upper byte of a bf16 follows from the upper half of the code (sign and exponent), the lower one is the lower half
// moved up; only the subnormals (upper half 0 or 8, lower half below 8) need tables of their own.
static inline void e4m3_pairs(const uint8_t* load, __m512i* pairs) {
  alignas(16) static constexpr uint8_t kNormal[16] = {0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x41, 0x42, 0x43,
                                                      0xbc, 0xbd, 0xbe, 0xbf, 0xc0, 0xc1, 0xc2, 0xc3};
  alignas(16) static constexpr uint8_t kTinyHigh[16] = {0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c};
  alignas(16) static constexpr uint8_t kTinyLow[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60};
  const __m512i codes = _mm512_loadu_si512(load), nibble = _mm512_set1_epi8(15);
  const __m512i low = _mm512_and_si512(codes, nibble);
  const auto table = [](const uint8_t* p) {
    return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
  };
  __m512i upper = _mm512_shuffle_epi8(table(kNormal), _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble));
  __m512i lower = _mm512_slli_epi16(low, 4);
  const __mmask64 tiny = _mm512_testn_epi8_mask(codes, _mm512_set1_epi8(0x78));
  const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(-128));
  upper = _mm512_mask_mov_epi8(upper, tiny, _mm512_or_si512(_mm512_shuffle_epi8(table(kTinyHigh), low), sign));
  lower = _mm512_mask_shuffle_epi8(lower, tiny, table(kTinyLow), low);
  const __m512i even = _mm512_set1_epi32(0x00ff00ff);
  pairs[0] = _mm512_or_si512(_mm512_slli_epi16(upper, 8), _mm512_and_si512(lower, even));
  pairs[1] = _mm512_or_si512(_mm512_andnot_si512(even, upper), _mm512_srli_epi16(lower, 8));
}

template <class Multiply, int kTokens, int kStrips>
void e4m3_block(const StripTask* task, bool first, const void* const* x, float* out, size_t out_stride) {
  const size_t columns = task->scaling.columns;
  const size_t step_nbytes = kStripRows * (columns + scale_nbytes(task->scaling.type));
  const size_t total = task->steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  __m512 acc[kTokens][kStrips];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      acc[t][i] = _mm512_setzero_ps();
  }
  for (size_t s = 0; s < task->steps; ++s) {
    const uint8_t* step[2] = {task->strip + s * step_nbytes, kStrips == 2 ? task->second + s * step_nbytes : nullptr};
    // A chain of additions for each of the two pairs of a load.
    __m512 sum[kTokens][kStrips][2];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i)
        sum[t][i][0] = sum[t][i][1] = _mm512_setzero_ps();
    }
    for (size_t c = 0; c < columns; c += 4) {
      const size_t at = s * step_nbytes + kStripRows * c;
      __m512i pairs[kStrips][2];
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        if (kStrips == 1)
          touch(at + ahead < total ? task->strip + at + ahead : task->next + (at + ahead - total));
        else if (first)
          touch((i ? task->next_second : task->next) + at);
        e4m3_pairs(step[i] + kStripRows * c, pairs[i]);
      }
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const auto* a = static_cast<const typename Multiply::Activation*>(x[t]) + s * columns + c;
        GREENROOM_UNROLL
        for (int i = 0; i < kStrips; ++i) {
          sum[t][i][0] = Multiply::add(sum[t][i][0], pairs[i][0], a);
          sum[t][i][1] = Multiply::add(sum[t][i][1], pairs[i][1], a + 2);
        }
      }
    }
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      const __m512 scale = typed_scales(task->scaling.type, step[i] + kStripRows * columns);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t)
        acc[t][i] = _mm512_fmadd_ps(_mm512_add_ps(sum[t][i][0], sum[t][i][1]), scale, acc[t][i]);
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, acc[t][i]);
  }
}

template <class Multiply, int kTokens>
void e4m3_block(const StripTask* task, bool first, const void* const* x, float* out, size_t out_stride) {
  if (task->second)
    e4m3_block<Multiply, kTokens, 2>(task, first, x, out, out_stride);
  else
    e4m3_block<Multiply, kTokens, 1>(task, first, x, out, out_stride);
}

template <class Multiply>
void e4m3_tokens(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  bool first = true;
  for (; tokens >= 3; tokens -= 3, x += 3, out += 3 * out_stride, first = false)
    e4m3_block<Multiply, 3>(task, first, x, out, out_stride);
  if (tokens == 2)
    e4m3_block<Multiply, 2>(task, first, x, out, out_stride);
  else if (tokens == 1)
    e4m3_block<Multiply, 1>(task, first, x, out, out_stride);
}

} // namespace
} // namespace greenroom
