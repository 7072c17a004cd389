// AMX: tiles of 16 rows of 64 bytes. Integer codes take them from kAmxTokens tokens on, bf16 always. Only plain C
// headers: nothing compiled here may be shared with baseline files.
#include "e4m3_strips_512.h"

namespace greenroom {
namespace {

// With fewer, most of a tile would be idle, and the sums, which are the same, come faster from the VNNI kernels.
constexpr size_t kAmxTokens = 5;
constexpr size_t kTileRows = 16;

// The compiler does not know that tile instructions read and write memory.
static inline void settle() {
#ifdef _MSC_VER
  _ReadWriteBarrier();
#else
  __asm__ volatile("" ::: "memory");
#endif
}

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Tokens in blocks of equal size, at most a tile each; the last block may lack a few.
struct Blocks {
  size_t count, rows;

  explicit Blocks(size_t tokens) : count((tokens + kTileRows - 1) / kTileRows), rows((tokens + count - 1) / count) {}
};

// Gives tiles `first` .. `last` their shape.
static inline void shape(TileConfig* config, int first, int last, size_t rows, size_t row_bytes) {
  for (int tile = first; tile <= last; ++tile) {
    config->rows[tile] = static_cast<uint8_t>(rows);
    config->row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
}

// Where a tile of activations can be loaded from: in place when the tokens of the block lie evenly, else from a copy,
// in which missing tokens are zero.
template <size_t kBytes> class TokenBlock {
public:
  TokenBlock(const void* const* x, size_t valid, size_t rows) : x_(x), valid_(valid), rows_(rows) {
    stride_ = valid > 1 ? at(1) - at(0) : 0;
    even_ = valid == rows;
    for (size_t t = 1; t < valid; ++t)
      even_ = even_ && at(t) - at(t - 1) == stride_;
    for (size_t t = valid; t < rows; ++t)
      memset(copy_ + t * kBytes, 0, kBytes);
  }
  // The first nbytes at `offset` of every token.
  const void* tile(size_t offset, size_t nbytes = kBytes) {
    if (even_)
      return at(0) + offset;
    for (size_t t = 0; t < valid_; ++t)
      memcpy(copy_ + t * kBytes, at(t) + offset, nbytes);
    return copy_;
  }
  size_t stride() const { return even_ ? static_cast<size_t>(stride_) : kBytes; }

private:
  const uint8_t* at(size_t t) const { return static_cast<const uint8_t*>(x_[t]); }

  const void* const* x_;
  size_t valid_, rows_;
  ptrdiff_t stride_;
  bool even_;
  alignas(64) uint8_t copy_[kTileRows * kBytes];
};

static inline void fetch(const uint8_t* next, size_t at, size_t nbytes) {
  for (size_t line = 0; line < nbytes; line += 64)
    touch(next + at + line);
}

// Tiles 0, 1: sums of two strips; 2: activations; 3, 4: the weights of half a group each of strip 0, 5, 6 of strip 1.
constexpr size_t kHalfRows = 4; // of 4 columns each: half a group
constexpr size_t kPanel = 8 * 64;

// Adds one part's sums, int32 [rows][16] per strip, to out; the same steps as in kernels_avx512vnni.cpp.
template <class Code, int kStrips>
static inline void add_sums(const int32_t (*sums)[kTileRows * 16], const void* const* x, size_t tokens, size_t group,
                            int part, const __m512 (*scale)[Code::kParts], const __m512 (*min)[Code::kParts],
                            float* out, size_t out_stride) {
  for (size_t t = 0; t < tokens; ++t) {
    const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + group;
    const __m512i start = Code::start(a, part);
    const __m512 x_scale = _mm512_set1_ps(a->scale);
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      const __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(sums[i] + 16 * t), start);
      __m512 acc = _mm512_loadu_ps(out + t * out_stride + 16 * i);
      acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale[i][part], x_scale), acc);
      if (Code::kHasMin && part == Code::kParts - 1) {
        GREENROOM_UNROLL
        for (int p = 0; p < Code::kParts; ++p)
          acc = _mm512_fmadd_ps(min[i][p], min_factor<Code>(a, p), acc);
      }
      _mm512_storeu_ps(out + t * out_stride + 16 * i, acc);
    }
  }
}

