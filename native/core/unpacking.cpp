// Packed strips back to numbers: what the kernels multiply with, for tests and for devices with kernels of their own.
#include <cstring>

#include "float16.h"
#include "packing.h"

namespace greenroom {
namespace {

constexpr size_t kInt6Head = 32, kInt6Group = 256 + 128 + 32;

template <class T> T get(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void gather(const uint8_t* step, size_t row, uint8_t* codes, size_t words) {
  for (size_t j = 0; j < words; ++j)
    std::memcpy(codes + 4 * j, step + 64 * j + 4 * row, 4);
}

void unpack_int4(const uint8_t* loads, size_t lane, int offset, float scale, float* out) {
  uint8_t codes[kGroup / 2];
  gather(loads, lane, codes, 4);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((codes[i] & 15) - offset);
    out[16 + i] = scale * static_cast<float>((codes[i] >> 4) - offset);
  }
}

void unpack_int5(const uint8_t* loads, size_t lane, int offset, float scale, float* out) {
  uint8_t low[kGroup / 2];
  gather(loads, lane, low, 4);
  for (size_t c = 0; c < kGroup; ++c) {
    const int high = (loads[256 + 4 * lane + c % 4] >> (c / 4)) & 1;
    const int code = (c < 16 ? low[c] & 15 : low[c - 16] >> 4) | (high << 4);
    out[c] = scale * static_cast<float>(code - offset);
  }
}

void unpack_table(const uint8_t* loads, size_t lane, const int8_t* values, float scale, float* out) {
  uint8_t codes[kGroup / 2];
  gather(loads, lane, codes, 4);
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(values[codes[i] & 15]);
    out[16 + i] = scale * static_cast<float>(values[codes[i] >> 4]);
  }
}

void add_min(float min, float* out) {
  for (size_t i = 0; i < kGroup; ++i)
    out[i] += min;
}

// Four or five bits.
void unpack_k(const uint8_t* step, size_t lane, bool five, float* out) {
  uint32_t words[4];
  for (size_t pair = 0; pair < 4; ++pair)
    words[pair] = get<uint32_t>(step + 64 * pair + 4 * lane);
  const float d = f32_from_f16(static_cast<uint16_t>((words[0] >> 24) | ((words[1] >> 24) << 8)));
  const float negated_min = f32_from_f16(static_cast<uint16_t>((words[2] >> 24) | ((words[3] >> 24) << 8)));
  for (size_t group = 0; group < 8; ++group, out += kGroup) {
    const uint32_t bits = words[group / 2] >> (12 * (group % 2));
    const float scale = d * static_cast<float>(bits & 63);
    if (five)
      unpack_int5(step + 256 + 320 * group, lane, 0, scale, out);
    else
      unpack_int4(step + 256 + 256 * group, lane, 0, scale, out);
    add_min(negated_min * static_cast<float>((bits >> 6) & 63), out);
  }
}

void unpack_int6_k(const uint8_t* step, size_t lane, float* out) {
  const float d = f32_from_f16(get<uint16_t>(step + 2 * lane));
  for (size_t group = 0; group < 8; ++group) {
    const uint8_t* at = step + kInt6Head + kInt6Group * group;
    for (size_t c = 0; c < kGroup; ++c, ++out) {
      const size_t half = c / 16, i = c % 16 / 4, b = 4 * lane + c % 4;
      const int low = (at[64 * i + b] >> (4 * half)) & 15, high = (at[256 + 64 * half + b] >> (2 * i)) & 3;
      const float scale = d * static_cast<float>(static_cast<int8_t>(at[384 + 16 * half + lane]));
      *out = scale * static_cast<float>((low | (high << 4)) - 32);
    }
  }
}

int pair_at(const uint8_t* loads, size_t lane, size_t c) {
  return (loads[64 * (c / 16) + 4 * lane + c % 4] >> (2 * (c % 16 / 4))) & 3;
}

void unpack_int2_k(const uint8_t* step, size_t lane, float* out) {
  const float d = f32_from_f16(get<uint16_t>(step + 2 * lane));
  const float negated_min = f32_from_f16(get<uint16_t>(step + 32 + 2 * lane));
  for (size_t c = 0; c < 256; ++c) {
    const uint8_t* at = step + 64 + 160 * (c / kGroup);
    const int pair = at[128 + 16 * (c % kGroup / 16) + lane];
    const float scale = d * static_cast<float>(pair & 15), min = negated_min * static_cast<float>(pair >> 4);
    out[c] = scale * static_cast<float>(pair_at(at, lane, c % kGroup)) + min;
  }
}

void unpack_int3_k(const uint8_t* step, size_t lane, float* out) {
  const float d = f32_from_f16(get<uint16_t>(step + 2 * lane));
  uint32_t words[4] = {};
  for (size_t p = 0; p < 3; ++p) {
    words[p] = get<uint32_t>(step + 32 + 64 * p + 4 * lane);
    words[3] |= (words[p] >> 24) << (8 * p);
  }
  for (size_t c = 0; c < 256; ++c) {
    const uint8_t* at = step + 224 + 192 * (c / kGroup);
    const size_t i = c % kGroup;
    const int code = pair_at(at, lane, i) | (((at[128 + 4 * lane + i % 4] >> (i / 4)) & 1) << 2);
    const int scale = static_cast<int>((words[c / 64] >> (6 * (c % 64 / 16))) & 63) - 32;
    out[c] = d * static_cast<float>(scale) * static_cast<float>(code - 4);
  }
}

void unpack_int4_xs(const uint8_t* step, size_t lane, float* out) {
  const uint32_t words[2] = {get<uint32_t>(step + 4 * lane), get<uint32_t>(step + 64 + 4 * lane)};
  const float d = f32_from_f16(static_cast<uint16_t>((words[0] >> 24) | ((words[1] >> 24) << 8)));
  for (size_t group = 0; group < 8; ++group) {
    const int scale = static_cast<int>((words[group / 4] >> (6 * (group % 4))) & 63) - 32;
    unpack_table(step + 128 + 256 * group, lane, kNlValues, d * static_cast<float>(scale), out + kGroup * group);
  }
}

void unpack_int4_nv(const uint8_t* step, size_t lane, float* out) {
  unpack_table(step, lane, kMxValues, 1.0f, out);
  for (size_t i = 0; i < kGroup; ++i)
    out[i] = half_from_ue4m3(step[256 + 16 * (i / 16) + lane]) * out[i];
}

template <bool kNibbles, bool kZero, bool kHalves>
void unpack_block(Scaling scaling, const uint8_t* step, size_t lane, float* out) {
  const size_t columns = kHalves ? size_t{kGroup} : scaling.columns, scale_bytes = scale_nbytes(scaling.type);
  const uint8_t* scales = step + columns * (kNibbles ? 8 : 16);
  const uint8_t* zeros = scales + (kHalves ? 2 : 1) * kStripRows * scale_bytes;
  for (size_t c = 0; c < columns; ++c) {
    const size_t at = kStripRows * (kHalves ? c / 16 : 0) + lane, i = c % 16;
    const float scale = read_scale(scaling.type, scales + at * scale_bytes);
    int code;
    if (kNibbles)
      code = (step[256 * (c / kGroup) + 64 * (i / 4) + 4 * lane + i % 4] >> (4 * (c % kGroup / 16))) & 15;
    else
      code = static_cast<int8_t>(step[64 * (c / 4) + 4 * lane + c % 4]) + (kZero ? 128 : 0);
    out[c] = scale * static_cast<float>(code - (kZero ? zeros[at] : kNibbles ? 8 : 0));
  }
}

void unpack_e4m3(Scaling scaling, const uint8_t* step, size_t lane, float* out) {
  constexpr size_t kPlace[4] = {0, 2, 1, 3};
  const uint8_t* scales = step + 16 * size_t{scaling.columns};
  const float scale = read_scale(scaling.type, scales + lane * scale_nbytes(scaling.type));
  for (size_t c = 0; c < scaling.columns; ++c)
    out[c] = scale * f32_from_e4m3(step[64 * (c / 4) + 4 * lane + kPlace[c % 4]]);
}

void unpack_row(const Layout& layout, const uint8_t* strip, size_t lane, float* out) {
  for (size_t s = 0; s < layout.steps; ++s) {
    const uint8_t* step = strip + s * layout.step_nbytes;
    switch (layout.kind) {
    case kInt4F16:
      unpack_int4(step, lane, 8, f32_from_f16(get<uint16_t>(step + 256 + 2 * lane)), out + kGroup * s);
      break;
    case kInt4F16Min:
      unpack_int4(step, lane, 0, f32_from_f16(get<uint16_t>(step + 256 + 2 * lane)), out + kGroup * s);
      add_min(f32_from_f16(get<uint16_t>(step + 288 + 2 * lane)), out + kGroup * s);
      break;
    case kInt4Nl:
      unpack_table(step, lane, kNlValues, f32_from_f16(get<uint16_t>(step + 256 + 2 * lane)), out + kGroup * s);
      break;
    case kInt4Mx:
      unpack_table(step, lane, kMxValues, half_from_e8m0(step[256 + lane]), out + kGroup * s);
      break;
    case kInt4K:
      unpack_k(step, lane, false, out + 256 * s);
      break;
    case kInt5K:
      unpack_k(step, lane, true, out + 256 * s);
      break;
    case kInt5F16:
      unpack_int5(step, lane, 16, f32_from_f16(get<uint16_t>(step + 320 + 2 * lane)), out + kGroup * s);
      break;
    case kInt5F16Min:
      unpack_int5(step, lane, 0, f32_from_f16(get<uint16_t>(step + 320 + 2 * lane)), out + kGroup * s);
      add_min(f32_from_f16(get<uint16_t>(step + 352 + 2 * lane)), out + kGroup * s);
      break;
    case kInt6K:
      unpack_int6_k(step, lane, out + 256 * s);
      break;
    case kInt8F16: {
      uint8_t codes[kGroup];
      gather(step, lane, codes, 8);
      const float scale = f32_from_f16(get<uint16_t>(step + 512 + 2 * lane));
      for (size_t i = 0; i < 32; ++i)
        out[kGroup * s + i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
      break;
    }
    case kInt2K:
      unpack_int2_k(step, lane, out + 256 * s);
      break;
    case kInt3K:
      unpack_int3_k(step, lane, out + 256 * s);
      break;
    case kInt4Xs:
      unpack_int4_xs(step, lane, out + 256 * s);
      break;
    case kInt4Nv:
      unpack_int4_nv(step, lane, out + kGroup * s);
      break;
    case kInt4Block:
      unpack_block<true, false, false>(layout.scaling, step, lane, out + layout.scaling.columns * s);
      break;
    case kInt4BlockZero:
      unpack_block<true, true, false>(layout.scaling, step, lane, out + layout.scaling.columns * s);
      break;
    case kInt8Block:
      unpack_block<false, false, false>(layout.scaling, step, lane, out + layout.scaling.columns * s);
      break;
    case kInt8BlockZero:
      unpack_block<false, true, false>(layout.scaling, step, lane, out + layout.scaling.columns * s);
      break;
    case kInt4Halves:
      unpack_block<true, false, true>(layout.scaling, step, lane, out + kGroup * s);
      break;
    case kInt4HalvesZero:
      unpack_block<true, true, true>(layout.scaling, step, lane, out + kGroup * s);
      break;
    case kInt8Halves:
      unpack_block<false, false, true>(layout.scaling, step, lane, out + kGroup * s);
      break;
    case kInt8HalvesZero:
      unpack_block<false, true, true>(layout.scaling, step, lane, out + kGroup * s);
      break;
    case kE4m3:
      unpack_e4m3(layout.scaling, step, lane, out + layout.scaling.columns * s);
      break;
    case kBf16:
      out[2 * s] = f32_from_bf16(get<uint16_t>(step + 4 * lane));
      if (2 * s + 1 < layout.columns)
        out[2 * s + 1] = f32_from_bf16(get<uint16_t>(step + 4 * lane + 2));
      break;
    case kF16:
      out[s] = f32_from_f16(get<uint16_t>(step + 2 * lane));
      break;
    default:
      out[s] = get<float>(step + 4 * lane);
    }
  }
}

} // namespace

void dequantise_rows(const PackedMatrix& matrix, size_t first, size_t last, float* out) {
  const Layout& layout = matrix.layout;
  for (size_t row = first; row < last; ++row, out += layout.columns)
    unpack_row(layout, matrix.strip(row / kStripRows), row % kStripRows, out);
}

} // namespace greenroom
