// Float weights to integer codes: round to nearest under the group scale with the least squared error.
#pragma once

#include <cstdint>

namespace greenroom {

// x [32] -> codes -127 .. 127; returns the scale as f16 bits: x ~ scale * code.
uint16_t recode_int8(const float* x, int8_t* codes);
// x [32] -> codes 0 .. 15; returns the scale as f16 bits: x ~ scale * (code - 8). The scale may be negative.
uint16_t recode_int4(const float* x, uint8_t* codes);

} // namespace greenroom