template <class Code, int kStrips>
void integer_block(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  const size_t step_nbytes = Code::step_nbytes(task->scaling), groups = Code::groups(task->scaling);
  const size_t turn = step_nbytes / groups;
  constexpr int kParts = Code::kParts;
  const Blocks blocks(tokens);
  TileConfig config = {};
  config.palette = 1;
  shape(&config, 0, 1, blocks.rows, 64);
  shape(&config, 2, 2, blocks.rows, 4 * 8 / kParts);
  shape(&config, 3, 6, 8 / kParts, 64);
  settle();
  _tile_loadconfig(&config);
  settle();

  for (size_t t = 0; t < tokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, _mm512_setzero_ps());
  }
  alignas(64) uint8_t panel[2][kPanel];
  alignas(64) int32_t sums[2][kTileRows * 16];
  for (size_t group = 0; group < task->steps * groups; ++group) {
    const size_t s = group / groups, g = group % groups;
    __m512 scale[kStrips][kParts], min[kStrips][kParts];
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      const uint8_t* step = (i ? task->second : task->strip) + s * step_nbytes;
      fetch(i ? task->next_second : task->next, s * step_nbytes + g * turn, turn);
      __m512i w[8];
      Code::unpack(step, g, w);
      Code::scales(Code::head(step, task->scaling), step, g, scale[i], min[i]);
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        _mm512_store_si512(panel[i] + 64 * j, w[j]);
    }
    settle();
    _tile_loadd(3, panel[0], 64);
    if (kParts == 2)
      _tile_loadd(4, panel[0] + 64 * kHalfRows, 64);
    if (kStrips == 2) {
      _tile_loadd(5, panel[1], 64);
      if (kParts == 2)
        _tile_loadd(6, panel[1] + 64 * kHalfRows, 64);
    }
    for (size_t t0 = 0; t0 < tokens; t0 += blocks.rows) {
      const size_t valid = tokens - t0 < blocks.rows ? tokens - t0 : blocks.rows;
      TokenBlock<32> rows(x + t0, valid, blocks.rows);
      const uint8_t* q = static_cast<const uint8_t*>(rows.tile(group * sizeof(ActivationGroup)));
      settle();
      GREENROOM_UNROLL
      for (int part = 0; part < kParts; ++part) {
        _tile_loadd(2, q + 16 * part, rows.stride());
        _tile_zero(0);
        if (part == 0)
          _tile_dpbsud(0, 2, 3);
        else
          _tile_dpbsud(0, 2, 4);
        _tile_stored(0, sums[0], 64);
        if (kStrips == 2) {
          _tile_zero(1);
          if (part == 0)
            _tile_dpbsud(1, 2, 5);
          else
            _tile_dpbsud(1, 2, 6);
          _tile_stored(1, sums[1], 64);
        }
        settle();
        add_sums<Code, kStrips>(sums, x + t0, valid, group, part, scale, min, out + t0 * out_stride, out_stride);
        settle();
      }
    }
  }
  _tile_release();
}

template <class Code, Kind kKind>
void integer_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (tokens < kAmxTokens)
    kAvx512VnniKernels.strip[kKind](task, x, tokens, out, out_stride);
  else if (task->second)
    integer_block<Code, 2>(task, x, tokens, out, out_stride);
  else
    integer_block<Code, 1>(task, x, tokens, out, out_stride);
}

