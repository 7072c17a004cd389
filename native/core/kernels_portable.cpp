// Plain C++, any CPU. Also what the other tiers are read against.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

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
  float scale[2][kStripRows], min[2][kStripRows];
};

void read_nibbles(const uint8_t* loads, int offset, Group& g) {
  for (size_t c = 0; c < 16; ++c)
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint8_t byte = loads[64 * (c / 4) + 4 * r + c % 4];
      g.w[c][r] = static_cast<int16_t>((byte & 15) - offset);
      g.w[16 + c][r] = static_cast<int16_t>((byte >> 4) - offset);
    }
}

// Two bits of 32 columns.
void read_pairs(const uint8_t* loads, int offset, Group& g) {
  for (size_t c = 0; c < kGroup; ++c)
    for (size_t r = 0; r < kStripRows; ++r)
      g.w[c][r] = static_cast<int16_t>(((loads[64 * (c / 16) + 4 * r + c % 4] >> (2 * (c % 16 / 4))) & 3) - offset);
}

void look_up(const int8_t* values, Group& g) {
  for (auto& column : g.w)
    for (int16_t& w : column)
      w = values[w];
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

size_t scale_nbytes(ScaleType type) {
  return type == kScaleF32 ? 4 : 2;
}

float scale_at(ScaleType type, const uint8_t* p, size_t row) {
  if (type == kScaleF32)
    return std::bit_cast<float>(u32_at(p + 4 * row));
  if (type == kScaleF16)
    return f16_at(p + 2 * row);
  uint16_t bits;
  std::memcpy(&bits, p + 2 * row, 2);
  return f32_from_bf16(bits);
}

// A code reads group `index` of a step. Where a Scaling says nothing, a step has kGroupsInStep groups and kBytes bytes.
template <size_t kBytes, size_t kGroupsInStep> struct Fixed {
  static constexpr size_t kStepBytes = kBytes, kGroups = kGroupsInStep;
  static constexpr bool kHasMin = false, kTwoScales = false;

  static size_t step_nbytes(Scaling) { return kBytes; }
  static size_t groups(Scaling) { return kGroupsInStep; }
};

template <bool kMin, bool kFive> struct Int4 : Fixed<(kFive ? 320 : 256) + (kMin ? 64 : 32), 1> {
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = kMin;

  static void read(const uint8_t* step, size_t, Scaling, Group& g) {
    read_codes<kFive>(step, kMin ? 0 : kFive ? 16 : 8, g);
    for (size_t r = 0; r < kStripRows; ++r) {
      g.scale[0][r] = g.scale[1][r] = f16_at(step + kCodes + 2 * r);
      if (kMin)
        g.min[0][r] = f16_at(step + kCodes + 32 + 2 * r);
    }
  }
};

template <bool kMx> struct Int4Table : Fixed<256 + (kMx ? 16 : 32), 1> {
  static void read(const uint8_t* step, size_t, Scaling, Group& g) {
    const int8_t* values = kMx ? kMxValues : kNlValues;
    read_nibbles(step, 0, g);
    look_up(values, g);
    for (size_t r = 0; r < kStripRows; ++r)
      g.scale[0][r] = g.scale[1][r] = kMx ? half_from_e8m0(step[256 + r]) : f16_at(step + 256 + 2 * r);
  }
};

struct Int4Nv : Fixed<256 + 32, 1> {
  static constexpr bool kTwoScales = true;

  static void read(const uint8_t* step, size_t, Scaling, Group& g) {
    read_nibbles(step, 0, g);
    look_up(kMxValues, g);
    for (size_t half = 0; half < 2; ++half)
      for (size_t r = 0; r < kStripRows; ++r)
        g.scale[half][r] = half_from_ue4m3(step[256 + 16 * half + r]);
  }
};

// The f16 number whose bytes are the top bytes of a row's words in two loads.
float top_bytes(const uint8_t* words) {
  return f32_from_f16(static_cast<uint16_t>((u32_at(words) >> 24) | ((u32_at(words + 64) >> 24) << 8)));
}

struct Int4Xs : Fixed<128 + 8 * 256, 8> {
  static void read(const uint8_t* step, size_t index, Scaling, Group& g) {
    read_nibbles(step + 128 + 256 * index, 0, g);
    look_up(kNlValues, g);
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint32_t bits = u32_at(step + 64 * (index / 4) + 4 * r) >> (6 * (index % 4));
      g.scale[0][r] = g.scale[1][r] = top_bytes(step + 4 * r) * static_cast<float>(static_cast<int>(bits & 63) - 32);
    }
  }
};

struct Int2K : Fixed<64 + 8 * 160, 8> {
  static constexpr bool kHasMin = true, kTwoScales = true;

  static void read(const uint8_t* step, size_t index, Scaling, Group& g) {
    const uint8_t* loads = step + 64 + 160 * index;
    read_pairs(loads, 0, g);
    for (size_t half = 0; half < 2; ++half)
      for (size_t r = 0; r < kStripRows; ++r) {
        const int pair = loads[128 + 16 * half + r];
        g.scale[half][r] = f16_at(step + 2 * r) * static_cast<float>(pair & 15);
        g.min[half][r] = f16_at(step + 32 + 2 * r) * static_cast<float>(pair >> 4);
      }
  }
};

