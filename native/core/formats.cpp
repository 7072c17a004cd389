#include "formats.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "float16.h"

namespace greenroom {
namespace {

uint16_t read_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | (p[1] << 8));
}
float read_f16(const uint8_t* p) {
  return f32_from_f16(read_u16(p));
}

// The codes of a Q5_0 block, whose high bits and low nibbles start at `packed`, and of K blocks.
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

void q2_k_codes(const uint8_t* block, uint8_t* codes) {
  for (size_t i = 0; i < 256; ++i)
    codes[i] = (block[16 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3;
}

void q3_k_codes(const uint8_t* block, uint8_t* codes) {
  for (size_t i = 0; i < 256; ++i) {
    const int low = (block[32 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3;
    codes[i] = static_cast<uint8_t>(low | (((block[i % 32] >> (i / 32)) & 1) << 2));
  }
}

void from_f32(const Format&, const uint8_t* row, size_t columns, float* out) {
  std::memcpy(out, row, columns * sizeof(float));
}

void from_f16(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; ++c)
    out[c] = read_f16(row + 2 * c);
}

void from_bf16(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; ++c)
    out[c] = f32_from_bf16(read_u16(row + 2 * c));
}

void from_q8_0(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 34) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(static_cast<int8_t>(row[2 + i]));
  }
}

void from_q4_0(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 18) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>((row[2 + i] & 15) - 8);
      out[c + 16 + i] = d * static_cast<float>((row[2 + i] >> 4) - 8);
    }
  }
}

void from_q4_1(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 20) {
    const float d = read_f16(row), m = read_f16(row + 2);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(row[4 + i] & 15) + m;
      out[c + 16 + i] = d * static_cast<float>(row[4 + i] >> 4) + m;
    }
  }
}

void from_q5_0(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 22) {
    const float d = read_f16(row);
    uint8_t codes[32];
    q5_codes(row + 2, codes);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(codes[i] - 16);
  }
}

void from_q5_1(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 24) {
    const float d = read_f16(row), m = read_f16(row + 2);
    uint8_t codes[32];
    q5_codes(row + 4, codes);
    for (size_t i = 0; i < 32; ++i)
      out[c + i] = d * static_cast<float>(codes[i]) + m;
  }
}

void from_q5_k(const Format&, const uint8_t* row, size_t columns, float* out) {
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

void from_iq4_nl(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 18) {
    const float d = read_f16(row);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(kNlValues[row[2 + i] & 15]);
      out[c + 16 + i] = d * static_cast<float>(kNlValues[row[2 + i] >> 4]);
    }
  }
}

void from_mxfp4(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 32, row += 17) {
    const float d = half_from_e8m0(row[0]);
    for (size_t i = 0; i < 16; ++i) {
      out[c + i] = d * static_cast<float>(kMxValues[row[1 + i] & 15]);
      out[c + 16 + i] = d * static_cast<float>(kMxValues[row[1 + i] >> 4]);
    }
  }
}

