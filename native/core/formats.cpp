#include "formats.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "float16.h"

namespace greenroom {
namespace {

uint16_t read_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | (p[1] << 8));
}
float read_f16(const uint8_t* p) {
  return f32_from_f16(read_u16(p));
}

void from_f32(const uint8_t* row, size_t columns, float* out) {
  std::memcpy(out, row, columns * sizeof(float));
}

void from_f16(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; ++c)
    out[c] = read_f16(row + 2 * c);
}

void from_bf16(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; ++c)
    out[c] = f32_from_bf16(read_u16(row + 2 * c));
}

void from_q8_0(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 34) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(static_cast<int8_t>(row[2 + i]));
  }
}

void from_q4_0(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 18) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>((row[2 + i] & 15) - 8);
      out[c + 16 + i] = d * static_cast<float>((row[2 + i] >> 4) - 8);
    }
  }
}

void from_q4_1(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 20) {
    const float d = read_f16(row), m = read_f16(row + 2);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(row[4 + i] & 15) + m;
      out[c + 16 + i] = d * static_cast<float>(row[4 + i] >> 4) + m;
    }
  }
}

void from_q5_0(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 22) {
    const float d = read_f16(row);
    uint8_t codes[32];
    q5_codes(row + 2, codes);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(codes[i] - 16);
  }
}

void from_q5_1(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 24) {
    const float d = read_f16(row), m = read_f16(row + 2);
    uint8_t codes[32];
    q5_codes(row + 4, codes);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(codes[i]) + m;
  }
}

void from_q5_k(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 176) {
    const float d = read_f16(row), negated_min = -read_f16(row + 2);
    uint8_t codes[256];
    q5_k_codes(row, codes);
    for (size_t i = 0; i < 256; ++i) {
      const PairQ4K pair = q4_k_pair(row, i / 32);
      const float scale = d * static_cast<float>(pair.scale), min = negated_min * static_cast<float>(pair.min);
      out[c + i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void from_iq4_nl(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 18) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(kNlValues[row[2 + i] & 15]);
      out[c + 16 + i] = d * static_cast<float>(kNlValues[row[2 + i] >> 4]);
    }
  }
}

void from_mxfp4(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 17) {
    const float d = half_from_e8m0(row[0]);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(kMxValues[row[1 + i] & 15]);
      out[c + 16 + i] = d * static_cast<float>(kMxValues[row[1 + i] >> 4]);
    }
  }
}

void from_q4_k(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 144) {
    const float d = read_f16(row), negated_min = -read_f16(row + 2);
    for (size_t group = 0; group < 8; ++group) {
      const PairQ4K pair = q4_k_pair(row, group);
      const float scale = d * static_cast<float>(pair.scale), min = negated_min * static_cast<float>(pair.min);
      const uint8_t* codes = row + 16 + 32 * (group / 2);
      const int shift = group % 2 ? 4 : 0;
      for (size_t i = 0; i < 32; ++i)
        out[c + 32 * group + i] = scale * static_cast<float>((codes[i] >> shift) & 15) + min;
    }
  }
}

void from_q6_k(const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 210) {
    uint8_t codes[256];
    q6_k_codes(row, codes);
    const float d = read_f16(row + 208);
    for (size_t i = 0; i < 256; ++i) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(row[192 + i / 16]));
      out[c + i] = scale * static_cast<float>(codes[i] - 32);
    }
  }
}

const Format kFormats[] = {
    {"F32", kF32, 1, 4, from_f32},
    {"F16", kF16, 1, 2, from_f16},
    {"BF16", kBf16, 1, 2, from_bf16},
    {"Q8_0", kInt8F16, 32, 34, from_q8_0},
    {"Q4_0", kInt4F16, 32, 18, from_q4_0},
    {"Q4_1", kInt4F16Min, 32, 20, from_q4_1},
    {"Q5_0", kInt5F16, 32, 22, from_q5_0},
    {"Q5_1", kInt5F16Min, 32, 24, from_q5_1},
    {"IQ4_NL", kInt4Nl, 32, 18, from_iq4_nl},
    {"MXFP4", kInt4Mx, 32, 17, from_mxfp4},
    {"Q4_K", kInt4K, 256, 144, from_q4_k},
    {"Q5_K", kInt5K, 256, 176, from_q5_k},
    {"Q6_K", kInt6K, 256, 210, from_q6_k},
};

size_t step_columns(Kind kind) {
  switch (kind) {
  case kInt4K:
  case kInt5K:
  case kInt6K:
    return 256;
  case kBf16:
    return 2;
  case kF16:
  case kF32:
    return 1;
  default:
    return kGroup;
  }
}

