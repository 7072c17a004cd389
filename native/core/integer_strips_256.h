// Strips of integer codes with 256-bit registers, for the tiers with and without VNNI. Rules as in integer_codes_256.h.
#pragma once

#include "integer_panels_256.h"

namespace greenroom {
namespace {

// Half a strip for some tokens, step by step.
template <class Code, int kTokens> struct Half {
  __m256 acc[kTokens], sums[kTokens], mins[kTokens]; // the last two: see whole_group

  GREENROOM_INLINE void clear(__m256* values) {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      values[t] = _mm256_setzero_ps();
  }
  GREENROOM_INLINE void begin() { clear(acc); }
  GREENROOM_INLINE void begin_step() {
    if constexpr (Code::kWhole) {
      clear(sums);
      clear(mins);
    }
  }
  GREENROOM_INLINE void add(const typename Code::Head& head, const uint8_t* step, size_t group, size_t half, size_t at,
                            const void* const* x) {
    if constexpr (Code::kWhole)
      whole_group<Code, kTokens>(head, step, group, half, at, x, sums, mins);
    else
      half_group<Code, kTokens>(head, step, group, half, at, x, acc);
  }
  GREENROOM_INLINE void end_step(const typename Code::Head& head) {
    if constexpr (Code::kWhole) {
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t)
        acc[t] = add_step<Code>(head, acc[t], sums[t], mins[t]);
    }
  }
  GREENROOM_INLINE void store(float* out, size_t out_stride) const {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      _mm256_storeu_ps(out + t * out_stride, acc[t]);
  }
};

// The products of a group are summed in one 16-bit register, which leaves room for more tokens.
template <class Code>
constexpr bool kOneSum = !kVnni && Code::kPaired && Panel<Code>::kNarrow >= 8 && Code::kParts == 1;

#ifndef GREENROOM_VNNI_256

// A group of both halves with a few tokens. One load after the other: GCC would unpack all first, and keep codes
// and activations in memory, which is half of all instructions.
template <class Code, int kTokens>
static GREENROOM_INLINE void paired_group(const typename Code::Head* heads, const uint8_t* step, size_t group,
                                          size_t at, const void* const* x, Half<Code, kTokens>* both) {
  const ActivationGroup* a[kTokens];
  __m256i factor[2][2], offset[2], narrow[2][kTokens][2], sums[2][kTokens];
  __m256 scale[2], min[2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    a[t] = static_cast<const ActivationGroup*>(x[t]) + at;
  GREENROOM_UNROLL
  for (int half = 0; half < 2; ++half) {
    factor[half][0] = factor[half][1] = _mm256_set1_epi16(1);
    if constexpr (Code::kWhole)
      Code::whole(heads[half], step, group, static_cast<size_t>(half), factor[half], &offset[half], &min[half]);
    else
      Code::scales(heads[half], step, group, static_cast<size_t>(half), &scale[half], &min[half]);
    if constexpr (Code::kParts == 1)
      factor[half][1] = factor[half][0];
  }
  GREENROOM_UNROLL
  for (int j = 0; j < 4; ++j) {
    GREENROOM_UNROLL
    for (int half = 0; half < 2; ++half) {
      __m256i w[2];
      Code::pair(step, group, static_cast<size_t>(half), j, w);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        __m256i *n = narrow[half][t], &total = sums[half][t];
        const __m256i one = _mm256_maddubs_epi16(w[0], words(a[t]->q + 4 * j));
        const __m256i other = _mm256_maddubs_epi16(w[1], words(a[t]->q + 16 + 4 * j));
        if constexpr (kOneSum<Code>) {
          n[0] = j ? _mm256_add_epi16(n[0], _mm256_add_epi16(one, other)) : _mm256_add_epi16(one, other);
          hold(n[0]);
          if (j == 3)
            total = _mm256_madd_epi16(n[0], factor[half][0]);
        } else {
          constexpr int kTurn = Panel<Code>::kNarrow >= 4 ? 4 : 2;
          n[0] = j % kTurn ? _mm256_add_epi16(n[0], one) : one;
          n[1] = j % kTurn ? _mm256_add_epi16(n[1], other) : other;
          hold(n[0]);
          hold(n[1]);
          if (j % kTurn == kTurn - 1) {
            const __m256i wide =
                _mm256_add_epi32(_mm256_madd_epi16(n[0], factor[half][0]), _mm256_madd_epi16(n[1], factor[half][1]));
            total = j < kTurn ? wide : _mm256_add_epi32(total, wide);
          }
        }
      }
    }
  }
  GREENROOM_UNROLL
  for (int half = 0; half < 2; ++half) {
    Half<Code, kTokens>& to = both[half];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      if constexpr (Code::kWhole) {
        add_whole<Code>(sums[half][t], offset[half], min[half], a[t], to.sums + t, to.mins + t);
      } else {
        const __m256i sum = _mm256_add_epi32(sums[half][t], Code::start(a[t], 0));
        to.acc[t] = add_scaled(to.acc[t], sum, scale[half], a[t]);
        if constexpr (Code::kHasMin)
          to.acc[t] = _mm256_fmadd_ps(min[half], _mm256_set1_ps(a[t]->scaled_sum), to.acc[t]);
      }
    }
  }
}

