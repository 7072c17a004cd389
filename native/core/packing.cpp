#include "packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "float16.h"
#include "recode.h"

namespace greenroom {
namespace {

constexpr size_t kInt6Head = 32, kInt6Group = 256 + 128 + 32;

void put_u16(uint8_t* p, uint16_t value) {
  std::memcpy(p, &value, 2);
}
void put_f32(uint8_t* p, float value) {
  std::memcpy(p, &value, 4);
}
uint16_t get_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}
float get_f32(const uint8_t* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}
uint32_t get_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}
void put_u32(uint8_t* p, uint32_t value) {
  std::memcpy(p, &value, 4);
}

// `words` 4-byte pieces of one row go to the row's lane of as many 64-byte loads.
void scatter(uint8_t* step, size_t row, const uint8_t* codes, size_t words) {
  for (size_t j = 0; j < words; ++j)
    std::memcpy(step + 64 * j + 4 * row, codes + 4 * j, 4);
}

void gather(const uint8_t* step, size_t row, uint8_t* codes, size_t words) {
  for (size_t j = 0; j < words; ++j)
    std::memcpy(codes + 4 * j, step + 64 * j + 4 * row, 4);
}

void pack_q4_0(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 2, 4);
  std::memcpy(step + 256 + 2 * row, block, 2);
}

void pack_q4_1(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 4, 4);
  std::memcpy(step + 256 + 2 * row, block, 2);
  std::memcpy(step + 288 + 2 * row, block + 2, 2);
}

void pack_mxfp4(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 1, 4);
  step[256 + row] = block[0];
}

void pack_q8_0(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 2, 8);
  std::memcpy(step + 512 + 2 * row, block, 2);
}

// 32 codes of five bits: 4 loads of low nibbles, 1 of high bits.
void put_int5(const uint8_t* codes, uint8_t* loads, size_t row) {
  uint32_t high = 0;
  for (size_t j = 0; j < 8; ++j)
    high |= ((get_u32(codes + 4 * j) >> 4) & 0x01010101u) << j;
  put_u32(loads + 256 + 4 * row, high);
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t first = get_u32(codes + 4 * j), second = get_u32(codes + 16 + 4 * j);
    put_u32(loads + 64 * j + 4 * row, (first & 0x0f0f0f0fu) | ((second & 0x0f0f0f0fu) << 4));
  }
}

void pack_q5_0(const uint8_t* block, uint8_t* step, size_t row) {
  uint8_t codes[kGroup];
  q5_codes(block + 2, codes);
  put_int5(codes, step, row);
  std::memcpy(step + 320 + 2 * row, block, 2);
}

void pack_q5_1(const uint8_t* block, uint8_t* step, size_t row) {
  uint8_t codes[kGroup];
  q5_codes(block + 4, codes);
  put_int5(codes, step, row);
  std::memcpy(step + 320 + 2 * row, block, 2);
  std::memcpy(step + 352 + 2 * row, block + 2, 2);
}

// Scale words of a Q4_K or Q5_K block.
void put_scale_words(const uint8_t* block, uint8_t* step, size_t row) {
  const uint32_t d = get_u16(block), negated_min = get_u16(block + 2) ^ 0x8000u;
  const uint32_t super[4] = {d & 255, d >> 8, negated_min & 255, negated_min >> 8};
  for (size_t pair = 0; pair < 4; ++pair) {
    const PairQ4K even = q4_k_pair(block, 2 * pair), odd = q4_k_pair(block, 2 * pair + 1);
    put_u32(step + 64 * pair + 4 * row, even.scale | (uint32_t{even.min} << 6) | (uint32_t{odd.scale} << 12) |
                                            (uint32_t{odd.min} << 18) | (super[pair] << 24));
  }
}

void pack_q5_k(const uint8_t* block, uint8_t* step, size_t row) {
  uint8_t codes[256];
  q5_k_codes(block, codes);
  put_scale_words(block, step, row);
  for (size_t group = 0; group < 8; ++group)
    put_int5(codes + kGroup * group, step + 256 + 320 * group, row);
}

void pack_q4_k(const uint8_t* block, uint8_t* step, size_t row) {
  put_scale_words(block, step, row);
  for (size_t pair = 0; pair < 4; ++pair) {
    // Stored: 32 bytes with group 2 pair in the low nibbles and 2 pair + 1 in the high ones.
    const uint8_t* codes = block + 16 + 32 * pair;
    uint8_t* out = step + 256 + 512 * pair + 4 * row;
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t first = get_u32(codes + 4 * j), second = get_u32(codes + 16 + 4 * j);
      put_u32(out + 64 * j, (first & 0x0f0f0f0fu) | ((second & 0x0f0f0f0fu) << 4));
      put_u32(out + 256 + 64 * j, ((first >> 4) & 0x0f0f0f0fu) | (second & 0xf0f0f0f0u));
    }
  }
}