// Sixteen steps of bf16 pairs are a tile of weights as they lie. Tiles 0, 1: sums of two strips; 2: activations; 3, 4:
// weights. A product's rounding differs from vdpbf16ps, so even one token goes through tiles: its bits must not depend
// on how many others come along.
template <int kStrips>
void bf16_block(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  const Blocks blocks(tokens);
  TileConfig config = {};
  config.palette = 1;
  shape(&config, 0, 2, blocks.rows, 64);
  shape(&config, 3, 4, kTileRows, 64);
  settle();
  _tile_loadconfig(&config);

  alignas(64) uint8_t rest[2][kTileRows * 64];
  alignas(64) float sums[2][kTileRows * 16];
  for (size_t t0 = 0; t0 < tokens; t0 += blocks.rows) {
    const size_t valid = tokens - t0 < blocks.rows ? tokens - t0 : blocks.rows;
    TokenBlock<64> rows(x + t0, valid, blocks.rows);
    _tile_zero(0);
    if (kStrips == 2)
      _tile_zero(1);
    for (size_t step = 0; step < task->steps; step += kTileRows) {
      const uint8_t* weights[2] = {task->strip + 64 * step, kStrips == 2 ? task->second + 64 * step : nullptr};
      const size_t left = task->steps - step;
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        if (t0 == 0)
          fetch(i ? task->next_second : task->next, 64 * step, 64 * (left < kTileRows ? left : kTileRows));
        if (left < kTileRows) {
          memcpy(rest[i], weights[i], 64 * left);
          memset(rest[i] + 64 * left, 0, 64 * (kTileRows - left));
          weights[i] = rest[i];
        }
      }
      const void* pairs = rows.tile(4 * step);
      settle();
      _tile_loadd(2, pairs, rows.stride());
      _tile_loadd(3, weights[0], 64);
      _tile_dpbf16ps(0, 2, 3);
      if (kStrips == 2) {
        _tile_loadd(4, weights[1], 64);
        _tile_dpbf16ps(1, 2, 4);
      }
      settle();
    }
    _tile_stored(0, sums[0], 64);
    if (kStrips == 2)
      _tile_stored(1, sums[1], 64);
    settle();
    for (size_t t = 0; t < valid; ++t) {
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i)
        memcpy(out + (t0 + t) * out_stride + 16 * i, sums[i] + 16 * t, 64);
    }
  }
  _tile_release();
}

void bf16_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (task->second)
    bf16_block<2>(task, x, tokens, out, out_stride);
  else
    bf16_block<1>(task, x, tokens, out, out_stride);
}

// e4m3 becomes pairs of bf16 that are a tile of weights. Every step has scales of its own, so its sums are taken out
// and added to the whole. Tiles as in bf16_block.
template <int kStrips>
void e4m3_block(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  const size_t columns = task->scaling.columns;
  const size_t step_nbytes = kStripRows * (columns + scale_nbytes(task->scaling.type));
  const size_t tile_rows = columns < 2 * kTileRows ? columns / 2 : kTileRows, tiles = columns / 2 / tile_rows;
  const Blocks blocks(tokens);
  TileConfig config = {};
  config.palette = 1;
  shape(&config, 0, 1, blocks.rows, 64);
  shape(&config, 2, 2, blocks.rows, 4 * tile_rows);
  shape(&config, 3, 4, tile_rows, 64);
  settle();
  _tile_loadconfig(&config);
  settle();

  for (size_t t = 0; t < tokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, _mm512_setzero_ps());
  }
  alignas(64) uint8_t panel[2][64 * 64]; // pairs of at most 128 columns
  alignas(64) float sums[2][kTileRows * 16];
  for (size_t s = 0; s < task->steps; ++s) {
    __m512 scale[kStrips];
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      const uint8_t* step = (i ? task->second : task->strip) + s * step_nbytes;
      fetch(i ? task->next_second : task->next, s * step_nbytes, step_nbytes);
      for (size_t c = 0; c < columns; c += 4) {
        __m512i pairs[2];
        e4m3_pairs(step + kStripRows * c, pairs);
        _mm512_store_si512(panel[i] + 32 * c, pairs[0]);
        _mm512_store_si512(panel[i] + 32 * c + 64, pairs[1]);
      }
      scale[i] = typed_scales(task->scaling.type, step + kStripRows * columns);
    }
    for (size_t t0 = 0; t0 < tokens; t0 += blocks.rows) {
      const size_t valid = tokens - t0 < blocks.rows ? tokens - t0 : blocks.rows;
      TokenBlock<64> rows(x + t0, valid, blocks.rows);
      _tile_zero(0);
      if (kStrips == 2)
        _tile_zero(1);
      for (size_t tile = 0; tile < tiles; ++tile) {
        const void* pairs = rows.tile(2 * (s * columns + 2 * tile_rows * tile), 4 * tile_rows);
        settle();
        _tile_loadd(2, pairs, rows.stride());
        _tile_loadd(3, panel[0] + 64 * tile_rows * tile, 64);
        _tile_dpbf16ps(0, 2, 3);
        if (kStrips == 2) {
          _tile_loadd(4, panel[1] + 64 * tile_rows * tile, 64);
          _tile_dpbf16ps(1, 2, 4);
        }
        settle();
      }
      _tile_stored(0, sums[0], 64);
      if (kStrips == 2)
        _tile_stored(1, sums[1], 64);
      settle();
      for (size_t t = 0; t < valid; ++t) {
        GREENROOM_UNROLL
        for (int i = 0; i < kStrips; ++i) {
          float* y = out + (t0 + t) * out_stride + 16 * i;
          _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_load_ps(sums[i] + 16 * t), scale[i], _mm512_loadu_ps(y)));
        }
      }
    }
  }
  _tile_release();
}

