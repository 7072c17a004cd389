// Float weights to integer codes, in plain loops that a compiler turns into vectors of whatever it builds for: each
// file that includes this gets a copy of its own. Thirty-two groups are searched side by side, so no sum goes across a
// vector, and nothing is contracted: every copy gives the same bits. Only plain C headers: nothing compiled here may be
// shared with baseline files.
#pragma once

#include <math.h>
#include <string.h>

#include "recode.h"

namespace greenroom {
namespace {

constexpr size_t kLanes = 32;

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
static inline float nearest(float v) {
  constexpr float kShift = 12582912.0f;
  return (v + kShift) - kShift;
}

static inline float clamp(float v, float low, float high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

static inline float inverse_of(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// No value is NaN or infinite.
static bool finite(const float* x, size_t n) {
  uint32_t spoiled[kLanes] = {};
  for (size_t i = 0; i < n; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      uint32_t bits;
      memcpy(&bits, x + i + j, sizeof bits);
      // The largest exponent carries into the top bit.
      spoiled[j] |= (bits & 0x7f800000u) + 0x00800000u;
    }
  uint32_t all = 0;
  for (size_t j = 0; j < kLanes; ++j)
    all |= spoiled[j];
  return !(all & 0x80000000u);
}

static bool int8_groups(const float* x, size_t groups, RoundScale round, uint16_t* scales, int8_t* codes) {
  constexpr size_t kCount = 32;
  if (!finite(x, groups * kCount))
    return false;
  for (size_t g = 0; g < groups; ++g, x += kCount, codes += kCount) {
    float most[kCount];
    for (size_t j = 0; j < kCount; ++j)
      most[j] = fabsf(x[j]);
    for (size_t width = kCount / 2; width > 0; width /= 2)
      for (size_t j = 0; j < width; ++j)
        most[j] = most[j + width] > most[j] ? most[j + width] : most[j];
    const float inverse = inverse_of(round(most[0] / 127.0f, scales + g));
    for (size_t i = 0; i < kCount; ++i)
      codes[i] = static_cast<int8_t>(static_cast<int32_t>(nearest(clamp(x[i] * inverse, -127.0f, 127.0f))));
  }
  return true;
}

constexpr float kLow = -8.0f, kHigh = 7.0f;

// Squared differences of kLanes groups, each under a scale of its own. x: [kCount][kLanes].
template <size_t kCount> static inline void errors(const float* x, const float* scale, float* error) {
  float inverse[kLanes], sum[kLanes] = {};
  for (size_t j = 0; j < kLanes; ++j)
    inverse[j] = inverse_of(scale[j]);
  for (size_t i = 0; i < kCount; ++i)
    for (size_t j = 0; j < kLanes; ++j) {
      const float v = x[kLanes * i + j];
      const float difference = v - scale[j] * nearest(clamp(v * inverse[j], kLow, kHigh));
      sum[j] += difference * difference;
    }
  memcpy(error, sum, sizeof sum);
}

// Tries scales around the one that puts the largest value on the outermost code: a slightly smaller step serves the
// many values in the middle better than it hurts the one that clips. For the codes q that a scale gives, the best scale
// is xq / qq, and its squared error is xx - xq^2 / qq.
template <size_t kCount> static inline void search(const float* x, RoundScale round, uint16_t* scales, float* chosen) {
  constexpr float kSpread = 1.6f;
  constexpr int kCandidates = 16;
  float most[kLanes] = {}, least[kLanes] = {};
  for (size_t i = 0; i < kCount; ++i)
    for (size_t j = 0; j < kLanes; ++j) {
      const float v = x[kLanes * i + j];
      most[j] = v > most[j] ? v : most[j];
      least[j] = v < least[j] ? v : least[j];
    }
  float per_extreme[kLanes], widest[kLanes], best[kLanes], gain[kLanes];
  for (size_t j = 0; j < kLanes; ++j) {
    const float extreme = most[j] > -least[j] ? most[j] : least[j];
    per_extreme[j] = inverse_of(extreme);
    widest[j] = best[j] = round(extreme / kLow, scales + j); // the outermost code is the negative one
    gain[j] = 0.0f;
  }
  for (int i = 0; i < kCandidates; ++i) {
    const float code = kLow - kSpread + 2 * kSpread * static_cast<float>(i) / (kCandidates - 1);
    float inverse[kLanes], xq[kLanes] = {}, qq[kLanes] = {};
    for (size_t j = 0; j < kLanes; ++j)
      inverse[j] = code * per_extreme[j];
    for (size_t c = 0; c < kCount; ++c)
      for (size_t j = 0; j < kLanes; ++j) {
        const float v = x[kLanes * c + j], q = nearest(clamp(v * inverse[j], kLow, kHigh));
        xq[j] += v * q;
        qq[j] += q * q;
      }
    for (size_t j = 0; j < kLanes; ++j) {
      const bool better = xq[j] * xq[j] > gain[j] * qq[j];
      const float divisor = qq[j] > 0.0f ? qq[j] : 1.0f;
      gain[j] = better ? xq[j] * xq[j] / divisor : gain[j];
      best[j] = better ? xq[j] / divisor : best[j];
    }
  }
  float plain_error[kLanes], error[kLanes];
  for (size_t j = 0; j < kLanes; ++j)
    best[j] = round(best[j], scales + j);
  errors<kCount>(x, widest, plain_error);
  errors<kCount>(x, best, error);
  for (size_t j = 0; j < kLanes; ++j)
    chosen[j] = round(error[j] < plain_error[j] ? best[j] : widest[j], scales + j);
}

template <size_t kCount>
static void int4_of(const float* x, size_t groups, RoundScale round, uint16_t* scales, uint8_t* codes) {
  float turned[kCount * kLanes];
  for (size_t g = 0; g < groups; g += kLanes) {
    // Lanes without a group of their own repeat the last.
    const size_t left = groups - g < kLanes ? groups - g : kLanes;
    for (size_t j = 0; j < kLanes; ++j) {
      const float* from = x + kCount * (g + (j < left ? j : left - 1));
      for (size_t i = 0; i < kCount; ++i)
        turned[kLanes * i + j] = from[i];
    }
    float scale[kLanes];
    uint16_t bits[kLanes];
    search<kCount>(turned, round, bits, scale);
    memcpy(scales + g, bits, left * sizeof bits[0]);
    for (size_t j = 0; j < left; ++j) {
      const float inverse = inverse_of(scale[j]);
      const float* from = x + kCount * (g + j);
      uint8_t* to = codes + kCount * (g + j);
      for (size_t i = 0; i < kCount; ++i)
        to[i] = static_cast<uint8_t>(static_cast<int32_t>(nearest(clamp(from[i] * inverse, kLow, kHigh)) + 8.0f));
    }
  }
}

static bool int4_groups(const float* x, size_t groups, size_t group, RoundScale round, uint16_t* scales,
                        uint8_t* codes) {
  if (!finite(x, groups * group))
    return false;
  if (group == 128)
    int4_of<128>(x, groups, round, scales, codes);
  else
    int4_of<32>(x, groups, round, scales, codes);
  return true;
}

} // namespace
} // namespace greenroom