void pack_q6_k(const uint8_t* block, uint8_t* step, size_t row) {
  uint8_t codes[256];
  q6_k_codes(block, codes);
  std::memcpy(step + 2 * row, block + 208, 2);
  for (size_t group = 0; group < 8; ++group) {
    const uint8_t* q = codes + 32 * group;
    uint8_t* out = step + kInt6Head + kInt6Group * group;
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t first = get_u32(q + 4 * j), second = get_u32(q + 16 + 4 * j);
      put_u32(out + 64 * j + 4 * row, (first & 0x0f0f0f0fu) | ((second & 0x0f0f0f0fu) << 4));
    }
    for (size_t half = 0; half < 2; ++half) {
      uint32_t high = 0;
      for (size_t i = 0; i < 4; ++i)
        high |= ((get_u32(q + 16 * half + 4 * i) >> 4) & 0x03030303u) << (2 * i);
      put_u32(out + 256 + 64 * half + 4 * row, high);
      out[384 + 16 * half + row] = block[192 + 2 * group + half];
    }
  }
}

// One stored row whose bits are kept.
void pack_stored_row(const Layout& layout, const uint8_t* row, uint8_t* strip, size_t lane) {
  const size_t blocks = layout.columns / layout.format->block, nbytes = layout.format->nbytes,
               step = layout.step_nbytes;
  switch (layout.kind) {
  case kInt4F16:
  case kInt4Nl:
    for (size_t b = 0; b < blocks; ++b)
      pack_q4_0(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt4F16Min:
    for (size_t b = 0; b < blocks; ++b)
      pack_q4_1(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt4K:
    for (size_t b = 0; b < blocks; ++b)
      pack_q4_k(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt4Mx:
    for (size_t b = 0; b < blocks; ++b)
      pack_mxfp4(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt5F16:
    for (size_t b = 0; b < blocks; ++b)
      pack_q5_0(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt5F16Min:
    for (size_t b = 0; b < blocks; ++b)
      pack_q5_1(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt5K:
    for (size_t b = 0; b < blocks; ++b)
      pack_q5_k(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt8F16:
    for (size_t b = 0; b < blocks; ++b)
      pack_q8_0(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt6K:
    for (size_t b = 0; b < blocks; ++b)
      pack_q6_k(row + b * nbytes, strip + b * step, lane);
    break;
  case kBf16:
    for (size_t c = 0; c < layout.columns; ++c)
      std::memcpy(strip + 64 * (c / 2) + 4 * lane + 2 * (c % 2), row + 2 * c, 2);
    break;
  case kF16:
    for (size_t c = 0; c < layout.columns; ++c)
      std::memcpy(strip + 32 * c + 2 * lane, row + 2 * c, 2);
    break;
  default:
    for (size_t c = 0; c < layout.columns; ++c)
      std::memcpy(strip + 64 * c + 4 * lane, row + 4 * c, 4);
  }
}

// One row of f32 weights into the codes asked for.
void pack_float_row(const Layout& layout, const float* row, uint8_t* strip, size_t lane) {
  if (layout.kind == kF32) {
    for (size_t c = 0; c < layout.columns; ++c)
      put_f32(strip + 64 * c + 4 * lane, row[c]);
    return;
  }
  for (size_t c = 0; c < layout.columns; ++c)
    if (!std::isfinite(row[c]))
      throw std::invalid_argument("weights that are NaN or infinite cannot be recoded to integers");
  for (size_t g = 0; g < layout.steps; ++g) {
    uint8_t* step = strip + g * layout.step_nbytes;
    uint8_t codes[kGroup];
    if (layout.kind == kInt8F16) {
      const uint16_t scale = recode_int8(row + kGroup * g, reinterpret_cast<int8_t*>(codes));
      scatter(step, lane, codes, 8);
      put_u16(step + 512 + 2 * lane, scale);
    } else {
      uint8_t nibbles[kGroup / 2];
      const uint16_t scale = recode_int4(row + kGroup * g, codes);
      for (size_t i = 0; i < 16; ++i)
        nibbles[i] = static_cast<uint8_t>(codes[i] | (codes[i + 16] << 4));
      scatter(step, lane, nibbles, 4);
      put_u16(step + 256 + 2 * lane, scale);
    }
  }
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
    words[pair] = get_u32(step + 64 * pair + 4 * lane);
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
  const float d = f32_from_f16(get_u16(step + 2 * lane));
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

void unpack_row(const Layout& layout, const uint8_t* strip, size_t lane, float* out) {
  for (size_t s = 0; s < layout.steps; ++s) {
    const uint8_t* step = strip + s * layout.step_nbytes;
    switch (layout.kind) {
    case kInt4F16:
      unpack_int4(step, lane, 8, f32_from_f16(get_u16(step + 256 + 2 * lane)), out + kGroup * s);
      break;
    case kInt4F16Min:
      unpack_int4(step, lane, 0, f32_from_f16(get_u16(step + 256 + 2 * lane)), out + kGroup * s);
      add_min(f32_from_f16(get_u16(step + 288 + 2 * lane)), out + kGroup * s);
      break;
    case kInt4Nl:
      unpack_table(step, lane, kNlValues, f32_from_f16(get_u16(step + 256 + 2 * lane)), out + kGroup * s);
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
      unpack_int5(step, lane, 16, f32_from_f16(get_u16(step + 320 + 2 * lane)), out + kGroup * s);
      break;
    case kInt5F16Min:
      unpack_int5(step, lane, 0, f32_from_f16(get_u16(step + 320 + 2 * lane)), out + kGroup * s);
      add_min(f32_from_f16(get_u16(step + 352 + 2 * lane)), out + kGroup * s);
      break;
    case kInt6K:
      unpack_int6_k(step, lane, out + 256 * s);
      break;
    case kInt8F16: {
      uint8_t codes[kGroup];
      gather(step, lane, codes, 8);
      const float scale = f32_from_f16(get_u16(step + 512 + 2 * lane));
      for (size_t i = 0; i < 32; ++i)
        out[kGroup * s + i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
      break;
    }
    case kBf16:
      out[2 * s] = f32_from_bf16(get_u16(step + 4 * lane));
      if (2 * s + 1 < layout.columns)
        out[2 * s + 1] = f32_from_bf16(get_u16(step + 4 * lane + 2));
      break;
    case kF16:
      out[s] = f32_from_f16(get_u16(step + 2 * lane));
      break;
    default:
      out[s] = get_f32(step + 4 * lane);
    }
  }
}

} // namespace

void pack(ThreadPool& pool, const PackedMatrix& matrix, const uint8_t* data, size_t nbytes, long long first_row) {
  const Layout& layout = matrix.layout;
  const size_t row_nbytes = layout.stored_row_nbytes();
  if (nbytes % row_nbytes != 0 || nbytes == 0)
    throw std::invalid_argument(std::to_string(nbytes) + " bytes are not a whole number of " + layout.format->name +
                                " rows of " + std::to_string(layout.columns) + " columns (" +
                                std::to_string(row_nbytes) + " bytes each)");
  const size_t count = nbytes / row_nbytes;
  if (first_row < 0 || static_cast<size_t>(first_row) > layout.rows ||
      count > layout.rows - static_cast<size_t>(first_row))
    throw std::invalid_argument("rows " + std::to_string(first_row) + " to " +
                                std::to_string(first_row + static_cast<long long>(count)) + " do not fit a matrix of " +
                                std::to_string(layout.rows) + " rows");
  const size_t first = static_cast<size_t>(first_row), last = first + count;
  const size_t first_strip = first / kStripRows, strips = (last + kStripRows - 1) / kStripRows - first_strip;
  const bool keep = layout.kind == layout.format->kind;

  auto pack_strip = [&](size_t tile, int) {
    const size_t strip = first_strip + tile;
    std::vector<float> floats(keep ? 0 : layout.columns);
    for (size_t lane = 0; lane < kStripRows; ++lane) {
      const size_t row = strip * kStripRows + lane;
      if (row < first || row >= last)
        continue;
      const uint8_t* stored = data + (row - first) * row_nbytes;
      if (keep) {
        pack_stored_row(layout, stored, matrix.strip(strip), lane);
      } else {
        layout.format->dequantise(stored, layout.columns, floats.data());
        pack_float_row(layout, floats.data(), matrix.strip(strip), lane);
      }
    }
  };
  ThreadPool::Call call(pool);
  call.run({{strips, pack_strip}});
}

void dequantise_rows(const PackedMatrix& matrix, size_t first, size_t last, float* out) {
  const Layout& layout = matrix.layout;
  for (size_t row = first; row < last; ++row, out += layout.columns)
    unpack_row(layout, matrix.strip(row / kStripRows), row % kStripRows, out);
}

} // namespace greenroom
