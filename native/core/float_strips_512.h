// Strips of floating-point weights with 512-bit registers, for the kernels with and without products of bf16 pairs.
// Each file that includes this gets a copy of its own. Only plain C headers: nothing compiled here may be shared with
// baseline files.
//
// Weights says what one unit is: kBytes of a strip, which give one register, times kValues activations, which give
// another, added to sums by add(). Even and odd units are chains of their own, because the next addition to a sum has
// to wait for the one before.
#pragma once

#include "strips_512.h"

namespace greenroom {
namespace {

template <class Weights, int kTokens, int kStrips>
static inline void add_units(const StripTask* task, size_t unit, size_t end, const void* const* x,
                             __m512 (&acc)[kTokens][kStrips][2]) {
  for (; unit < end; unit += 2) {
    GREENROOM_UNROLL
    for (size_t k = 0; k < 2; ++k) {
      if (k == 1 && unit + 1 == end)
        break;
      __m512i w[kStrips];
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        w[i] = Weights::load(i ? task->second : task->strip, unit + k);
        hold(w[i]);
      }
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m512i value = Weights::broadcast(x[t], unit + k);
        GREENROOM_UNROLL
        for (int i = 0; i < kStrips; ++i)
          acc[t][i][k] = Weights::add(acc[t][i][k], w[i], value);
      }
    }
  }
}

// A few tokens, straight from the stream of weights.
template <class Weights> struct FloatStream {
  template <int kTokens> static void run(const StripTask* task, const void* const* x, float* out, size_t out_stride);
};

template <class Weights>
template <int kTokens>
void FloatStream<Weights>::run(const StripTask* task, const void* const* x, float* out, size_t out_stride) {
  const size_t total = task->steps * Weights::kUnits * Weights::kBytes, ahead = total < kAhead ? total : kAhead;
  const size_t units = task->steps * Weights::kUnits;
  __m512 acc[kTokens][1][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    acc[t][0][0] = acc[t][0][1] = _mm512_setzero_ps();
  size_t unit = 0;
  for (; unit + 4 <= units; unit += 4) {
    prefetch<4 * Weights::kBytes>(task->strip, task->next, unit * Weights::kBytes, total, ahead);
    add_units<Weights, kTokens, 1>(task, unit, unit + 4, x, acc);
  }
  add_units<Weights, kTokens, 1>(task, unit, units, x, acc);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    _mm512_storeu_ps(out + t * out_stride, _mm512_add_ps(acc[t][0][0], acc[t][0][1]));
}

// A block of columns of two strips, 16 KB at most, stays in the L1 cache while all tokens pass.
constexpr size_t kBlockUnits = 128;
constexpr size_t kFloatTokens = 6; // 24 sums, two registers of weights, one of activations

template <class Weights, int kTokens>
void add_block(const StripTask* task, size_t unit, size_t end, const Share& share, const void* const* x,
               float (*sums)[2][2][16]) {
  __m512 acc[kTokens][2][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      acc[t][i / 2][i % 2] = unit ? _mm512_load_ps(sums[t][i / 2][i % 2]) : _mm512_setzero_ps();
  }
  for (size_t at = unit; at < end; at += 16) {
    share.fetch(0, (at - unit) / 16);
    share.fetch(1, (at - unit) / 16);
    add_units<Weights, kTokens, 2>(task, at, end - at < 16 ? end : at + 16, x, acc);
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      _mm512_store_ps(sums[t][i / 2][i % 2], acc[t][i / 2][i % 2]);
  }
}

template <class Weights>
void two_float_strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  alignas(64) float sums[kTokenBlock][2][2][16];
  const size_t units = task->steps * Weights::kUnits, passes = (tokens + kFloatTokens - 1) / kFloatTokens;
  Soon soon(task, (units + kBlockUnits - 1) / kBlockUnits * passes);
  for (size_t unit = 0; unit < units; unit += kBlockUnits) {
    const size_t end = units - unit < kBlockUnits ? units : unit + kBlockUnits;
    Share share(task, (unit + kBlockUnits) * Weights::kBytes, units * Weights::kBytes, 16 * Weights::kBytes, passes);
    for (size_t pass = 0, t = 0; pass < passes; ++pass) {
      share.turn();
      soon.fetch();
      const size_t n = (tokens - t + passes - pass - 1) / (passes - pass);
      if (n == 6)
        add_block<Weights, 6>(task, unit, end, share, x + t, sums + t);
      else if (n == 5)
        add_block<Weights, 5>(task, unit, end, share, x + t, sums + t);
      else if (n == 4)
        add_block<Weights, 4>(task, unit, end, share, x + t, sums + t);
      else if (n == 3)
        add_block<Weights, 3>(task, unit, end, share, x + t, sums + t);
      else if (n == 2)
        add_block<Weights, 2>(task, unit, end, share, x + t, sums + t);
      else
        add_block<Weights, 1>(task, unit, end, share, x + t, sums + t);
      t += n;
    }
  }
  for (size_t t = 0; t < tokens; ++t)
    for (size_t i = 0; i < 2; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i,
                       _mm512_add_ps(_mm512_load_ps(sums[t][i][0]), _mm512_load_ps(sums[t][i][1])));
}

template <class Weights>
void float_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (task->second)
    two_float_strips<Weights>(task, x, tokens, out, out_stride);
  else
    one_strip<FloatStream<Weights>>(task, x, tokens, out, out_stride);
}

} // namespace
} // namespace greenroom
