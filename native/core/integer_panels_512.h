// Many tokens: two strips, a block of columns at a time, which stays in the L1 cache while all tokens pass. A panel
// holds what is unpacked once for all of them; bytes are cheaper read where they lie (measured: 5 %), nibbles are not.
// Rules as in integer_codes_512.h.
#pragma once

#include "integer_codes_512.h"

namespace greenroom {
namespace {

template <class Code> struct alignas(64) Panel {
  // 512 columns, 16 KB of codes: with fewer, sums are taken up and put down more often (of bytes, 8 groups lose 3 %, 4
  // lose 10 %), with more, the cache is too small.
  static constexpr size_t kGroups = 16;

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

// Unpacks groups first .. first + count - 1 of strip i (0 or 1).
template <class Code>
static inline void fill(Panel<Code>* panel, const StripTask* task, size_t i, size_t first, size_t count) {
  const size_t step_nbytes = Code::step_nbytes(task->scaling), groups = Code::groups(task->scaling);
  const uint8_t* step = (i ? task->second : task->strip) + first / groups * step_nbytes;
  size_t g = first % groups;
  typename Code::Head head = Code::head(step, task->scaling);
  for (size_t at = 0; at < count; ++at) {
    if constexpr (Code::kBytes) {
      panel->bytes[at][i] = Code::codes(step, g);
    } else {
      __m512i w[8];
      Code::unpack(step, g, w);
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        _mm512_store_si512(panel->unpacked[at][i][j], w[j]);
    }
    __m512 scale[Code::kParts], min[Code::kParts];
    Code::scales(head, step, g, scale, min);
    GREENROOM_UNROLL
    for (int part = 0; part < Code::kParts; ++part) {
      _mm512_store_ps(panel->scale[at][part][i], scale[part]);
      if (Code::kHasMin)
        _mm512_store_ps(panel->min[at][part][i], min[part]);
    }
    if (++g == groups && at + 1 < count) {
      g = 0;
      step += step_nbytes;
      head = Code::head(step, task->scaling);
    }
  }
}

// Multiplier::run<Code>(panel, groups, share, x, tokens, first, out, out_stride) adds the products of a panel with up
// to Multiplier::kMost tokens to out; the first block of columns overwrites it.
template <class Code, class Multiplier>
void two_strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  Panel<Code> panel;
  const size_t all = task->steps * Code::groups(task->scaling), total = task->steps * Code::step_nbytes(task->scaling);
  const size_t passes = (tokens + Multiplier::kMost - 1) / Multiplier::kMost;
  const size_t blocks = (all + panel.kGroups - 1) / panel.kGroups, most = (all + blocks - 1) / blocks;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * most, groups = all - first < most ? all - first : most;
    // Two blocks are time enough for main memory.
    const size_t ahead = block + (blocks < 2 ? 1 : 2);
    const size_t begin = ahead < blocks ? ahead * most : all + (ahead - blocks) * most;
    fill(&panel, task, 0, first, groups);
    fill(&panel, task, 1, first, groups);
    for (size_t pass = 0, t = 0; pass < passes; ++pass) {
      const Share share(task, begin * total / all, total, total / all, pass, passes);
      const size_t n = (tokens - t + passes - pass - 1) / (passes - pass);
      Multiplier::template run<Code>(&panel, groups, share, x + t, n, first, out + t * out_stride, out_stride);
      t += n;
    }
  }
}

} // namespace
} // namespace greenroom
