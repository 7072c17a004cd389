// Many tokens: two strips of integer codes, a block of columns at a time, which stays in the L1 cache as a panel while
// all tokens pass. Registers may have any width. Rules as in read_ahead.h.
#pragma once

#include "read_ahead.h"

namespace greenroom {
namespace {

// Panel has room for kGroups groups of columns of codes of type Code. Panel::Filler(&panel, task, i, first) unpacks
// those of strip i from group `first` on, one with every fill(place).
// Multiplier::run(panel, fillers, groups, share, x, tokens, first, out, out_stride) adds the products with up to
// Panel::kMostTokens tokens to out; the first block of columns overwrites it. Unless Panel::kAtOnce, the first pass
// unpacks codes itself, each group before the one ahead of it is multiplied, because that uses what multiplying leaves
// idle; otherwise and for other passes `fillers` is null. Blocks are multiples of Panel::kUnit groups.
template <class Panel, class Multiplier>
void two_strips(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  typedef typename Panel::Code Code;
  Panel panel;
  const size_t all = task->steps * Code::groups(task->scaling), total = task->steps * Code::step_nbytes(task->scaling);
  const size_t passes = (tokens + Panel::kMostTokens - 1) / Panel::kMostTokens;
  const size_t fewest = (all + Panel::kGroups - 1) / Panel::kGroups;
  const size_t most = ((all + fewest - 1) / fewest + Panel::kUnit - 1) / Panel::kUnit * Panel::kUnit;
  const size_t blocks = (all + most - 1) / most;
  const size_t piece = total / all, each = tokens / passes, larger = tokens % passes;
  Soon soon(task, blocks * passes);
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * most, groups = all - first < most ? all - first : most;
    // Two blocks are time enough for main memory.
    const size_t ahead = block + (blocks < 2 ? 1 : 2);
    const size_t begin = ahead < blocks ? ahead * most : all + (ahead - blocks) * most;
    typename Panel::Filler fillers[2] = {{&panel, task, 0, first}, {&panel, task, 1, first}};
    for (size_t i = 0; i < 2; ++i)
      for (size_t g = 0; g < (Panel::kAtOnce ? groups : 1); ++g)
        fillers[i].fill(g);
    Share share(task, begin * piece, total, piece, passes);
    for (size_t pass = 0, t = 0; pass < passes; ++pass) {
      const size_t n = each + (pass < larger ? 1 : 0);
      share.turn();
      soon.fetch();
      Multiplier::run(&panel, pass || Panel::kAtOnce ? nullptr : fillers, groups, share, x + t, n, first,
                      out + t * out_stride, out_stride);
      t += n;
    }
  }
}

} // namespace
} // namespace greenroom
