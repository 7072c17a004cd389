// A layer of experts at work: pairs of a token and an expert sorted by expert, gate and up, down, sums.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "activations.h"
#include "experts.h"

namespace greenroom {
namespace {

// Bounds the scratch of one pass: a pair is one token at one of its experts.
constexpr size_t kMostPairs = 16384;
// Gate+up tiles a thread takes together when an expert has many tokens.
constexpr size_t kTilesAtOnce = 4;

// Strips of output rows in a down tile. Many tokens: as many as leave each thread a few tiles, because every tile reads
// all activations. Few: less, so that all threads finish together, but no single ones where that can be helped: a tile
// reads a piece of every expert, and each is a new stream to main memory, 13 KB long for a strip of 768 int8 columns
// (measured with one thread and eight strips: 5 % less time for int4, 8 % for int8).
size_t strips_per_tile(size_t strips, size_t threads, bool many) {
  constexpr size_t kMost = 16;
  return many ? std::clamp<size_t>(strips / (4 * threads), 2, kMost) / 2 * 2
              : std::clamp<size_t>(strips / (16 * threads), 1, kMost);
}

void scale(float* values, size_t n, float factor) {
  if (factor != 1.0f)
    for (size_t i = 0; i < n; ++i)
      values[i] *= factor;
}

size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

size_t node_of(const size_t* node_first, size_t nodes, size_t tile) {
  size_t node = nodes - 1;
  while (node_first[node] > tile)
    --node;
  return node;
}

} // namespace

struct Experts::Active {
  size_t expert;
  size_t first_pair, pairs; // its range of Pass::pair_token
};

// Everything the tiles of one forward share. Pairs are sorted by expert, then by token.
struct Experts::Pass {
  const RoutedTokens& routed;
  std::span<const Active> active = {};  // by expert
  std::span<const size_t> largest = {}; // indices of active, most pairs first
  uint32_t* pair_token = nullptr;
  float* pair_weight = nullptr;
  const std::byte* gate_acts = nullptr; // [tokens] rows, or [pairs] where columns are reordered
  const std::byte* up_acts = nullptr;
  std::byte* down_acts = nullptr; // [pairs] rows
  size_t gate_row_nbytes = 0, up_row_nbytes = 0, down_row_nbytes = 0;
  bool own_rows = false; // gate's and up's activations are there for every pair, not for every token