#endif

// Both halves in one pass: each cache line is touched once. For few tokens.
template <class Code, int kTokens>
void whole(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x, float* out,
           size_t out_stride) {
  const size_t step_nbytes = Code::step_nbytes(scaling), groups = Code::groups(scaling);
  const size_t turn = step_nbytes / groups; // what one group's turn fetches
  const size_t total = steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  Half<Code, kTokens> both[2];
  both[0].begin();
  both[1].begin();
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * step_nbytes;
    const typename Code::Head heads[2] = {Code::head(step, 0, scaling), Code::head(step, 1, scaling)};
    both[0].begin_step();
    both[1].begin_step();
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = s * groups + g;
      prefetch<Code::kTurnBytes>(strip, next, s * step_nbytes + g * turn, total, ahead);
#ifndef GREENROOM_VNNI_256
      if constexpr (Code::kPaired) {
        paired_group<Code, kTokens>(heads, step, g, at, x, both);
        continue;
      }
#endif
      both[0].add(heads[0], step, g, 0, at, x);
      both[1].add(heads[1], step, g, 1, at, x);
    }
    both[0].end_step(heads[0]);
    both[1].end_step(heads[1]);
  }
  both[0].store(out, out_stride);
  both[1].store(out + 8, out_stride);
}

// One half after the other, from the cache: all registers serve one half.
template <class Code, int kTokens>
void halves(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x, float* out,
            size_t out_stride) {
  const size_t step_nbytes = Code::step_nbytes(scaling), groups = Code::groups(scaling);
  const size_t turn = step_nbytes / groups, total = steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  for (size_t half = 0; half < 2; ++half) {
    Half<Code, kTokens> sums;
    sums.begin();
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * step_nbytes;
      const typename Code::Head head = Code::head(step, half, scaling);
      sums.begin_step();
      for (size_t g = 0; g < groups; ++g) {
        if (half == 0)
          prefetch<Code::kTurnBytes>(strip, next, s * step_nbytes + g * turn, total, ahead);
        sums.add(head, step, g, half, s * groups + g, x);
      }
      sums.end_step(head);
    }
    sums.store(out + 8 * half, out_stride);
  }
}

template <class Code, int kTokens>
static GREENROOM_INLINE void some(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next,
                                  const void* const* x, float* out, size_t out_stride) {
  if constexpr (kOneSum<Code>)
    whole<Code, kTokens>(strip, steps, scaling, next, x, out, out_stride);
  else
    halves<Code, kTokens>(strip, steps, scaling, next, x, out, out_stride);
}

template <class Code>
void one_strip(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x,
               size_t tokens, float* out, size_t out_stride) {
  // Passes of nearly equal size: one token alone costs as much as two.
  for (size_t passes = (tokens + 3) / 4; passes > 0; --passes) {
    const size_t n = (tokens + passes - 1) / passes;
    if (n == 4)
      some<Code, 4>(strip, steps, scaling, next, x, out, out_stride);
    else if (n == 3)
      some<Code, 3>(strip, steps, scaling, next, x, out, out_stride);
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
  if (task->second) {
    two_strips<Panel<Code>, Multiplier>(task, x, tokens, out, out_stride);
    return;
  }
  strips<one_strip<Code>>(task, x, tokens, out, out_stride);
}

} // namespace
} // namespace greenroom
