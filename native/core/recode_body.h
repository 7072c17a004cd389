// Float weights to integer codes, in plain loops that a compiler turns into vectors of whatever it builds for: each
// file that includes this gets a copy of its own. Thirty-two groups are searched side by side, so no sum goes across a
// vector, and nothing is contracted: every copy gives the same bits. Only plain C headers: nothing compiled here may be
// shared with baseline files.
#pragma once

#include <math.h>
#include <string.h>

#include "kernels.h"
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
  return fabsf(scale) > 1e-30f ? 1.0f / scale : 0.0f; // never infinite
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

// kLanes groups side by side, [kCount][kLanes]; lanes without a group of their own repeat the last.
template <size_t kCount> static inline void turn(const float* x, size_t groups, float* turned) {
  for (size_t j = 0; j < kLanes; ++j) {
    const float* from = x + kCount * (j < groups ? j : groups - 1);
    for (size_t i = 0; i < kCount; ++i)
      turned[kLanes * i + j] = from[i];
  }
}

// The value of largest magnitude of each lane.
template <size_t kCount> static inline void extremes(const float* x, float* extreme) {
  float most[kLanes] = {}, least[kLanes] = {};
  for (size_t i = 0; i < kCount; ++i)
    for (size_t j = 0; j < kLanes; ++j) {
      const float v = x[kLanes * i + j];
      most[j] = v > most[j] ? v : most[j];
      least[j] = v < least[j] ? v : least[j];
    }
  for (size_t j = 0; j < kLanes; ++j)
    extreme[j] = most[j] > -least[j] ? most[j] : least[j];
}

// The best scales so far. For the values q that a scale gives, the best scale is xq / qq, and its squared error is
// xx - xq^2 / qq.
struct Best {
  float scale[kLanes] = {}, gain[kLanes] = {};

  void offer(const float* xq, const float* qq) {
    for (size_t j = 0; j < kLanes; ++j) {
      const bool better = xq[j] * xq[j] > gain[j] * qq[j];
      const float divisor = qq[j] > 0.0f ? qq[j] : 1.0f;
      gain[j] = better ? xq[j] * xq[j] / divisor : gain[j];
      scale[j] = better ? xq[j] / divisor : scale[j];
    }
  }
};

// kNlValues. Between the middles of its neighbours, all of them halves, lies every half-open stretch of 1/2.
struct Table {
  float value[512];
  uint8_t code[512];

  constexpr Table() : value(), code() {
    int nearest_code = 0;
    for (int i = 0; i < 512; ++i) {
      // The stretch begins at (i - 256) / 2.
      while (nearest_code < 15 && i - 256 >= kNlValues[nearest_code] + kNlValues[nearest_code + 1])
        ++nearest_code;
      code[i] = static_cast<uint8_t>(nearest_code);
      value[i] = kNlValues[nearest_code];
    }
  }
};
constexpr Table kTable;

// Place in kTable.
static inline int32_t place(float v) {
  return static_cast<int32_t>(clamp(v, -127.0f, 127.0f) * 2.0f + 256.0f);
}

// Scales near the best for each of kLanes groups. Few candidates suffice, because each is followed by the best scale
// for the codes it gives. Codes come from polynomials through the table's middles (within 0.06 of a code) and values
// (within 1 of 127), which needs no look-up.
static inline void search_table(const float* x, float* scale) {
  // What the extreme is held as: the table reaches further on one side, and is denser at the end of the other.
  constexpr float kCandidates[] = {-127.0f, -114.0f, -102.0f, 112.0f, 97.0f};
  float inverse_extreme[kLanes];
  extremes<32>(x, inverse_extreme);
  for (size_t j = 0; j < kLanes; ++j)
    inverse_extreme[j] = inverse_of(inverse_extreme[j]);
  Best best;
  for (const float candidate : kCandidates) {
    float inverse[kLanes], xq[kLanes] = {}, qq[kLanes] = {};
    for (size_t j = 0; j < kLanes; ++j)
      inverse[j] = candidate / 127.0f * inverse_extreme[j];
    for (size_t i = 0; i < 32; ++i)
      for (size_t j = 0; j < kLanes; ++j) {
        const float v = x[kLanes * i + j], u = v * inverse[j], uu = u * u;
        const float real = u * (10.8428f + uu * (-5.8043f + uu * 3.01578f)) - 0.127846f;
        const float code = nearest(real < 7.0f ? real : 7.0f); // less 8; no candidate reaches below -8.5
        const float q = 0.990474f + code * (11.437744f + code * (0.0671659f + code * 0.08095843f));
        xq[j] += v * q;
        qq[j] += q * q;
      }
    best.offer(xq, qq);
  }
  memcpy(scale, best.scale, sizeof best.scale);
}

