// Float weights to integer codes.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace greenroom {

// A scale to f16 bits (finite); returns what they stand for.
typedef float (*RoundScale)(float scale, uint16_t* bits);

// Both return false when a value is NaN or infinite.
struct RecodeKernels {
  // x [32 * groups] -> codes -127 .. 127, x ~ scale * code: round to nearest under the scale that puts the largest
  // magnitude on 127.
  bool (*int8)(const float* x, size_t groups, RoundScale round, uint16_t* scales, int8_t* codes);
  // x [32 * groups] -> codes 0 .. 15, x ~ scale * kNlValues[code]: the nearest under a searched scale.
  bool (*int4)(const float* x, size_t groups, RoundScale round, uint16_t* scales, uint8_t* codes);
  // x [128 * groups] -> codes 0 .. 15, x ~ scale * (code - 8), likewise. Searched scales may be negative.
  bool (*int4_g128)(const float* x, size_t groups, RoundScale round, uint16_t* scales, uint8_t* codes);
};

extern const RecodeKernels kPortableRecode;
#ifdef GREENROOM_X86
extern const RecodeKernels kAvx2Recode;
extern const RecodeKernels kAvx512Recode;
#endif

} // namespace greenroom