struct Int3K : Fixed<224 + 8 * 192, 8> {
  static constexpr bool kTwoScales = true;

  static void read(const uint8_t* step, size_t index, Scaling, Group& g) {
    const uint8_t* loads = step + 224 + 192 * index;
    read_pairs(loads, 4, g);
    for (size_t c = 0; c < kGroup; ++c)
      for (size_t r = 0; r < kStripRows; ++r)
        g.w[c][r] = static_cast<int16_t>(g.w[c][r] + 4 * ((loads[128 + 4 * r + c % 4] >> (c / 4)) & 1));
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint8_t* words = step + 32 + 4 * r;
      const uint32_t last =
          (u32_at(words) >> 24) | ((u32_at(words + 64) >> 24) << 8) | ((u32_at(words + 128) >> 24) << 16);
      const uint32_t bits = (index < 6 ? u32_at(words + 64 * (index / 2)) : last) >> (12 * (index % 2));
      for (size_t half = 0; half < 2; ++half)
        g.scale[half][r] = f16_at(step + 2 * r) * static_cast<float>(static_cast<int>((bits >> (6 * half)) & 63) - 32);
    }
  }
};

template <bool kFive> struct Int4K : Fixed<256 + 8 * (kFive ? 320 : 256), 8> {
  static constexpr size_t kCodes = kFive ? 320 : 256;
  static constexpr bool kHasMin = true;

  static void read(const uint8_t* step, size_t index, Scaling, Group& g) {
    read_codes<kFive>(step + 256 + kCodes * index, 0, g);
    for (size_t r = 0; r < kStripRows; ++r) {
      const uint32_t bits = u32_at(step + 64 * (index / 2) + 4 * r) >> (12 * (index % 2));
      g.scale[0][r] = g.scale[1][r] = top_bytes(step + 4 * r) * static_cast<float>(bits & 63);
      g.min[0][r] = top_bytes(step + 128 + 4 * r) * static_cast<float>((bits >> 6) & 63);
    }
  }
};

struct Int6K : Fixed<32 + 8 * (256 + 128 + 32), 8> {
  static constexpr size_t kGroupBytes = 256 + 128 + 32;
  static constexpr bool kTwoScales = true;

  static void read(const uint8_t* step, size_t index, Scaling, Group& g) {
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

void read_bytes(const uint8_t* loads, Group& g) {
  for (size_t c = 0; c < kGroup; ++c)
    for (size_t r = 0; r < kStripRows; ++r)
      g.w[c][r] = static_cast<int8_t>(loads[64 * (c / 4) + 4 * r + c % 4]);
}

struct Int8 : Fixed<512 + 32, 1> {
  static void read(const uint8_t* step, size_t, Scaling, Group& g) {
    read_bytes(step, g);
    for (size_t r = 0; r < kStripRows; ++r)
      g.scale[0][r] = g.scale[1][r] = f16_at(step + 512 + 2 * r);
  }
};

// Generic blocks of one scale, of 16 columns (kHalves) or of Scaling::columns.
template <bool kNibbles, bool kZero, bool kHalves> struct Block {
  static constexpr size_t kCodes = kNibbles ? 256 : 512, kScales = kHalves ? 2 : 1;
  static constexpr bool kHasMin = false, kTwoScales = kHalves;

  static size_t groups(Scaling scaling) { return kHalves ? 1 : scaling.columns / kGroup; }
  static size_t step_nbytes(Scaling scaling) {
    return groups(scaling) * kCodes + kScales * kStripRows * (scale_nbytes(scaling.type) + kZero);
  }
  static void read(const uint8_t* step, size_t index, Scaling scaling, Group& g) {
    if (kNibbles)
      read_nibbles(step + kCodes * index, kZero ? 0 : 8, g);
    else
      read_bytes(step + kCodes * index, g);
    const size_t one = kStripRows * scale_nbytes(scaling.type);
    const uint8_t* scales = step + groups(scaling) * kCodes;
    const uint8_t* zeros = scales + kScales * one;
    for (size_t half = 0; half < 2; ++half) {
      const size_t which = kHalves ? half : 0;
      for (size_t r = 0; r < kStripRows; ++r) {
        g.scale[half][r] = scale_at(scaling.type, scales + which * one, r);
        if (kZero)
          for (size_t c = 16 * half; c < 16 * half + 16; ++c)
            g.w[c][r] = static_cast<int16_t>(g.w[c][r] + (kNibbles ? 0 : 128) - zeros[which * kStripRows + r]);
      }
    }
  }
};

template <class Code>
void strip_int(const uint8_t* strip, size_t steps, Scaling scaling, const void* const* x, size_t tokens, float* out,
               size_t out_stride) {
  constexpr bool kTwoScales = Code::kTwoScales;
  const size_t groups = Code::groups(scaling), step_nbytes = Code::step_nbytes(scaling);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = 0.0f;
  Group g;
  for (size_t index = 0; index < steps * groups; ++index) {
    Code::read(strip + index / groups * step_nbytes, index % groups, scaling, g);
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
        if (Code::kHasMin && kTwoScales)
          y[r] += g.min[0][r] * a.scaled_low + g.min[1][r] * (a.scaled_sum - a.scaled_low);
        else if (Code::kHasMin)
          y[r] += g.min[0][r] * a.scaled_sum;
      }
    }
  }
}