// The best scales for the codes that these scales give. Look-ups and arithmetic take turns over whole blocks: in short
// turns each would wait for the other's stores.
static inline void refine_table(const float* x, float* scale) {
  float inverse[kLanes], xq[kLanes] = {}, qq[kLanes] = {}, q[32 * kLanes];
  int32_t at[32 * kLanes];
  for (size_t j = 0; j < kLanes; ++j)
    inverse[j] = inverse_of(scale[j]);
  for (size_t i = 0; i < 32; ++i)
    for (size_t j = 0; j < kLanes; ++j)
      at[kLanes * i + j] = place(x[kLanes * i + j] * inverse[j]);
  for (size_t i = 0; i < 32 * kLanes; ++i)
    q[i] = kTable.value[at[i]];
  for (size_t i = 0; i < 32; ++i)
    for (size_t j = 0; j < kLanes; ++j) {
      xq[j] += x[kLanes * i + j] * q[kLanes * i + j];
      qq[j] += q[kLanes * i + j] * q[kLanes * i + j];
    }
  for (size_t j = 0; j < kLanes; ++j)
    scale[j] = xq[j] / qq[j]; // no value of the table is 0
}

static bool int4_groups(const float* x, size_t groups, RoundScale round, uint16_t* scales, uint8_t* codes) {
  if (!finite(x, groups * 32))
    return false;
  float turned[32 * kLanes], scale[kLanes];
  int32_t at[32 * kLanes];
  uint16_t bits;
  for (size_t g = 0; g < groups; g += kLanes, x += 32 * kLanes, codes += 32 * kLanes) {
    const size_t left = groups - g < kLanes ? groups - g : kLanes;
    turn<32>(x, left, turned);
    search_table(turned, scale);
    for (size_t j = 0; j < kLanes; ++j)
      scale[j] = round(scale[j], &bits);
    refine_table(turned, scale);
    for (size_t j = 0; j < left; ++j) {
      const float inverse = inverse_of(round(scale[j], scales + g + j));
      for (size_t i = 0; i < 32; ++i)
        at[32 * j + i] = place(x[32 * j + i] * inverse);
    }
    for (size_t i = 0; i < 32 * left; ++i)
      codes[i] = kTable.code[at[i]];
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
// many values in the middle better than it hurts the one that clips.
template <size_t kCount> static inline void search(const float* x, RoundScale round, uint16_t* scales, float* chosen) {
  constexpr float kSpread = 1.6f;
  constexpr int kCandidates = 16;
  float extreme[kLanes], per_extreme[kLanes], widest[kLanes];
  extremes<kCount>(x, extreme);
  Best best;
  for (size_t j = 0; j < kLanes; ++j) {
    per_extreme[j] = inverse_of(extreme[j]);
    widest[j] = best.scale[j] = round(extreme[j] / kLow, scales + j); // the outermost code is the negative one
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
    best.offer(xq, qq);
  }
  float plain_error[kLanes], error[kLanes];
  for (size_t j = 0; j < kLanes; ++j)
    best.scale[j] = round(best.scale[j], scales + j);
  errors<kCount>(x, widest, plain_error);
  errors<kCount>(x, best.scale, error);
  for (size_t j = 0; j < kLanes; ++j)
    chosen[j] = round(error[j] < plain_error[j] ? best.scale[j] : widest[j], scales + j);
}

static bool int4_g128_groups(const float* x, size_t groups, RoundScale round, uint16_t* scales, uint8_t* codes) {
  constexpr size_t kCount = 128;
  if (!finite(x, groups * kCount))
    return false;
  float turned[kCount * kLanes], scale[kLanes];
  uint16_t bits[kLanes];
  for (size_t g = 0; g < groups; g += kLanes) {
    const size_t left = groups - g < kLanes ? groups - g : kLanes;
    turn<kCount>(x + kCount * g, left, turned);
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
  return true;
}

} // namespace
} // namespace greenroom
