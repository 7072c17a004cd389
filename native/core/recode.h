// Float weights to integer codes: round to nearest under the group scale with the least squared error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace greenroom {

// x [32] -> codes -127 .. 127; returns the scale as f16 bits: x ~ scale * code.
uint16_t recode_int8(const float* x, int8_t* codes);
// x [n] -> codes 0 .. 15, n a multiple of 4; returns the scale as f16 bits: x ~ scale * (code - 8). The scale may be
// negative.
uint16_t recode_int4(const float* x, size_t n, uint8_t* codes);

} // namespace greenroom