void from_q4_k(const Format&, const uint8_t* row, size_t columns, float* out) {
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

void from_q6_k(const Format&, const uint8_t* row, size_t columns, float* out) {
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

void from_q2_k(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 84) {
    uint8_t codes[256];
    q2_k_codes(row, codes);
    const float d = read_f16(row + 80), negated_min = -read_f16(row + 82);
    for (size_t i = 0; i < 256; ++i) {
      const uint8_t pair = row[i / 16];
      const float scale = d * static_cast<float>(pair & 15), min = negated_min * static_cast<float>(pair >> 4);
      out[c + i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void from_q3_k(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 110) {
    uint8_t codes[256], scales[16];
    q3_k_codes(row, codes);
    q3_k_scales(row, scales);
    const float d = read_f16(row + 108);
    for (size_t i = 0; i < 256; ++i) {
      const float scale = d * static_cast<float>(scales[i / 16] - 32);
      out[c + i] = scale * static_cast<float>(codes[i] - 4);
    }
  }
}

void from_iq4_xs(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 256, row += 136) {
    const float d = read_f16(row);
    for (size_t group = 0; group < 8; ++group) {
      const float scale = d * static_cast<float>(iq4_xs_scale(row, group) - 32);
      const uint8_t* codes = row + 8 + 16 * group;
      for (size_t i = 0; i < 16; ++i) {
        out[c + 32 * group + i] = scale * static_cast<float>(kNlValues[codes[i] & 15]);
        out[c + 32 * group + 16 + i] = scale * static_cast<float>(kNlValues[codes[i] >> 4]);
      }
    }
  }
}

void from_nvfp4(const Format&, const uint8_t* row, size_t columns, float* out) {
  for (size_t c = 0; c < columns; c += 64, row += 36)
    for (size_t part = 0; part < 4; ++part) {
      const float scale = half_from_ue4m3(plain_ue4m3(row[part]));
      const uint8_t* codes = row + 4 + 8 * part;
      for (size_t i = 0; i < 8; ++i) {
        out[c + 16 * part + i] = scale * static_cast<float>(kMxValues[codes[i] & 15]);
        out[c + 16 * part + 8 + i] = scale * static_cast<float>(kMxValues[codes[i] >> 4]);
      }
    }
}

// Generic blocks: a scale, perhaps a zero point, codes.
template <bool kZero> void from_i4(const Format& format, const uint8_t* row, size_t columns, float* out) {
  const size_t head = scale_nbytes(format.scaling.type) + kZero;
  for (size_t c = 0; c < columns; c += format.block, row += format.nbytes) {
    const float scale = read_scale(format.scaling.type, row);
    const int zero = kZero ? row[head - 1] : 8;
    for (size_t i = 0; i < format.block; ++i)
      out[c + i] = scale * static_cast<float>(((row[head + i / 2] >> (4 * (i % 2))) & 15) - zero);
  }
}

template <bool kZero> void from_i8(const Format& format, const uint8_t* row, size_t columns, float* out) {
  const size_t head = scale_nbytes(format.scaling.type) + kZero;
  for (size_t c = 0; c < columns; c += format.block, row += format.nbytes) {
    const float scale = read_scale(format.scaling.type, row);
    for (size_t i = 0; i < format.block; ++i) {
      const uint8_t code = row[head + i];
      out[c + i] = scale * static_cast<float>(kZero ? code - row[head - 1] : static_cast<int8_t>(code));
    }
  }
}

void from_e4m3(const Format& format, const uint8_t* row, size_t columns, float* out) {
  const size_t head = scale_nbytes(format.scaling.type);
  for (size_t c = 0; c < columns; c += format.block, row += format.nbytes) {
    const float scale = read_scale(format.scaling.type, row);
    for (size_t i = 0; i < format.block; ++i)
      out[c + i] = scale * f32_from_e4m3(row[head + i]);
  }
}

void add_blocks(std::vector<Format>& formats) {
  struct Code {
    const char* name;
    bool zero;
    size_t bits;
    Kind kind, halves;
    void (*dequantise)(const Format&, const uint8_t*, size_t, float*);
  };
  const Code codes[] = {{"I4", false, 4, kInt4Block, kInt4Halves, from_i4<false>},
                        {"I4", true, 4, kInt4BlockZero, kInt4HalvesZero, from_i4<true>},
                        {"I8", false, 8, kInt8Block, kInt8Halves, from_i8<false>},
                        {"I8", true, 8, kInt8BlockZero, kInt8HalvesZero, from_i8<true>},
                        {"E4M3", false, 8, kE4m3, kE4m3, from_e4m3}};
  const std::pair<const char*, ScaleType> types[] = {{"F16", kScaleF16}, {"BF16", kScaleBf16}, {"F32", kScaleF32}};
  for (const Code& code : codes)
    for (size_t group : {16, 32, 64, 128})
      for (const auto& [type_name, type] : types)
        formats.push_back(
            {std::string(code.name) + "_G" + std::to_string(group) + "_" + type_name + (code.zero ? "_Z" : ""),
             group == 16 ? code.halves : code.kind, group, scale_nbytes(type) + code.zero + group * code.bits / 8,
             code.dequantise, Scaling{static_cast<uint8_t>(group), type}});
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = [] {
    std::vector<Format> made = {
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
        {"NVFP4", kInt4Nv, 64, 36, from_nvfp4},
        {"Q2_K", kInt2K, 256, 84, from_q2_k},
        {"Q3_K", kInt3K, 256, 110, from_q3_k},
        {"Q4_K", kInt4K, 256, 144, from_q4_k},
        {"Q5_K", kInt5K, 256, 176, from_q5_k},
        {"Q6_K", kInt6K, 256, 210, from_q6_k},
        {"IQ4_XS", kInt4Xs, 256, 136, from_iq4_xs},
    };
    add_blocks(made);
    return made;
  }();
  return all;
}

size_t step_columns(Kind kind, Scaling scaling) {
  switch (kind) {
  case kInt2K:
  case kInt3K:
  case kInt4K:
  case kInt5K:
  case kInt6K:
  case kInt4Xs:
    return 256;
  case kInt4Block:
  case kInt4BlockZero:
  case kInt8Block:
  case kInt8BlockZero:
  case kE4m3:
    return scaling.columns;
  case kBf16:
    return 2;
  case kF16:
  case kF32:
    return 1;
  default:
    return kGroup;
  }
}

size_t step_nbytes(Kind kind, Scaling scaling) {
  const size_t scale = kStripRows * scale_nbytes(scaling.type), nibbles = 8 * size_t{scaling.columns},
               bytes = 16 * size_t{scaling.columns};
  switch (kind) {
  case kInt4F16:
  case kInt4Nl:
  case kInt4Nv:
    return 256 + 32;
  case kInt4Mx:
    return 256 + 16;
  case kInt4F16Min:
    return 256 + 64;
  case kInt4Xs:
    return 128 + 8 * 256;
  case kInt2K:
    return 64 + 8 * (128 + 32);
  case kInt3K:
    return 32 + 192 + 8 * (128 + 64);
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
  case kInt4Block:
    return nibbles + scale;
  case kInt4BlockZero:
    return nibbles + scale + kStripRows;
  case kInt8Block:
  case kE4m3:
    return bytes + scale;
  case kInt8BlockZero:
    return bytes + scale + kStripRows;
  case kInt4Halves:
    return 256 + 2 * scale;
  case kInt4HalvesZero:
    return 256 + 2 * (scale + kStripRows);
  case kInt8Halves:
    return 512 + 2 * scale;
  case kInt8HalvesZero:
    return 512 + 2 * (scale + kStripRows);
  case kF16:
    return 32;
  default:
    return 64;
  }
}

// What a matrix of this format becomes.
struct Packed {
  Kind kind;
  Scaling scaling;
};

Packed packed_as(const Format& format, const std::optional<std::string>& recode) {
  const Packed stored = {format.kind, format.scaling};
  if (!recode)
    return stored;
  const std::string code = code_name(format.kind);
  if (*recode == "float32")
    return {kF32, {}};
  if (*recode == "int4")
    return code == "int4" ? stored : Packed{kInt4Nl, {}};
  if (*recode == "int4_g128")
    return code == "int4" ? stored : Packed{kInt4Block, {128, kScaleF16}};
  if (*recode == "int8")
    return code == "int8" ? stored : Packed{kInt8F16, {}};
  throw std::invalid_argument("unknown recoding \"" + *recode + "\"; known are int4, int4_g128, int8, float32");
}

} // namespace

PairQ4K q4_k_pair(const uint8_t* block, size_t group) {
  const uint8_t* packed = block + 4; // 12 bytes hold 8 scales and 8 minima of 6 bits
  if (group < 4)
    return {static_cast<uint8_t>(packed[group] & 63), static_cast<uint8_t>(packed[group + 4] & 63)};
  return {static_cast<uint8_t>((packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4)),
          static_cast<uint8_t>((packed[group + 4] >> 4) | ((packed[group] >> 6) << 4))};
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

void q3_k_scales(const uint8_t* block, uint8_t* scales) {
  const uint8_t* packed = block + 96; // 8 bytes of low nibbles, first of scales 0 .. 7, and 4 of upper bits
  for (size_t i = 0; i < 16; ++i)
    scales[i] = static_cast<uint8_t>(((packed[i % 8] >> (4 * (i / 8))) & 15) |
                                     (((packed[8 + i % 4] >> (2 * (i / 4))) & 3) << 4));
}

uint8_t iq4_xs_scale(const uint8_t* block, size_t group) {
  const int low = block[4 + group / 2] >> (4 * (group % 2)), high = read_u16(block + 2) >> (2 * group);
  return static_cast<uint8_t>((low & 15) | ((high & 3) << 4));
}

size_t scale_nbytes(ScaleType type) {
  return type == kScaleF32 ? 4 : 2;
}

float read_scale(ScaleType type, const uint8_t* p) {
  if (type == kScaleF16)
    return read_f16(p);
  if (type == kScaleBf16)
    return f32_from_bf16(read_u16(p));
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

const Format& format_named(const std::string& name) {
  std::string known;
  for (const Format& format : formats()) {
    if (name == format.name)
      return format;
    if (format.scaling.columns == 0)
      known += (known.empty() ? "" : ", ") + format.name;
  }
  throw std::invalid_argument("unknown weight format \"" + name + "\"; known are " + known +
                              " and blocks such as I4_G128_F16_Z, I8_G32_BF16, E4M3_G128_F32");
}

Layout layout_of(long long rows, long long columns, const std::string& name, const std::optional<std::string>& recode) {
  constexpr long long kMost = 1LL << 28;
  const Format& format = format_named(name);
  const auto [kind, scaling] = packed_as(format, recode);
  if (rows < 1 || columns < 1 || rows > kMost || columns > kMost)
    throw std::invalid_argument("a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) +
                                " cannot be packed: both sizes must be 1 to 2^28");
  const size_t step = step_columns(kind, scaling);
  size_t multiple = format.block;
  if (kind != kBf16)
    multiple = std::max(multiple, step); // an odd bf16 column gets a zero partner
  if (static_cast<size_t>(columns) % multiple != 0)
    throw std::invalid_argument("columns (" + std::to_string(columns) + ") must be a multiple of " +
                                std::to_string(multiple) + " for " + name + (recode ? " as " + *recode : ""));
  Layout layout;
  layout.format = &format;
  layout.kind = kind;
  layout.scaling = scaling;
  layout.rows = static_cast<size_t>(rows);
  layout.columns = static_cast<size_t>(columns);
  layout.steps = (layout.columns + step - 1) / step;
  layout.step_nbytes = step_nbytes(kind, scaling);
  layout.strips = (layout.rows + kStripRows - 1) / kStripRows;
  layout.strip_nbytes = (layout.steps * layout.step_nbytes + 63) / 64 * 64;
  return layout;
}

} // namespace greenroom
