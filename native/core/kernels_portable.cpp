// Plain C++, any CPU. Also what the other tiers are read against.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "float16.h"
#include "kernels.h"

namespace greenroom {
namespace {

float scale_at(const uint8_t* p, size_t row, bool wide) {
  if (wide) {
    float value;
    std::memcpy(&value, p + 4 * row, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p + 2 * row, 2);
  return f32_from_f16(bits);
}

template <bool kWide, bool kMin>
void strip_int4(const uint8_t* strip, size_t steps, const void* const* x, size_t tokens, float* out,
                size_t out_stride) {
  constexpr size_t kScaleBytes = kWide ? 64 : 32;
  constexpr size_t kStepBytes = 256 + kScaleBytes * (kMin ? 2 : 1);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = 0.0f;
  int16_t low[16][kStripRows], high[16][kStripRows];
  float scale[kStripRows], min[kStripRows];
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * kStepBytes;
    for (size_t r = 0; r < kStripRows; ++r) {
      for (size_t k = 0; k < 16; ++k) {
        const uint8_t byte = step[64 * (k / 4) + 4 * r + k % 4];
        low[k][r] = byte & 15;
        high[k][r] = byte >> 4;
      }
      scale[r] = scale_at(step + 256, r, kWide);
      if (kMin)
        min[r] = scale_at(step + 256 + kScaleBytes, r, kWide);
    }
    for (size_t t = 0; t < tokens; ++t) {
      const ActivationGroup& a = static_cast<const ActivationGroup*>(x[t])[s];
      int32_t sum[kStripRows];
      for (size_t r = 0; r < kStripRows; ++r)
        sum[r] = kMin ? 0 : a.sum_x8;
      for (size_t k = 0; k < 16; ++k)
        for (size_t r = 0; r < kStripRows; ++r)
          sum[r] += low[k][r] * a.q[k] + high[k][r] * a.q[16 + k];
      float* y = out + t * out_stride;
      for (size_t r = 0; r < kStripRows; ++r) {
        y[r] += (scale[r] * a.scale) * static_cast<float>(sum[r]);
        if (kMin)
          y[r] += min[r] * a.scaled_sum;
      }
    }
  }
}

// kColumns 32 with f16 scales, or 16 with f32 scales (two steps per activation group).
template <size_t kColumns>
void strip_int8(const uint8_t* strip, size_t steps, const void* const* x, size_t tokens, float* out,
                size_t out_stride) {
  constexpr bool kWide = kColumns == 16;
  constexpr size_t kStepBytes = 16 * kColumns + (kWide ? 64 : 32);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = 0.0f;
  int16_t w[kColumns][kStripRows];
  float scale[kStripRows];
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * kStepBytes;
    for (size_t r = 0; r < kStripRows; ++r) {
      for (size_t k = 0; k < kColumns; ++k)
        w[k][r] = static_cast<int8_t>(step[64 * (k / 4) + 4 * r + k % 4]);
      scale[r] = scale_at(step + 16 * kColumns, r, kWide);
    }
    for (size_t t = 0; t < tokens; ++t) {
      const ActivationGroup& a = static_cast<const ActivationGroup*>(x[t])[kWide ? s / 2 : s];
      const int8_t* q = a.q + (kWide ? 16 * (s % 2) : 0);
      int32_t sum[kStripRows] = {};
      for (size_t k = 0; k < kColumns; ++k)
        for (size_t r = 0; r < kStripRows; ++r)
          sum[r] += w[k][r] * q[k];
      float* y = out + t * out_stride;
      for (size_t r = 0; r < kStripRows; ++r)
        y[r] += (scale[r] * a.scale) * static_cast<float>(sum[r]);
    }
  }
}

// Four chains of additions, columns c, c + 4, ...: shorter chains round less, and the vector tiers do the same.
template <Kind kKind>
void strip_float(const uint8_t* strip, size_t steps, const void* const* x, size_t tokens, float* out,
                 size_t out_stride) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1;
  constexpr size_t kStepBytes = kKind == kF16 ? 32 : 64;
  for (size_t t = 0; t < tokens; ++t) {
    const float* a = static_cast<const float*>(x[t]);
    float sum[4][kStripRows] = {};
    for (size_t s = 0; s < steps; ++s) {
      const uint8_t* step = strip + s * kStepBytes;
      for (size_t k = 0; k < kColumns; ++k) {
        const size_t c = s * kColumns + k;
        float* chain = sum[c % 4];
        for (size_t r = 0; r < kStripRows; ++r) {
          float w;
          if (kKind == kF32) {
            std::memcpy(&w, step + 4 * r, 4);
          } else {
            uint16_t bits;
            std::memcpy(&bits, step + 2 * (kColumns * r + k), 2);
            w = kKind == kBf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
          }
          chain[r] += w * a[c];
        }
      }
    }
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = (sum[0][r] + sum[1][r]) + (sum[2][r] + sum[3][r]);
  }
}

using OneStrip = void (*)(const uint8_t*, size_t, const void* const*, size_t, float*, size_t);

template <OneStrip kKernel>
void strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  kKernel(task->strip, task->steps, x, tokens, out, out_stride);
  if (task->second)
    kKernel(task->second, task->steps, x, tokens, out + kStripRows, out_stride);
}

void quantise(const float* x, size_t groups, ActivationGroup* out) {
  for (size_t g = 0; g < groups; ++g, x += kGroup) {
    ActivationGroup& a = out[g];
    uint32_t largest = 0; // compared as bits: a NaN is larger than infinity, infinity than any number
    for (size_t i = 0; i < kGroup; ++i) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const float magnitude = std::bit_cast<float>(largest);
    const bool finite = largest < 0x7f800000u, usable = finite && magnitude >= 1e-30f;
    a.scale = usable ? magnitude / 127.0f : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    const float inverse = usable ? 127.0f / magnitude : 0.0f;
    int32_t low = 0, high = 0;
    for (size_t i = 0; i < kGroup; ++i) {
      a.q[i] = usable ? static_cast<int8_t>(std::lrint(x[i] * inverse)) : int8_t{0};
      (i < 16 ? low : high) += a.q[i];
    }
    a.sum_x8 = -8 * (low + high);
    a.low_x128 = -128 * low;
    a.high_x128 = -128 * high;
    a.sum_x128 = -128 * (low + high);
    a.scaled_sum = a.scale * static_cast<float>(low + high);
  }
}

void round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i)
    out[i] = bf16_from_f32(x[i]);
}

void swiglu(const float* gate, const float* up, size_t n, float* h) {
  for (size_t i = 0; i < n; ++i)
    h[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

uint64_t read(const uint8_t* p, size_t n) {
  // Eight sums: one chain of additions would be slower than memory.
  uint64_t sum[8] = {};
  for (size_t at = 0; at < n; at += sizeof sum)
    for (size_t k = 0; k < 8; ++k) {
      uint64_t word;
      std::memcpy(&word, p + at + 8 * k, 8);
      sum[k] += word;
    }
  uint64_t total = 0;
  for (uint64_t s : sum)
    total += s;
  return total;
}

} // namespace

const KernelTable kPortableKernels = {
    "portable",
    {strips<strip_int4<false, false>>, strips<strip_int4<false, true>>, strips<strip_int4<true, true>>,
     strips<strip_int8<32>>, strips<strip_int8<16>>, strips<strip_float<kBf16>>, strips<strip_float<kF16>>,
     strips<strip_float<kF32>>},
    kActF32,
    quantise,
    round_bf16,
    swiglu,
    read,
};

} // namespace greenroom
