// Strips of integer codes with 256-bit registers, for the tiers with and without VNNI. Rules as in integer_codes_256.h.
#pragma once

#include "integer_panels_256.h"

namespace greenroom {
namespace {

// Both halves in one pass: each cache line is touched once. For few tokens.
template <class Code, int kTokens>
void whole(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x, float* out,
           size_t out_stride) {
  const size_t step_nbytes = Code::step_nbytes(scaling), groups = Code::groups(scaling);
  const size_t turn = step_nbytes / groups; // what one group's turn fetches
  const size_t total = steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  __m256 upper[kTokens], lower[kTokens];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    upper[t] = lower[t] = _mm256_setzero_ps();
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * step_nbytes;
    const typename Code::Head upper_head = Code::head(step, 0, scaling);
    const typename Code::Head lower_head = Code::head(step, 1, scaling);
    for (size_t g = 0; g < groups; ++g) {
      prefetch<Code::kTurnBytes>(strip, next, s * step_nbytes + g * turn, total, ahead);
      half_group<Code, kTokens>(upper_head, step, g, 0, s * groups + g, x, upper);
      half_group<Code, kTokens>(lower_head, step, g, 1, s * groups + g, x, lower);
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
void halves(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x, float* out,
            size_t out_stride) {
  const size_t step_nbytes = Code::step_nbytes(scaling), groups = Code::groups(scaling);
  const size_t turn = step_nbytes / groups, total = steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  for (size_t half = 0; half < 2; ++half) {
    __m256 acc[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      acc[t] = _mm256_setzero_ps();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * step_nbytes;
      const typename Code::Head head = Code::head(step, half, scaling);
      for (size_t g = 0; g < groups; ++g) {
        if (half == 0)
          prefetch<Code::kTurnBytes>(strip, next, s * step_nbytes + g * turn, total, ahead);
        half_group<Code, kTokens>(head, step, g, half, s * groups + g, x, acc);
      }
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm256_storeu_ps(out + t * out_stride + 8 * half, acc[t]);
  }
}

template <class Code>
void one_strip(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x,
               size_t tokens, float* out, size_t out_stride) {
  // Passes of nearly equal size: one token alone costs as much as two.
  for (size_t passes = (tokens + 3) / 4; passes > 0; --passes) {
    const size_t n = (tokens + passes - 1) / passes;
    if (n == 4)
      halves<Code, 4>(strip, steps, scaling, next, x, out, out_stride);
    else if (n == 3)
      halves<Code, 3>(strip, steps, scaling, next, x, out, out_stride);
    else if (n == 2)
      whole<Code, 2>(strip, steps, scaling, next, x, out, out_stride);
    else
      whole<Code, 1>(strip, steps, scaling, next, x, out, out_stride);
    x += n;
    out += n * out_stride;
    tokens -= n;
  }
}

typedef void (*OneStrip)(const uint8_t*, size_t, Scaling, const uint8_t*, const void* const*, size_t, float*, size_t);

// One strip after the other.
template <OneStrip kKernel>
void strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (!task->second) {
    kKernel(task->strip, task->steps, task->scaling, task->next, x, tokens, out, out_stride);
    return;
  }
  kKernel(task->strip, task->steps, task->scaling, task->second, x, tokens, out, out_stride);
  kKernel(task->second, task->steps, task->scaling, task->next, x, tokens, out + 16, out_stride);
}

template <class Code>
void strip_int(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if constexpr (Panel<Code>::kWorthwhile) {
    if (task->second) {
      two_strips<Panel<Code>, Multiplier>(task, x, tokens, out, out_stride);
      return;
    }
  }
  strips<one_strip<Code>>(task, x, tokens, out, out_stride);
}

} // namespace
} // namespace greenroom
