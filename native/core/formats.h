// Formats as stored in a file, and the shape they take when packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels.h"

namespace greenroom {

struct Format {
  std::string name;
  Kind kind;     // what it packs to when its bits are kept
  size_t block;  // columns per stored block
  size_t nbytes; // bytes per stored block
  // One stored row (a whole number of blocks) to f32, with the roundings of the format's definition.
  void (*dequantise)(const Format& format, const uint8_t* row, size_t columns, float* out);
  Scaling scaling = {0, kScaleF16}; // of the generic blocks alone
};

// GGUF's names, F32, F16, BF16, and the blocks that files of other forms are read as: {I4, I8, E4M3}_G{16, 32, 64,
// 128}_{F16, BF16, F32}, with _Z behind integers that have zero points. A block is a scale, with _Z one byte of zero
// point, then the codes: I4 unsigned nibbles, the even column low, less 8 without _Z; I8 signed bytes, with _Z unsigned
// ones; E4M3 float8_e4m3fn. Throws std::invalid_argument for a name we do not know.
const Format& format_named(const std::string& name);

// The 6-bit scale and minimum of one group of 32 in a Q4_K or Q5_K block.
struct PairQ4K {
  uint8_t scale, min;
};
PairQ4K q4_k_pair(const uint8_t* block, size_t group);
// The 256 codes (0 .. 63, offset 32) of a Q6_K block.
void q6_k_codes(const uint8_t* block, uint8_t* codes);

// The 16 scales (offset 32) of a Q3_K block.
void q3_k_scales(const uint8_t* block, uint8_t* scales);
// The 6-bit scale (offset 32) of one group of 32 in an IQ4_XS block.
uint8_t iq4_xs_scale(const uint8_t* block, size_t group);

size_t scale_nbytes(ScaleType type);
float read_scale(ScaleType type, const uint8_t* p);

// One weight matrix: how it was stored, how it is packed.
struct Layout {
  const Format* format;
  Kind kind;
  Scaling scaling;
  size_t rows, columns;
  size_t steps; // per strip
  size_t step_nbytes;
  size_t strips;
  size_t strip_nbytes; // multiple of 64

  size_t nbytes() const { return strips * strip_nbytes; }
  size_t stored_row_nbytes() const { return columns / format->block * format->nbytes; }
};

// recode: "int8", "int4" (both in groups of 32; int4 takes kNlValues), "int4_g128", "float32" or nothing. Throws
// std::invalid_argument for a shape that does not fit the format, an unknown name or sizes beyond reason.
Layout layout_of(long long rows, long long columns, const std::string& format,
                 const std::optional<std::string>& recode);

} // namespace greenroom
