#include "recode.h"

#include <cmath>

#include "float16.h"
#include "kernels.h"

namespace greenroom {
namespace {

// The loops below keep four sums side by side and round without a library call, so that compilers vectorise them for
// any CPU: a model of 30 billion weights passes through here once per candidate.
constexpr size_t kLanes = 4;

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
float nearest(float v) {
  constexpr float kShift = 12582912.0f;
  return (v + kShift) - kShift;
}

float clamp(float v, float low, float high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

float total(const float* lanes) {
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

float inverse_of(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

float as_f16(float scale) {
  return f32_from_f16(f16_from_f32(clamp(scale, -65504.0f, 65504.0f)));
}

// Sum of squared differences under one scale.
float error_of(const float* x, size_t n, float scale, float low, float high) {
  const float inverse = inverse_of(scale);
  float sum[kLanes] = {};
  for (size_t i = 0; i < n; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      const float difference = x[i + j] - scale * nearest(clamp(x[i + j] * inverse, low, high));
      sum[j] += difference * difference;
    }
  return total(sum);
}

// For the codes q that `scale` gives: the best scale for those codes is xq / qq, and its squared error is xx - xq^2 /
// qq.
struct Match {
  float xq, qq;
};

Match match(const float* x, size_t n, float scale, float low, float high) {
  const float inverse = inverse_of(scale);
  float xq[kLanes] = {}, qq[kLanes] = {};
  for (size_t i = 0; i < n; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      const float q = nearest(clamp(x[i + j] * inverse, low, high));
      xq[j] += x[i + j] * q;
      qq[j] += q * q;
    }
  return {total(xq), total(qq)};
}

// Tries scales around the one that puts the largest value on the outermost code: a slightly smaller step serves the
// many values in the middle better than it hurts the one that clips. The result is exact in f16.
float search(const float* x, size_t n, float low, float high, int candidates, float spread) {
  float extreme = 0.0f, magnitude = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      extreme = x[i];
    }
  }
  if (magnitude == 0.0f)
    return 0.0f;
  const float widest = as_f16(extreme / low); // the outermost code is the negative one
  float best = widest, gain = -1.0f;
  for (int i = 0; i < candidates; ++i) {
    const float code = low - spread + 2 * spread * static_cast<float>(i) / static_cast<float>(candidates - 1);
    const Match m = match(x, n, extreme / code, low, high);
    if (m.qq > 0.0f && m.xq * m.xq > gain * m.qq) {
      gain = m.xq * m.xq / m.qq;
      best = m.xq / m.qq;
    }
  }
  best = as_f16(best);
  return error_of(x, n, best, low, high) < error_of(x, n, widest, low, high) ? best : widest;
}

} // namespace

uint16_t recode_int8(const float* x, int8_t* codes) {
  const float scale = search(x, kGroup, -127.0f, 127.0f, 6, 2.0f), inverse = inverse_of(scale);
  for (size_t i = 0; i < kGroup; ++i)
    codes[i] = static_cast<int8_t>(nearest(clamp(x[i] * inverse, -127.0f, 127.0f)));
  return f16_from_f32(scale);
}

uint16_t recode_int4(const float* x, size_t n, uint8_t* codes) {
  const float scale = search(x, n, -8.0f, 7.0f, 16, 1.6f), inverse = inverse_of(scale);
  for (size_t i = 0; i < n; ++i)
    codes[i] = static_cast<uint8_t>(nearest(clamp(x[i] * inverse, -8.0f, 7.0f)) + 8.0f);
  return f16_from_f32(scale);
}

} // namespace greenroom