void e4m3_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (task->second)
    e4m3_block<2>(task, x, tokens, out, out_stride);
  else
    e4m3_block<1>(task, x, tokens, out, out_stride);
}

constexpr KernelTable table() {
  KernelTable t = {"amx", {}, kActBf16, avx512::quantise, avx512::round_bf16, avx512::read};
  t.strip[kInt4F16] = integer_strip<Int4<false, false>, kInt4F16>;
  t.strip[kInt4F16Min] = integer_strip<Int4<true, false>, kInt4F16Min>;
  t.strip[kInt4K] = integer_strip<Int4K<false>, kInt4K>;
  t.strip[kInt4Nl] = integer_strip<Int4Table<false>, kInt4Nl>;
  t.strip[kInt4Mx] = integer_strip<Int4Table<true>, kInt4Mx>;
  t.strip[kInt4Nv] = integer_strip<Int4Nv, kInt4Nv>;
  t.strip[kInt4Xs] = integer_strip<Int4Xs, kInt4Xs>;
  t.strip[kInt5F16] = integer_strip<Int4<false, true>, kInt5F16>;
  t.strip[kInt5F16Min] = integer_strip<Int4<true, true>, kInt5F16Min>;
  t.strip[kInt5K] = integer_strip<Int4K<true>, kInt5K>;
  t.strip[kInt8F16] = integer_strip<Int8, kInt8F16>;
  t.strip[kInt2K] = integer_strip<Int2K, kInt2K>;
  t.strip[kInt3K] = integer_strip<Int3K, kInt3K>;
  t.strip[kInt6K] = integer_strip<Int6K, kInt6K>;
  t.strip[kInt4Block] = integer_strip<Block<true, false, false>, kInt4Block>;
  t.strip[kInt4BlockZero] = integer_strip<Block<true, true, false>, kInt4BlockZero>;
  t.strip[kInt8Block] = integer_strip<Block<false, false, false>, kInt8Block>;
  t.strip[kInt8BlockZero] = integer_strip<Block<false, true, false>, kInt8BlockZero>;
  t.strip[kInt4Halves] = integer_strip<Block<true, false, true>, kInt4Halves>;
  t.strip[kInt4HalvesZero] = integer_strip<Block<true, true, true>, kInt4HalvesZero>;
  t.strip[kInt8Halves] = integer_strip<Block<false, false, true>, kInt8Halves>;
  t.strip[kInt8HalvesZero] = integer_strip<Block<false, true, true>, kInt8HalvesZero>;
  t.strip[kE4m3] = e4m3_strip;
  t.strip[kBf16] = bf16_strip;
  return t;
}

} // namespace

constinit const KernelTable kAmxKernels = table();

} // namespace greenroom
