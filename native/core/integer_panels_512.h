// Many tokens: the weights of two strips are unpacked once, a block of columns at a time, to a panel that stays in the
// L1 cache while all tokens pass. For the VNNI kernels and the AMX ones; rules as in integer_codes_512.h.
#pragma once

#include "integer_codes_512.h"

namespace greenroom {
namespace {

// 256 columns: 10 KB, which leaves room for as many columns of 64 tokens' activations (32 KB).
constexpr size_t kPanelGroups = 8;
// Two panels: the time until they are unpacked is enough for main memory.
constexpr size_t kAheadGroups = 2 * kPanelGroups;

template <class Code> struct alignas(64) Panel {
  uint8_t codes[kPanelGroups][8][2][64]; // as vpdpbusd and AMX tiles take them
  float scale[kPanelGroups][Code::kParts][2][16];
  float min[kPanelGroups][Code::kParts][2][16];
};

// Unpacks groups first .. first + count - 1 of strip i (0 or 1).
template <class Code>
static inline void fill(Panel<Code>* panel, const StripTask* task, size_t i, size_t first, size_t count) {
  const size_t step_nbytes = Code::step_nbytes(task->scaling), groups = Code::groups(task->scaling);
  const uint8_t* step = (i ? task->second : task->strip) + first / groups * step_nbytes;
  size_t g = first % groups;
  typename Code::Head head = Code::head(step, task->scaling);
  for (size_t at = 0; at < count; ++at) {
    __m512i w[8];
    __m512 scale[Code::kParts], min[Code::kParts];
    Code::unpack(step, g, w);
    Code::scales(head, step, g, scale, min);
    GREENROOM_UNROLL
    for (int j = 0; j < 8; ++j)
      _mm512_store_si512(panel->codes[at][j][i], w[j]);
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
  for (size_t first = 0; first < all; first += kPanelGroups) {
    const size_t groups = all - first < kPanelGroups ? all - first : kPanelGroups;
    fill(&panel, task, 0, first, groups);
    fill(&panel, task, 1, first, groups);
    for (size_t pass = 0, t = 0; pass < passes; ++pass) {
      const Share share(task, (first + kAheadGroups) * total / all, total, total / all, pass, passes);
      const size_t n = (tokens - t + passes - pass - 1) / (passes - pass);
      Multiplier::template run<Code>(&panel, groups, share, x + t, n, first, out + t * out_stride, out_stride);
      t += n;
    }
  }
}

} // namespace
} // namespace greenroom