  size_t row(size_t pair) const { return own_rows ? pair : pair_token[pair]; }
};

void Experts::forward(ThreadPool& pool, const RoutedTokens& routed) const {
  ThreadPool::Call call(pool);
  forward(call, routed);
}

Stream Experts::stream() const {
  if (experts_ > 1 || slices_.size() > 1)
    return {};
  const Slice& slice = slices_.front();
  return {matrix(0, Part::gate, slice).base, (slice.strips + kTileStrips - 1) / kTileStrips,
          kTileStrips * gate_.strip_stride};
}

void Experts::forward(ThreadPool::Call& call, const RoutedTokens& routed, const Ahead& ahead) const {
  for (size_t i = 0; i < routed.tokens * routed.top_k; ++i)
    if (routed.ids[i] >= 0)
      checked(routed.ids[i]);
  const size_t most = std::max<size_t>(1, kMostPairs / std::max<size_t>(1, routed.top_k));
  for (size_t first = 0; first < routed.tokens; first += most) {
    RoutedTokens chunk = routed;
    chunk.x += first * hidden_;
    chunk.y += first * hidden_;
    chunk.ids += first * routed.top_k;
    chunk.weights += first * routed.top_k;
    chunk.tokens = std::min(most, routed.tokens - first);
    forward_chunk(call, chunk, ahead);
  }
}

void Experts::forward_chunk(ThreadPool::Call& call, const RoutedTokens& routed, const Ahead& ahead) const {
  const size_t slots = routed.tokens * routed.top_k, most_active = std::min(slots, experts_);
  const size_t threads = static_cast<size_t>(call.threads());
  // A row of activations serves all experts of a token, unless they want their columns in orders of their own.
  const bool own_rows = reordered(), shared_form = gate_.form == up_.form && !own_rows;
  const size_t act_rows = own_rows ? slots : routed.tokens;
  Pass pass{routed};
  pass.own_rows = own_rows;
  pass.gate_row_nbytes = activation_row_nbytes(gate_.form, hidden_);
  pass.up_row_nbytes = activation_row_nbytes(up_.form, hidden_);
  pass.down_row_nbytes = activation_row_nbytes(down_.form, intermediate_);
  const size_t most_strips = std::max(strips_per_tile(down_.layout.strips, threads, true),
                                      strips_per_tile(down_.layout.strips, threads, false));
  const size_t sums_nbytes = round_up(routed.tokens * most_strips * kStripRows * sizeof(float), 64) + 64;

  // All rooms of the pass in one piece: a heap allocation for each would cost a single token more than its norms.
  size_t nbytes = 0;
  const auto room = [&nbytes](size_t n) { return std::exchange(nbytes, nbytes + round_up(n, 64)); };
  const size_t gate_at = room(act_rows * pass.gate_row_nbytes);
  const size_t up_at = shared_form ? gate_at : room(act_rows * pass.up_row_nbytes);
  const size_t down_at = room(slots * pass.down_row_nbytes), sums_at = room(threads * sums_nbytes);
  const size_t active_at = room(most_active * sizeof(Active)), largest_at = room(most_active * sizeof(size_t));
  const size_t token_at = room(slots * sizeof(uint32_t)), weight_at = room(slots * sizeof(float));
  const size_t counts_at = room(experts_ * sizeof(uint32_t)), next_at = room(experts_ * sizeof(size_t));
  std::byte* scratch = call.scratch(nbytes);
  std::byte *gate_acts = scratch + gate_at, *up_acts = scratch + up_at, *sums = scratch + sums_at;
  pass.gate_acts = gate_acts;
  pass.up_acts = up_acts;
  pass.down_acts = scratch + down_at;
  pass.pair_token = reinterpret_cast<uint32_t*>(scratch + token_at);
  pass.pair_weight = reinterpret_cast<float*>(scratch + weight_at);
  Active* active = reinterpret_cast<Active*>(scratch + active_at);
  size_t *largest = reinterpret_cast<size_t*>(scratch + largest_at), active_count = 0, pairs = 0;

  // Counting sort of the pairs by expert.
  uint32_t* counts = reinterpret_cast<uint32_t*>(scratch + counts_at);
  size_t* next_pair = reinterpret_cast<size_t*>(scratch + next_at);
  std::fill_n(counts, experts_, 0u);
  for (size_t i = 0; i < slots; ++i)
    if (routed.ids[i] >= 0)
      ++counts[static_cast<size_t>(routed.ids[i])];
  for (size_t e = 0; e < experts_; ++e) {
    next_pair[e] = pairs;
    if (counts[e]) {
      active[active_count++] = {e, pairs, counts[e]};
      counts_[e].fetch_add(counts[e], std::memory_order_relaxed);
    }
    pairs += counts[e];
  }
  for (size_t i = 0; i < slots; ++i) {
    if (routed.ids[i] < 0)
      continue;
    const size_t pair = next_pair[static_cast<size_t>(routed.ids[i])]++;
    pass.pair_token[pair] = static_cast<uint32_t>(i / routed.top_k);
    pass.pair_weight[pair] = routed.weights[i];
  }
  // Largest first, so that no long task starts last.
  std::iota(largest, largest + active_count, size_t{0});
  std::sort(largest, largest + active_count, [active](size_t a, size_t b) {
    return active[a].pairs != active[b].pairs ? active[a].pairs > active[b].pairs : a < b;
  });
  pass.active = {active, active_count};
  pass.largest = {largest, active_count};
  const bool many = pairs >= kPairTokens * active_count;
  const size_t down_strips = strips_per_tile(down_.layout.strips, threads, many);

  auto quantise_token = [&](size_t t, int) {
    const float* x = routed.x + t * hidden_;
    prepare_row(*gate_.kernels, gate_.form, x, hidden_, gate_acts + t * pass.gate_row_nbytes);
    if (!shared_form)
      prepare_row(*up_.kernels, up_.form, x, hidden_, up_acts + t * pass.up_row_nbytes);
  };
  auto quantise_active = [&](size_t a, int) {
    const Active& active = pass.active[a];
    std::vector<float> turned(hidden_);
    for (size_t pair = active.first_pair; pair < active.first_pair + active.pairs; ++pair) {
      const float* x = routed.x + pass.pair_token[pair] * hidden_;
      gate_.turn(active.expert, x, turned.data());
      prepare_row(*gate_.kernels, gate_.form, turned.data(), hidden_, gate_acts + pair * pass.gate_row_nbytes);
      up_.turn(active.expert, x, turned.data());
      prepare_row(*up_.kernels, up_.form, turned.data(), hidden_, up_acts + pair * pass.up_row_nbytes);
    }
  };
  size_t gate_up_first[kMostNodes], down_first[kMostNodes], gate_up_tiles = 0, down_tiles = 0;
  const size_t nodes = slices_.size();
  for (size_t n = 0; n < nodes; ++n) {
    gate_up_first[n] = gate_up_tiles;
    gate_up_tiles += pass.active.size() * ((slices_[n].strips + kTileStrips - 1) / kTileStrips);
    down_first[n] = down_tiles;
    down_tiles += (slices_[n].downs + down_strips - 1) / down_strips;
  }
  Stream down_stream;
  if (nodes == 1 && active_count)
    down_stream = {matrix(active[0].expert, Part::down, slices_.front()).base, down_tiles,
                   down_strips * down_.strip_stride};
  auto behind = [&](size_t tile, size_t tiles, int worker, const Stream& stream) {
    const size_t share = static_cast<size_t>(worker);
    return nodes == 1 && ends_share(tile, tiles, share, threads) ? stream.share(share, threads) : nullptr;
  };
  auto gate_up = [&](size_t tile, int worker) {
    const size_t node = node_of(gate_up_first, nodes, tile);
    gate_up_tile(pass, slices_[node], tile - gate_up_first[node], behind(tile, gate_up_tiles, worker, down_stream));
  };
  auto down = [&](size_t tile, int worker) {
    const size_t node = node_of(down_first, nodes, tile);
    const Slice& slice = slices_[node];
    const size_t first = (tile - down_first[node]) * down_strips;
    down_tile(pass, slice, slice.first_down + first, std::min(down_strips, slice.downs - first),
              reinterpret_cast<float*>(sums + static_cast<size_t>(worker) * sums_nbytes),
              behind(tile, down_tiles, worker, ahead.first));
  };
  // Prompts do not spread evenly: the few experts most of a prompt goes to are half of the work, and come first.
  const Phase gates{gate_up_tiles, gate_up, {gate_up_first, nodes}, stream(), many ? kTilesAtOnce : SIZE_MAX};
  const Phase downs{down_tiles, down, {down_first, nodes}, down_stream};
  if (own_rows)
    call.run({{pass.active.size(), quantise_active}, gates, downs}, ahead);
  else
    call.run({{routed.tokens, quantise_token}, gates, downs}, ahead);
}

void Experts::gate_up_tile(const Pass& pass, const Slice& slice, size_t tile, const uint8_t* behind) const {
  const size_t tiles_per_expert = (slice.strips + kTileStrips - 1) / kTileStrips;
  const size_t place = tile / tiles_per_expert;
  const Active& active = pass.active[pass.largest[place]];
  const PackedMatrix gate = matrix(active.expert, Part::gate, slice), up = matrix(active.expert, Part::up, slice);
  const size_t first = slice.first_strip + tile % tiles_per_expert * kTileStrips, group = first / kTileStrips;
  const size_t last = std::min(slice.first_strip + slice.strips, first + kTileStrips);
  const bool same_expert = last < slice.first_strip + slice.strips || place + 1 == pass.largest.size();
  const size_t next_expert = pass.active[pass.largest[same_expert ? place : place + 1]].expert;
  const uint8_t* next_gate =
      behind ? behind : matrix(next_expert, Part::gate, slice).strip(same_expert ? last : slice.first_strip);

  // What the first tile of the expert that follows would wait for: each tile before it fetches some rows.
  const Active& follower = pass.active[pass.largest[(place + 1) % pass.largest.size()]];
  const size_t soon_all = active.pairs < kPairTokens ? 0 : std::min<size_t>(kTokenBlock, follower.pairs);
  const size_t turn = tile % tiles_per_expert;
  const size_t soon_first = soon_all * turn / tiles_per_expert;
  const size_t soon_rows = soon_all * (turn + 1) / tiles_per_expert - soon_first;
  const void* soon[kTokenBlock];
  for (size_t i = 0; i < soon_rows; ++i)
    soon[i] = pass.gate_acts + pass.row(follower.first_pair + soon_first + i) * pass.gate_row_nbytes;

  alignas(64) float g[kTokenBlock * kGroup], u[kTokenBlock * kGroup], h[kTokenBlock * kGroup];
  const void* gate_rows[kTokenBlock];
  const void* up_rows[kTokenBlock];
  for (size_t p0 = 0; p0 < active.pairs; p0 += kTokenBlock) {
    const size_t n = std::min<size_t>(kTokenBlock, active.pairs - p0);
    for (size_t i = 0; i < n; ++i) {
      const size_t row = pass.row(active.first_pair + p0 + i);
      gate_rows[i] = pass.gate_acts + row * pass.gate_row_nbytes;
      up_rows[i] = pass.up_acts + row * pass.up_row_nbytes;
    }
    if (n >= kPairTokens && last - first == kTileStrips) {
      const uint8_t* next = p0 + n == active.pairs ? next_gate : gate.strip(first);
      const StripTask gate_task = {gate.strip(first),
                                   gate.strip(first + 1),
                                   gate_.layout.steps,
                                   up.strip(first),
                                   up.strip(first + 1),
                                   gate_.layout.scaling,
                                   soon,
                                   p0 == 0 ? soon_rows : 0,
                                   pass.gate_row_nbytes};
      const StripTask up_task = {up.strip(first),          up.strip(first + 1), up_.layout.steps, next,
                                 next + gate.strip_stride, up_.layout.scaling};
      gate_.kernel()(&gate_task, gate_rows, n, g, kGroup);
      up_.kernel()(&up_task, up_rows, n, u, kGroup);
    } else {
      // Rows beyond the last have zero weights, but a missing second strip leaves its half unwritten.
      if (last - first < kTileStrips) {
        std::fill_n(g, n * kGroup, 0.0f);
        std::fill_n(u, n * kGroup, 0.0f);
      }
      for (size_t s = first; s < last; ++s) {
        const size_t at = (s - first) * kStripRows;
        const StripTask gate_task = {gate.strip(s), nullptr, gate_.layout.steps,
                                     up.strip(s),   nullptr, gate_.layout.scaling};
        const StripTask up_task = {up.strip(s),      nullptr,
                                   up_.layout.steps, s + 1 < last ? gate.strip(s + 1) : next_gate,
                                   nullptr,          up_.layout.scaling};
        gate_.kernel()(&gate_task, gate_rows, n, g + at, kGroup);
        up_.kernel()(&up_task, up_rows, n, u + at, kGroup);
      }
    }
    scale(g, n * kGroup, gate_.factors[active.expert]);
    scale(u, n * kGroup, up_.factors[active.expert]);
    if (!gate_.bias.empty()) {
      const float *gate_bias = gate_.bias_of(active.expert, group * kGroup),
                  *up_bias = up_.bias_of(active.expert, group * kGroup);
      for (size_t i = 0; i < n; ++i)
        for (size_t r = 0; r < kGroup; ++r) {
          g[i * kGroup + r] += gate_bias[r];
          u[i * kGroup + r] += up_bias[r];
        }
    }
    vectors_->gate[activation_](g, u, n * kGroup, limit_, h);
    for (size_t i = 0; i < n; ++i) {
      prepare_group(*down_.kernels, down_.form, h + i * kGroup, group,
                    pass.down_acts + (active.first_pair + p0 + i) * pass.down_row_nbytes);
    }
  }
}

// Some strips of output rows for all pairs, expert after expert: a token's experts are added in the order of their
// numbers, whoever else is in the batch. sums: [tokens, strips * 16].
void Experts::down_tile(const Pass& pass, const Slice& slice, size_t first, size_t strips, float* sums,
                        const uint8_t* behind) const {
  const RoutedTokens& routed = pass.routed;
  const size_t width = strips * kStripRows;
  std::fill_n(sums, routed.tokens * width, 0.0f);
  for (size_t a = 0; a < pass.active.size(); ++a) {
    const bool last = a + 1 == pass.active.size();
    const PackedMatrix down = matrix(pass.active[a].expert, Part::down, slice);
    const PackedMatrix after = matrix(pass.active[last ? 0 : a + 1].expert, Part::down, slice);
    const uint8_t* next = last && behind ? behind : after.strip(first + (last ? strips : 0));
    const Active& active = pass.active[a];
    for (size_t p0 = 0; p0 < active.pairs; p0 += kTokenBlock) {
      const size_t n = std::min<size_t>(kTokenBlock, active.pairs - p0);
      const bool more = p0 + n < active.pairs;
      const Active block = {active.expert, active.first_pair + p0, n};
      const Active follower =
          more ? Active{active.expert, block.first_pair + n, active.pairs - p0 - n} : pass.active[last ? 0 : a + 1];
      down_block(pass, down, block, follower, first, strips, more ? down.strip(first) : next, sums);
    }
  }
  const size_t row = first * kStripRows, valid = std::min<size_t>(width, hidden_ - row);
  const bool accumulate = routed.accumulate;
  for (size_t t = 0; t < routed.tokens; ++t) {
    const float* sum = sums + t * width;
    float* y = routed.y + t * hidden_ + row;
    if (accumulate)
      std::transform(sum, sum + valid, y, y, std::plus<>());
    else
      std::copy_n(sum, valid, y);
  }
}

// The same for some pairs of one expert. next: what is read afterwards, for the follower's pairs.
void Experts::down_block(const Pass& pass, const PackedMatrix& down, const Active& block, const Active& follower,
                         size_t first, size_t strips, const uint8_t* next, float* sums) const {
  const void* rows[kTokenBlock];
  const void* soon[kTokenBlock];
  const size_t soon_all = block.pairs < kPairTokens ? 0 : std::min<size_t>(kTokenBlock, follower.pairs);
  for (size_t i = 0; i < soon_all; ++i)
    soon[i] = pass.down_acts + (follower.first_pair + i) * pass.down_row_nbytes;
  alignas(64) float out[kTokenBlock * 2 * kStripRows];
  for (size_t i = 0; i < block.pairs; ++i)
    rows[i] = pass.down_acts + (block.first_pair + i) * pass.down_row_nbytes;
  for (size_t s = 0; s < strips;) {
    const size_t count = block.pairs >= kPairTokens && s + 1 < strips ? 2 : 1, width = count * kStripRows;
    const uint8_t* then = s + count < strips ? down.strip(first + s + count) : next;
    const size_t soon_first = soon_all * s / strips, soon_last = soon_all * (s + count) / strips;
    const StripTask task = {down.strip(first + s),    count == 2 ? down.strip(first + s + 1) : nullptr,
                            down_.layout.steps,       then,
                            then + down.strip_stride, down_.layout.scaling,
                            soon + soon_first,        soon_last - soon_first,
                            pass.down_row_nbytes};
    down_.kernel()(&task, rows, block.pairs, out, width);
    scale(out, block.pairs * width, down_.factors[block.expert]);
    if (!down_.bias.empty()) {
      const float* bias = down_.bias_of(block.expert, (first + s) * kStripRows);
      for (size_t i = 0; i < block.pairs; ++i)
        std::transform(bias, bias + width, out + i * width, out + i * width, std::plus<>());
    }
    vectors_->add_weighted(out, width, block.pairs, &pass.pair_weight[block.first_pair],
                           &pass.pair_token[block.first_pair], sums + s * kStripRows, strips * kStripRows);
    s += count;
  }
}

} // namespace greenroom
