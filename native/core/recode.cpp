#include "recode.h"

#include <cmath>

#include "float16.h"
#include "kernels.h"

namespace greenroom {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer without a library call, so the loops vectorise.
float nearest(float v) {
  constexpr float kShift = 12582912.0f;
  return (v + kShift) - kShift;
}

float clamp(float v, float low, float high) {
  return v < low ? low : v > high ? high : v;
}

float inverse_of(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

struct Fit {
  float scale = 0.0f; // already rounded to f16
  float error = 0.0f; // sum of squared differences
};

// The error of one rounded scale.
Fit fit(const float* x, float wished, float low, float high) {
  Fit out;
  out.scale = f32_from_f16(f16_from_f32(clamp(wished, -65504.0f, 65504.0f)));
  const float inverse = inverse_of(out.scale);
  for (size_t i = 0; i < kGroup; ++i) {
    const float difference = x[i] - out.scale * clamp(nearest(clamp(x[i] * inverse, 2 * low, 2 * high)), low, high);
    out.error += difference * difference;
  }
  return out;
}

// With the codes that `wished` gives, the scale that fits them best.
float refined(const float* x, float wished, float low, float high) {
  const float inverse = inverse_of(wished);
  float xq = 0.0f, qq = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    const float q = clamp(nearest(clamp(x[i] * inverse, 2 * low, 2 * high)), low, high);
    xq += x[i] * q;
    qq += q * q;
  }
  return qq > 0.0f ? xq / qq : wished;
}

// Tries scales around the one that puts the largest value on the outermost code: a slightly smaller step serves the
// many values in the middle better than it hurts the one that clips.
float search(const float* x, float low, float high, int candidates, float spread) {
  float extreme = 0.0f, magnitude = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    if (std::fabs(x[i]) > magnitude) {
      magnitude = std::fabs(x[i]);
      extreme = x[i];
    }
  }
  if (magnitude == 0.0f)
    return 0.0f;
  const float widest = extreme / low; // the outermost code is the negative one
  Fit best = fit(x, widest, low, high);
  auto consider = [&](float scale) {
    const Fit candidate = fit(x, scale, low, high);
    if (candidate.error < best.error)
      best = candidate;
  };
  for (int i = 0; i < candidates; ++i) {
    const float scale =
        extreme / (low - spread + 2 * spread * static_cast<float>(i) / static_cast<float>(candidates - 1));
    consider(refined(x, scale, low, high));
  }
  consider(refined(x, best.scale, low, high));
  return best.scale;
}

} // namespace

uint16_t recode_int8(const float* x, int8_t* codes) {
  const float scale = search(x, -127.0f, 127.0f, 6, 2.0f), inverse = inverse_of(scale);
  for (size_t i = 0; i < kGroup; ++i)
    codes[i] = static_cast<int8_t>(clamp(nearest(clamp(x[i] * inverse, -254.0f, 254.0f)), -127.0f, 127.0f));
  return f16_from_f32(scale);
}

uint16_t recode_int4(const float* x, uint8_t* codes) {
  const float scale = search(x, -8.0f, 7.0f, 16, 1.6f), inverse = inverse_of(scale);
  for (size_t i = 0; i < kGroup; ++i)
    codes[i] = static_cast<uint8_t>(clamp(nearest(clamp(x[i] * inverse, -16.0f, 14.0f)), -8.0f, 7.0f) + 8.0f);
  return f16_from_f32(scale);
}

} // namespace greenroom
