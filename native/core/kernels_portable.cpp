// Plain C++, any CPU. Also what the other tiers are read against.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "float16.h"
#include "kernels.h"

namespace greenroom {
namespace {

float f16_at(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f32_from_f16(bits);
}

uint32_t u32_at(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

// One group of 32 columns of 16 rows, taken apart. Columns 0 .. 15 and 16 .. 31 have scales of their own.
struct Group {
  int16_t w[kGroup][kStripRows];
  float scale[2][kStripRows], min[kStripRows];
};

void read_nibbles(const uint8_t* loads, int offset, Group& g) {
  for (size_t c = 0; c < 16; ++c)
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint8_t byte = loads[64 * (c / 4) + 4 * r + c % 4];
      g.w[c][r] = static_cast<int16_t>((byte & 15) - offset);
      g.w[16 + c][r] = static_cast<int16_t>((byte >> 4) - offset);
    }
}

template <bool kFive> void read_codes(const uint8_t* loads, int offset, Group& g) {
  read_nibbles(loads, offset, g);
  if (kFive)
    for (size_t c = 0; c < kGroup; ++c)
      for (size_t r = 0; r < kStripRows; ++r) {
        const int high = (loads[256 + 4 * r + c % 4] >> (c / 4)) & 1;
        g.w[c][r] = static_cast<int16_t>(g.w[c][r] + 16 * high);
      }
}

// A code reads group `index` of a step; kGroups make a step.
template <bool kMin, bool kFive> struct Int4 {
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = kCodes + (kMin ? 64 : 32), kGroups = 1;
  static constexpr bool kHasMin = kMin;

  static void read(const uint8_t* step, size_t, Group& g) {
    read_codes<kFive>(step, kMin ? 0 : kFive ? 16 : 8, g);
    for (size_t r = 0; r < kStripRows; ++r) {
      g.scale[0][r] = g.scale[1][r] = f16_at(step + kCodes + 2 * r);
      if (kMin)
        g.min[r] = f16_at(step + kCodes + 32 + 2 * r);
    }
  }
};

template <bool kMx> struct Int4Table {
  static constexpr size_t kStepBytes = 256 + (kMx ? 16 : 32), kGroups = 1;
  static constexpr bool kHasMin = false;

  static void read(const uint8_t* step, size_t, Group& g) {
    const int8_t* values = kMx ? kMxValues : kNlValues;
    read_nibbles(step, 0, g);
    for (auto& column : g.w)
      for (int16_t& w : column)
        w = values[w];
    for (size_t r = 0; r < kStripRows; ++r)
      g.scale[0][r] = g.scale[1][r] = kMx ? half_from_e8m0(step[256 + r]) : f16_at(step + 256 + 2 * r);
  }
};

template <bool kFive> struct Int4K {
  static constexpr size_t kCodes = kFive ? 320 : 256, kStepBytes = 256 + 8 * kCodes, kGroups = 8;
  static constexpr bool kHasMin = true;

  static float top_bytes(const uint8_t* words) {
    return f32_from_f16(static_cast<uint16_t>((u32_at(words) >> 24) | ((u32_at(words + 64) >> 24) << 8)));
  }
  static void read(const uint8_t* step, size_t index, Group& g) {
    read_codes<kFive>(step + 256 + kCodes * index, 0, g);
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint32_t bits = u32_at(step + 64 * (index / 2) + 4 * r) >> (12 * (index % 2));
      g.scale[0][r] = g.scale[1][r] = top_bytes(step + 4 * r) * static_cast<float>(bits & 63);
      g.min[r] = top_bytes(step + 128 + 4 * r) * static_cast<float>((bits >> 6) & 63);
    }
  }
};

struct Int6K {
  static constexpr size_t kGroupBytes = 256 + 128 + 32, kStepBytes = 32 + 8 * kGroupBytes, kGroups = 8;
  static constexpr bool kHasMin = false;

  static void read(const uint8_t* step, size_t index, Group& g) {
    const uint8_t* loads = step + 32 + kGroupBytes * index;
    read_nibbles(loads, 32, g);
    for (size_t half = 0; half < 2; ++half) {
      for (size_t c = 0; c < 16; ++c)
        for (size_t r = 0; r < kStripRows; ++r) {
          const int high = (loads[256 + 64 * half + 4 * r + c % 4] >> (2 * (c / 4))) & 3;
          g.w[16 * half + c][r] = static_cast<int16_t>(g.w[16 * half + c][r] + 16 * high);
        }
      for (size_t r = 0; r < kStripRows; ++r)
        g.scale[half][r] = f16_at(step + 2 * r) * static_cast<float>(static_cast<int8_t>(loads[384 + 16 * half + r]));
    }
  }
};

struct Int8 {
  static constexpr size_t kStepBytes = 512 + 32, kGroups = 1;
  static constexpr bool kHasMin = false;

  static void read(const uint8_t* step, size_t, Group& g) {
    for (size_t r = 0; r < kStripRows; ++r) {
      for (size_t c = 0; c < kGroup; ++c)
        g.w[c][r] = static_cast<int8_t>(step[64 * (c / 4) + 4 * r + c % 4]);
      g.scale[0][r] = g.scale[1][r] = f16_at(step + 512 + 2 * r);
    }
  }
};

template <class Code>
void strip_int(const uint8_t* strip, size_t steps, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  constexpr bool kTwoScales = std::is_same_v<Code, Int6K>;
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = 0.0f;
  Group g;
  for (size_t index = 0; index < steps * Code::kGroups; ++index) {
    Code::read(strip + index / Code::kGroups * Code::kStepBytes, index % Code::kGroups, g);
    for (size_t t = 0; t < tokens; ++t) {
      const ActivationGroup& a = static_cast<const ActivationGroup*>(x[t])[index];
      int32_t low[kStripRows] = {}, high[kStripRows] = {};
      for (size_t c = 0; c < 16; ++c)
        for (size_t r = 0; r < kStripRows; ++r) {
          low[r] += g.w[c][r] * a.q[c];
          high[r] += g.w[16 + c][r] * a.q[16 + c];
        }
      float* y = out + t * out_stride;
      for (size_t r = 0; r < kStripRows; ++r) {
        const int32_t sum = kTwoScales ? low[r] : low[r] + high[r];
        y[r] += (g.scale[0][r] * a.scale) * static_cast<float>(sum);
        if (kTwoScales)
          y[r] += (g.scale[1][r] * a.scale) * static_cast<float>(high[r]);
        if (Code::kHasMin)
          y[r] += g.min[r] * a.scaled_sum;
      }
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
    a.low_x32 = -32 * low;
    a.high_x32 = -32 * high;
    a.sum_x128 = -128 * (low + high);
    a.scaled_sum = a.scale * static_cast<float>(low + high);
  }
}

void round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i)
    out[i] = bf16_from_f32(x[i]);
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
    {strips<strip_int<Int4<false, false>>>, strips<strip_int<Int4<true, false>>>, strips<strip_int<Int4K<false>>>,
     strips<strip_int<Int4Table<false>>>, strips<strip_int<Int4Table<true>>>, strips<strip_int<Int4<false, true>>>,
     strips<strip_int<Int4<true, true>>>, strips<strip_int<Int4K<true>>>, strips<strip_int<Int8>>,
     strips<strip_int<Int6K>>, strips<strip_float<kBf16>>, strips<strip_float<kF16>>, strips<strip_float<kF32>>},
    kActF32,
    quantise,
    round_bf16,
    read,
};

} // namespace greenroom