// Four chains of additions, columns c, c + 4, ...: shorter chains round less, and the vector tiers do the same.
template <Kind kKind>
void strip_float(const uint8_t* strip, size_t steps, Scaling, const void* const* x, size_t tokens, float* out,
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

void strip_e4m3(const uint8_t* strip, size_t steps, Scaling scaling, const void* const* x, size_t tokens, float* out,
                size_t out_stride) {
  constexpr size_t kPlace[4] = {0, 2, 1, 3};
  float value[256];
  for (size_t code = 0; code < 256; ++code)
    value[code] = f32_from_e4m3(static_cast<uint8_t>(code));
  const size_t columns = scaling.columns, step_nbytes = kStripRows * (columns + scale_nbytes(scaling.type));
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < kStripRows; ++r)
      out[t * out_stride + r] = 0.0f;
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * step_nbytes;
    for (size_t t = 0; t < tokens; ++t) {
      const float* a = static_cast<const float*>(x[t]) + s * columns;
      float sum[4][kStripRows] = {};
      for (size_t c = 0; c < columns; ++c)
        for (size_t r = 0; r < kStripRows; ++r)
          sum[c % 4][r] += value[step[16 * (c - c % 4) + 4 * r + kPlace[c % 4]]] * a[c];
      for (size_t r = 0; r < kStripRows; ++r)
        out[t * out_stride + r] += ((sum[0][r] + sum[1][r]) + (sum[2][r] + sum[3][r])) *
                                   scale_at(scaling.type, step + kStripRows * columns, r);
    }
  }
}

using OneStrip = void (*)(const uint8_t*, size_t, Scaling, const void* const*, size_t, float*, size_t);

template <OneStrip kKernel>
void strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  kKernel(task->strip, task->steps, task->scaling, x, tokens, out, out_stride);
  if (task->second)
    kKernel(task->second, task->steps, task->scaling, x, tokens, out + kStripRows, out_stride);
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
    a.scaled_low = a.scale * static_cast<float>(low);
    a.halves[0] = static_cast<int16_t>(low);
    a.halves[1] = static_cast<int16_t>(high);
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

constexpr KernelTable table() {
  KernelTable t = {"portable", {}, kActF32, quantise, round_bf16, read};
  t.strip[kInt4F16] = strips<strip_int<Int4<false, false>>>;
  t.strip[kInt4F16Min] = strips<strip_int<Int4<true, false>>>;
  t.strip[kInt4K] = strips<strip_int<Int4K<false>>>;
  t.strip[kInt4Nl] = strips<strip_int<Int4Table<false>>>;
  t.strip[kInt4Mx] = strips<strip_int<Int4Table<true>>>;
  t.strip[kInt4Nv] = strips<strip_int<Int4Nv>>;
  t.strip[kInt4Xs] = strips<strip_int<Int4Xs>>;
  t.strip[kInt5F16] = strips<strip_int<Int4<false, true>>>;
  t.strip[kInt5F16Min] = strips<strip_int<Int4<true, true>>>;
  t.strip[kInt5K] = strips<strip_int<Int4K<true>>>;
  t.strip[kInt8F16] = strips<strip_int<Int8>>;
  t.strip[kInt2K] = strips<strip_int<Int2K>>;
  t.strip[kInt3K] = strips<strip_int<Int3K>>;
  t.strip[kInt6K] = strips<strip_int<Int6K>>;
  t.strip[kInt4Block] = strips<strip_int<Block<true, false, false>>>;
  t.strip[kInt4BlockZero] = strips<strip_int<Block<true, true, false>>>;
  t.strip[kInt8Block] = strips<strip_int<Block<false, false, false>>>;
  t.strip[kInt8BlockZero] = strips<strip_int<Block<false, true, false>>>;
  t.strip[kInt4Halves] = strips<strip_int<Block<true, false, true>>>;
  t.strip[kInt4HalvesZero] = strips<strip_int<Block<true, true, true>>>;
  t.strip[kInt8Halves] = strips<strip_int<Block<false, false, true>>>;
  t.strip[kInt8HalvesZero] = strips<strip_int<Block<false, true, true>>>;
  t.strip[kE4m3] = strips<strip_e4m3>;
  t.strip[kBf16] = strips<strip_float<kBf16>>;
  t.strip[kF16] = strips<strip_float<kF16>>;
  t.strip[kF32] = strips<strip_float<kF32>>;
  return t;
}

} // namespace

constinit const KernelTable kPortableKernels = table();

} // namespace greenroom
