#include "packing.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "float16.h"

namespace greenroom {
namespace {

constexpr size_t kInt6Head = 32, kInt6Group = 256 + 128 + 32;

template <class T> T get(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <class T> void put(uint8_t* p, T value) {
  std::memcpy(p, &value, sizeof value);
}
uint32_t get_u32(const uint8_t* p) {
  return get<uint32_t>(p);
}
void put_u32(uint8_t* p, uint32_t value) {
  put(p, value);
}

// `words` 4-byte pieces of one row go to the row's lane of as many 64-byte loads.
void scatter(uint8_t* step, size_t row, const uint8_t* codes, size_t words) {
  for (size_t j = 0; j < words; ++j)
    std::memcpy(step + 64 * j + 4 * row, codes + 4 * j, 4);
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

// Low nibbles of 16 codes and high nibbles of 16 more, to one row's 4 loads.
void put_nibbles(uint64_t first, uint64_t second, uint8_t* loads, size_t row) {
  put_u32(loads + 4 * row, static_cast<uint32_t>(first));
  put_u32(loads + 64 + 4 * row, static_cast<uint32_t>(first >> 32));
  put_u32(loads + 128 + 4 * row, static_cast<uint32_t>(second));
  put_u32(loads + 192 + 4 * row, static_cast<uint32_t>(second >> 32));
}

constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0f;

void pack_nvfp4(const uint8_t* block, uint8_t* steps, size_t step_nbytes, size_t row) {
  for (size_t half = 0; half < 2; ++half) {
    // 16 columns are 8 bytes: the first eight in the low nibbles.
    uint8_t* step = steps + half * step_nbytes;
    const uint64_t first = get<uint64_t>(block + 4 + 16 * half), second = get<uint64_t>(block + 12 + 16 * half);
    put_nibbles((first & kLowNibbles) | ((second & kLowNibbles) << 4),
                ((first >> 4) & kLowNibbles) | (second & ~kLowNibbles), step, row);
    step[256 + row] = plain_ue4m3(block[2 * half]);
    step[272 + row] = plain_ue4m3(block[2 * half + 1]);
  }
}

void pack_iq4_xs(const uint8_t* block, uint8_t* step, size_t row) {
  for (size_t word = 0; word < 2; ++word) {
    uint32_t bits = uint32_t{block[word]} << 24;
    for (size_t i = 0; i < 4; ++i)
      bits |= uint32_t{iq4_xs_scale(block, 4 * word + i)} << (6 * i);
    put_u32(step + 64 * word + 4 * row, bits);
  }
  for (size_t group = 0; group < 8; ++group)
    scatter(step + 128 + 256 * group, row, block + 8 + 16 * group, 4);
}

// 32 codes of two bits, or the upper two of six: 2 loads.
void put_pairs(const uint8_t* codes, int shift, uint8_t* loads, size_t row) {
  for (size_t half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i)
      bits |= ((get_u32(codes + 16 * half + 4 * i) >> shift) & 0x03030303u) << (2 * i);
    put_u32(loads + 64 * half + 4 * row, bits);
  }
}

// One bit of each of 32 codes: 1 load.
void put_bits(const uint8_t* codes, int shift, uint8_t* load, size_t row) {
  uint32_t bits = 0;
  for (size_t j = 0; j < 8; ++j)
    bits |= ((get_u32(codes + 4 * j) >> shift) & 0x01010101u) << j;
  put_u32(load + 4 * row, bits);
}

void pack_q2_k(const uint8_t* block, uint8_t* step, size_t row) {
  std::memcpy(step + 2 * row, block + 80, 2);
  put(step + 32 + 2 * row, static_cast<uint16_t>(get<uint16_t>(block + 82) ^ 0x8000u));
  for (size_t group = 0; group < 8; ++group) {
    uint8_t* out = step + 64 + 160 * group;
    // Stored: 32 bytes hold four groups, two bits each.
    put_pairs(block + 16 + 32 * (group / 4), static_cast<int>(2 * (group % 4)), out, row);
    out[128 + row] = block[2 * group];
    out[144 + row] = block[2 * group + 1];
  }
}

void pack_q3_k(const uint8_t* block, uint8_t* step, size_t row) {
  uint8_t scales[16];
  q3_k_scales(block, scales);
  uint32_t words[4];
  for (size_t p = 0; p < 4; ++p)
    words[p] = scales[4 * p] | (uint32_t{scales[4 * p + 1]} << 6) | (uint32_t{scales[4 * p + 2]} << 12) |
               (uint32_t{scales[4 * p + 3]} << 18);
  std::memcpy(step + 2 * row, block + 108, 2);
  for (size_t p = 0; p < 3; ++p)
    put_u32(step + 32 + 64 * p + 4 * row, words[p] | (((words[3] >> (8 * p)) & 255) << 24));
  for (size_t group = 0; group < 8; ++group) {
    uint8_t* out = step + 224 + 192 * group;
    put_pairs(block + 32 + 32 * (group / 4), static_cast<int>(2 * (group % 4)), out, row);
    put_bits(block, static_cast<int>(group), out + 128, row);
  }
}

// 8 nibbles, the even ones low, to 8 bytes.
uint64_t spread(uint32_t nibbles) {
  uint64_t v = nibbles;
  v = (v | (v << 16)) & 0x0000ffff0000ffff;
  v = (v | (v << 8)) & 0x00ff00ff00ff00ff;
  return (v | (v << 4)) & kLowNibbles;
}

// A generic block. Both parts of a block of 16 are half a step.
void pack_block(const Layout& layout, const uint8_t* block, uint8_t* step, size_t index, size_t row) {
  const Kind kind = layout.kind;
  const bool halves = kind >= kInt4Halves && kind <= kInt8HalvesZero;
  const bool nibbles = kind == kInt4Block || kind == kInt4BlockZero || kind == kInt4Halves || kind == kInt4HalvesZero;
  const bool zero =
      kind == kInt4BlockZero || kind == kInt8BlockZero || kind == kInt4HalvesZero || kind == kInt8HalvesZero;
  const size_t scale_bytes = scale_nbytes(layout.scaling.type), block_columns = layout.format->block;
  const uint8_t* codes = block + scale_bytes + zero;
  const size_t part = halves ? index % 2 : 0, parts = halves ? 2 : 1;
  uint8_t* scales = step + (halves ? size_t{kGroup} : block_columns) * (nibbles ? 8 : 16);
  std::memcpy(scales + (part * kStripRows + row) * scale_bytes, block, scale_bytes);
  if (zero)
    scales[parts * kStripRows * scale_bytes + part * kStripRows + row] = block[scale_bytes];

  if (nibbles && halves) {
    // The other half's nibbles are in the same bytes.
    for (size_t j = 0; j < 4; ++j) {
      uint8_t* at = step + 64 * j + 4 * row;
      const uint32_t four = static_cast<uint32_t>(spread(get<uint16_t>(codes + 2 * j)));
      put_u32(at, part ? (get_u32(at) & 0x0f0f0f0fu) | (four << 4) : (get_u32(at) & 0xf0f0f0f0u) | four);
    }
  } else if (nibbles) {
    for (size_t c = 0; c < block_columns; c += kGroup, codes += 16)
      put_nibbles(spread(get_u32(codes)) | (spread(get_u32(codes + 8)) << 4),
                  spread(get_u32(codes + 4)) | (spread(get_u32(codes + 12)) << 4), step + 8 * c, row);
  } else {
    const uint32_t offset = zero ? 0x80808080u : 0;
    for (size_t j = 0; j < block_columns / 4; ++j)
      put_u32(step + 64 * (j + 4 * part) + 4 * row, get_u32(codes + 4 * j) ^ offset);
  }
}

void pack_e4m3(const Layout& layout, const uint8_t* block, uint8_t* step, size_t row) {
  const size_t scale_bytes = scale_nbytes(layout.scaling.type), columns = layout.scaling.columns;
  uint32_t nan = 0;
  for (size_t j = 0; j < columns / 4; ++j) {
    const uint32_t four = get_u32(block + scale_bytes + 4 * j);
    nan |= ((four & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u;
    put_u32(step + 64 * j + 4 * row, (four & 0xff0000ffu) | ((four & 0xff00u) << 8) | ((four >> 8) & 0xff00u));
  }
  uint8_t* scale = step + 16 * columns + row * scale_bytes;
  std::memcpy(scale, block, scale_bytes);
  if (nan) // a quiet NaN of any type has these top bits set
    put(scale + scale_bytes - 2, uint16_t{0x7ff0});
}

// Bits 4j + b to bits 8b + j.
uint32_t fifth_bits(uint32_t bits) {
  uint32_t turned = 0;
  for (int b = 0; b < 4; ++b) {
    uint32_t v = (bits >> b) & 0x11111111u;
    v = (v | (v >> 3)) & 0x03030303u;
    v = (v | (v >> 6)) & 0x000f000fu;
    turned |= ((v | (v >> 12)) & 255) << (8 * b);
  }
  return turned;
}

void pack_q5_0(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 6, 4);
  put_u32(step + 256 + 4 * row, fifth_bits(get_u32(block + 2)));
  std::memcpy(step + 320 + 2 * row, block, 2);
}

void pack_q5_1(const uint8_t* block, uint8_t* step, size_t row) {
  scatter(step, row, block + 8, 4);
  put_u32(step + 256 + 4 * row, fifth_bits(get_u32(block + 4)));
  std::memcpy(step + 320 + 2 * row, block, 2);
  std::memcpy(step + 352 + 2 * row, block + 2, 2);
}

// Scale words of a Q4_K or Q5_K block.
void put_scale_words(const uint8_t* block, uint8_t* step, size_t row) {
  const uint32_t d = get<uint16_t>(block), negated_min = get<uint16_t>(block + 2) ^ 0x8000u;
  const uint32_t super[4] = {d & 255, d >> 8, negated_min & 255, negated_min >> 8};
  for (size_t pair = 0; pair < 4; ++pair) {
    const PairQ4K even = q4_k_pair(block, 2 * pair), odd = q4_k_pair(block, 2 * pair + 1);
    put_u32(step + 64 * pair + 4 * row, even.scale | (uint32_t{even.min} << 6) | (uint32_t{odd.scale} << 12) |
                                            (uint32_t{odd.min} << 18) | (super[pair] << 24));
  }
}

// Nibbles of 64 columns, stored as 32 bytes with the first group in the low halves.
void put_two_groups(const uint8_t* codes, uint8_t* first_loads, uint8_t* second_loads, size_t row) {
  for (size_t j = 0; j < 4; ++j) {
    const uint32_t first = get_u32(codes + 4 * j), second = get_u32(codes + 16 + 4 * j);
    put_u32(first_loads + 64 * j + 4 * row, (first & 0x0f0f0f0fu) | ((second & 0x0f0f0f0fu) << 4));
    put_u32(second_loads + 64 * j + 4 * row, ((first >> 4) & 0x0f0f0f0fu) | (second & 0xf0f0f0f0u));
  }
}

void pack_q4_k(const uint8_t* block, uint8_t* step, size_t row) {
  put_scale_words(block, step, row);
  for (size_t pair = 0; pair < 4; ++pair) {
    uint8_t* out = step + 256 + 512 * pair;
    put_two_groups(block + 16 + 32 * pair, out, out + 256, row);
  }
}

void pack_q5_k(const uint8_t* block, uint8_t* step, size_t row) {
  put_scale_words(block, step, row);
  for (size_t pair = 0; pair < 4; ++pair) {
    uint8_t* out = step + 256 + 640 * pair;
    put_two_groups(block + 48 + 32 * pair, out, out + 320, row);
    put_bits(block + 16, static_cast<int>(2 * pair), out + 256, row);
    put_bits(block + 16, static_cast<int>(2 * pair + 1), out + 320 + 256, row);
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
    put_pairs(q, 4, out + 256, row);
    for (size_t half = 0; half < 2; ++half)
      out[384 + 16 * half + row] = block[192 + 2 * group + half];
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
  case kInt4Nv:
    for (size_t b = 0; b < blocks; ++b)
      pack_nvfp4(row + b * nbytes, strip + 2 * b * step, step, lane);
    break;
  case kInt4Xs:
    for (size_t b = 0; b < blocks; ++b)
      pack_iq4_xs(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt2K:
    for (size_t b = 0; b < blocks; ++b)
      pack_q2_k(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt3K:
    for (size_t b = 0; b < blocks; ++b)
      pack_q3_k(row + b * nbytes, strip + b * step, lane);
    break;
  case kInt4Block:
  case kInt4BlockZero:
  case kInt8Block:
  case kInt8BlockZero:
    for (size_t b = 0; b < blocks; ++b)
      pack_block(layout, row + b * nbytes, strip + b * step, b, lane);
    break;
  case kInt4Halves:
  case kInt4HalvesZero:
  case kInt8Halves:
  case kInt8HalvesZero:
    for (size_t b = 0; b < blocks; ++b)
      pack_block(layout, row + b * nbytes, strip + b / 2 * step, b, lane);
    break;
  case kE4m3:
    for (size_t b = 0; b < blocks; ++b)
      pack_e4m3(layout, row + b * nbytes, strip + b * step, lane);
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

float round_scale(float scale, uint16_t* bits) {
  *bits = f16_from_f32(std::clamp(scale, -65504.0f, 65504.0f));
  return f32_from_f16(*bits);
}

// One row of f32 weights into the codes asked for. Keeps its buffers from row to row.
class Recoder {
public:
  Recoder(const Layout& layout, const RecodeKernels& kernels)
      : layout_(layout), kernels_(kernels), group_(layout.columns / layout.steps), row_(layout.columns),
        codes_(layout.columns), scales_(layout.steps) {}

  void pack_row(const uint8_t* stored, uint8_t* strip, size_t lane) {
    layout_.format->dequantise(*layout_.format, stored, layout_.columns, row_.data());
    if (layout_.kind == kF32) {
      for (size_t c = 0; c < layout_.columns; ++c)
        put(strip + 64 * c + 4 * lane, row_[c]);
      return;
    }
    const bool bytes = layout_.kind == kInt8F16;
    const bool finite = bytes ? kernels_.int8(row_.data(), layout_.steps, round_scale, scales_.data(),
                                              reinterpret_cast<int8_t*>(codes_.data()))
                              : (layout_.kind == kInt4Nl ? kernels_.int4 : kernels_.int4_g128)(
                                    row_.data(), layout_.steps, round_scale, scales_.data(), codes_.data());
    if (!finite)
      throw std::invalid_argument("weights that are NaN or infinite cannot be recoded to integers");
    for (size_t s = 0; s < layout_.steps; ++s) {
      uint8_t* step = strip + s * layout_.step_nbytes;
      const uint8_t* codes = codes_.data() + s * group_;
      if (bytes)
        scatter(step, lane, codes, 8);
      else
        for (size_t c = 0; c < group_; c += kGroup)
          for (size_t j = 0; j < 4; ++j)
            put_u32(step + 8 * c + 64 * j + 4 * lane,
                    get_u32(codes + c + 4 * j) | (get_u32(codes + c + 16 + 4 * j) << 4));
      put(step + (bytes ? 16 : 8) * group_ + 2 * lane, scales_[s]);
    }
  }

private:
  const Layout& layout_;
  const RecodeKernels& kernels_;
  size_t group_;
  std::vector<float> row_;
  std::vector<uint8_t> codes_;
  std::vector<uint16_t> scales_;
};

} // namespace

void check_permutation(const int32_t* order, size_t count, size_t columns) {
  std::vector<char> seen(columns);
  for (size_t c = 0; c < count; ++c)
    if (order[c] >= 0 && static_cast<size_t>(order[c]) < columns)
      seen[static_cast<size_t>(order[c])] = 1;
  if (count != columns || std::count(seen.begin(), seen.end(), 1) != static_cast<std::ptrdiff_t>(columns))
    throw std::invalid_argument("an order of columns must name each of " + std::to_string(columns) + " once");
}

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
  const RecodeKernels& kernels = recode_kernels();

  auto pack_strip = [&](size_t tile, int) {
    const size_t strip = first_strip + tile;
    std::optional<Recoder> recoder;
    if (!keep)
      recoder.emplace(layout, kernels);
    for (size_t lane = 0; lane < kStripRows; ++lane) {
      const size_t row = strip * kStripRows + lane;
      if (row < first || row >= last)
        continue;
      const uint8_t* stored = data + (row - first) * row_nbytes;
      if (keep)
        pack_stored_row(layout, stored, matrix.strip(strip), lane);
      else
        recoder->pack_row(stored, matrix.strip(strip), lane);
    }
  };
  ThreadPool::Call call(pool);
  call.run({{strips, pack_strip}});
}

} // namespace greenroom