size_t step_nbytes(Kind kind) {
  switch (kind) {
  case kInt4F16:
  case kInt4Nl:
    return 256 + 32;
  case kInt4Mx:
    return 256 + 16;
  case kInt4F16Min:
    return 256 + 64;
  case kInt4K:
    return 256 + 8 * 256;
  case kInt5F16:
    return 256 + 64 + 32;
  case kInt5F16Min:
    return 256 + 64 + 64;
  case kInt5K:
    return 256 + 8 * (256 + 64);
  case kInt8F16:
    return 512 + 32;
  case kInt6K:
    return 32 + 8 * (256 + 128 + 32);
  case kF16:
    return 32;
  default:
    return 64;
  }
}

Kind packed_kind(const Format& format, const std::optional<std::string>& recode) {
  if (!recode)
    return format.kind;
  if (*recode == "float32")
    return kF32;
  const bool is_int4 = format.kind <= kInt4Mx;
  const bool is_int8 = format.kind > kInt4Mx && format.kind <= kInt6K;
  if (*recode == "int4")
    return is_int4 ? format.kind : kInt4F16;
  if (*recode == "int8")
    return is_int8 ? format.kind : kInt8F16;
  throw std::invalid_argument("unknown recoding \"" + *recode + "\"; known are int4, int8, float32");
}

} // namespace

PairQ4K q4_k_pair(const uint8_t* block, size_t group) {
  const uint8_t* packed = block + 4; // 12 bytes hold 8 scales and 8 minima of 6 bits
  if (group < 4)
    return {static_cast<uint8_t>(packed[group] & 63), static_cast<uint8_t>(packed[group + 4] & 63)};
  return {static_cast<uint8_t>((packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4)),
          static_cast<uint8_t>((packed[group + 4] >> 4) | ((packed[group] >> 6) << 4))};
}

void q5_codes(const uint8_t* packed, uint8_t* codes) {
  const uint8_t* low = packed + 4;
  for (size_t i = 0; i < 32; ++i) {
    const int high = (packed[i / 8] >> (i % 8)) & 1;
    codes[i] = static_cast<uint8_t>((i < 16 ? low[i] & 15 : low[i - 16] >> 4) | (high << 4));
  }
}

void q5_k_codes(const uint8_t* block, uint8_t* codes) {
  const uint8_t* high = block + 16;
  for (size_t group = 0; group < 8; ++group) {
    const uint8_t* low = block + 48 + 32 * (group / 2);
    for (size_t i = 0; i < 32; ++i)
      codes[32 * group + i] =
          static_cast<uint8_t>(((low[i] >> (4 * (group % 2))) & 15) | (((high[i] >> group) & 1) << 4));
  }
}

void q6_k_codes(const uint8_t* block, uint8_t* codes) {
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    uint8_t* out = codes + 128 * half;
    for (size_t i = 0; i < 32; ++i) {
      out[i] = static_cast<uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      out[i + 32] = static_cast<uint8_t>((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4));
      out[i + 64] = static_cast<uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
      out[i + 96] = static_cast<uint8_t>((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
    }
  }
}

const Format& format_named(const std::string& name) {
  std::string known;
  for (const Format& format : kFormats) {
    if (name == format.name)
      return format;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  throw std::invalid_argument("unknown weight format \"" + name + "\"; known are " + known);
}

Layout layout_of(long long rows, long long columns, const std::string& name, const std::optional<std::string>& recode) {
  constexpr long long kMost = 1LL << 28;
  const Format& format = format_named(name);
  const Kind kind = packed_kind(format, recode);
  if (rows < 1 || columns < 1 || rows > kMost || columns > kMost)
    throw std::invalid_argument("a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) +
                                " cannot be packed: both sizes must be 1 to 2^28");
  size_t multiple = format.block;
  if (kind != kBf16)
    multiple = std::max(multiple, step_columns(kind)); // an odd bf16 column gets a zero partner
  if (static_cast<size_t>(columns) % multiple != 0)
    throw std::invalid_argument("columns (" + std::to_string(columns) + ") must be a multiple of " +
                                std::to_string(multiple) + " for " + name + (recode ? " as " + *recode : ""));
  Layout layout;
  layout.format = &format;
  layout.kind = kind;
  layout.rows = static_cast<size_t>(rows);
  layout.columns = static_cast<size_t>(columns);
  layout.steps = (layout.columns + step_columns(kind) - 1) / step_columns(kind);
  layout.step_nbytes = step_nbytes(kind);
  layout.strips = (layout.rows + kStripRows - 1) / kStripRows;
  layout.strip_nbytes = (layout.steps * layout.step_nbytes + 63) / 64 * 64;
  return layout;
}

} // namespace greenroom
