// Panels of integer codes for 512-bit registers. Bytes are cheaper read where they lie (measured: 5 %), nibbles are
// not. Rules as in integer_codes_512.h.
#pragma once

#include "integer_codes_512.h"
#include "panels.h"

namespace greenroom {
namespace {

template <class C> struct alignas(64) Panel {
  typedef C Code;
  class Filler;
  // 512 columns, 16 KB of codes: with fewer, sums are taken up and put down more often (of bytes, 8 groups lose 3 %, 4
  // lose 10 %), with more, the cache is too small.
  static constexpr size_t kGroups = 16, kUnit = 1;
  static constexpr size_t kMostTokens = 5; // ten sums, ten totals, two loads of weights, two scales, some activations
  static constexpr bool kAtOnce = Code::kBytes;

  uint8_t unpacked[Code::kBytes ? 1 : kGroups][2][8][64]; // as vpdpbusd takes them
  const uint8_t* bytes[kGroups][2];                       // where Code::kBytes
  float scale[kGroups][Code::kParts][2][16];
  float min[kGroups][Code::kParts][2][16];
};

// What vpdpbusd takes of columns 4j .. 4j + 3 of group g of strip i.
template <class Code> static inline __m512i weights(const Panel<Code>* panel, size_t g, int j, int i) {
  if constexpr (Code::kBytes)
    return unpack_four_bytes(panel->bytes[g][i], j);
  else
    return _mm512_load_si512(panel->unpacked[g][i][j]);
}

// Unpacks groups of strip i (0 or 1) of a task, one after the other.
template <class Code> class Panel<Code>::Filler {
public:
  Filler(Panel<Code>* panel, const StripTask* task, size_t i, size_t first)
      : panel_(panel), scaling_(task->scaling), i_(i), group_(first % Code::groups(scaling_)),
        step_((i ? task->second : task->strip) + first / Code::groups(scaling_) * Code::step_nbytes(scaling_)),
        head_(Code::head(step_, scaling_)) {}

  // The next one, to place `at`.
  inline void fill(size_t at) {
    if (group_ == Code::groups(scaling_)) {
      group_ = 0;
      step_ += Code::step_nbytes(scaling_);
      head_ = Code::head(step_, scaling_);
    }
    if constexpr (Code::kBytes) {
      panel_->bytes[at][i_] = Code::codes(step_, group_);
    } else {
      __m512i w[8];
      Code::unpack(step_, group_, w);
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        _mm512_store_si512(panel_->unpacked[at][i_][j], w[j]);
    }
    __m512 scale[Code::kParts], min[Code::kParts];
    Code::scales(head_, step_, group_, scale, min);
    GREENROOM_UNROLL
    for (int part = 0; part < Code::kParts; ++part) {
      _mm512_store_ps(panel_->scale[at][part][i_], scale[part]);
      if (Code::kHasMin)
        _mm512_store_ps(panel_->min[at][part][i_], min[part]);
    }
    ++group_;
  }

private:
  Panel<Code>* panel_;
  Scaling scaling_;
  size_t i_, group_;
  const uint8_t* step_;
  typename Code::Head head_;
};

} // namespace
} // namespace greenroom
