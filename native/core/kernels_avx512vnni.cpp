// AVX-512 F, BW, VL, DQ and VNNI. Only plain C headers: nothing compiled here may be shared with baseline files.
#include "e4m3_strips_512.h"
#include "exponential_avx512.h"
#include "integer_codes_512.h"

namespace greenroom {
namespace {

// Every strip starts a new stream that the hardware prefetcher has to learn; 8 KB ahead hides that (measured: 0.72 of
// the read bandwidth without, 0.85 with).
constexpr size_t kAhead = 8192;

static inline int32_t word(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return value;
}

// Which part of the next two strips one pass over the present two fetches: the memory then works all the time, not only
// during the first pass.
struct Share {
  size_t pass, passes;
};

// Fetches, at byte `at` of this strip, kBytes that come later: kAhead bytes on for a single strip, this pass's share of
// the same step of the next strip for one of two.
template <size_t kBytes, int kStrips>
static inline void prefetch(const StripTask* task, int strip, size_t at, size_t total, size_t ahead, Share share) {
  constexpr size_t kLines = (kBytes + 63) / 64;
  if (kStrips == 1) {
    const uint8_t* p = at + ahead < total ? task->strip + at + ahead : task->next + (at + ahead - total);
    GREENROOM_UNROLL
    for (size_t line = 0; line < kLines; ++line)
      touch(p + 64 * line);
  } else if (task->next) {
    const uint8_t* p = (strip ? task->next_second : task->next) + at;
    const size_t first = share.pass * kLines / share.passes, last = (share.pass + 1) * kLines / share.passes;
    for (size_t line = first; line < last; ++line)
      touch(p + 64 * line);
  }
}

template <class Code, int kTokens, int kStrips>
void block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  constexpr int kParts = Code::kParts;
  const size_t step_nbytes = Code::step_nbytes(task->scaling), groups = Code::groups(task->scaling);
  const size_t turn = step_nbytes / groups; // what one group's turn fetches
  const size_t total = task->steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  __m512 acc[kTokens][kStrips];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      acc[t][i] = _mm512_setzero_ps();
  }
  for (size_t s = 0; s < task->steps; ++s) {
    typename Code::Head head[kStrips];
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      head[i] = Code::head((i ? task->second : task->strip) + s * step_nbytes, task->scaling);
    for (size_t g = 0; g < groups; ++g) {
      __m512i w[kStrips][8];
      __m512 scale[kStrips][kParts], min[kStrips][kParts];
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i) {
        const uint8_t* step = (i ? task->second : task->strip) + s * step_nbytes;
        prefetch<Code::kTurnBytes, kStrips>(task, i, s * step_nbytes + g * turn, total, ahead, share);
        Code::unpack(step, g, w[i]);
        Code::scales(head[i], step, g, scale[i], min[i]);
      }
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + s * groups + g;
        // The halves of a group are chains of their own where they have scales of their own, and for a single strip:
        // eight dependent instructions would fill the scheduler with waiters.
        constexpr int kChains = kStrips == 1 ? 2 : kParts;
        __m512i sum[kStrips][kChains];
        GREENROOM_UNROLL
        for (int i = 0; i < kStrips; ++i) {
          sum[i][0] = Code::start(a, 0);
          if (kChains == 2)
            sum[i][kChains - 1] = kParts == 2 ? Code::start(a, 1) : _mm512_setzero_si512();
        }
        GREENROOM_UNROLL
        for (int j = 0; j < 8; ++j) {
          const __m512i four = _mm512_set1_epi32(word(a->q + 4 * j));
          GREENROOM_UNROLL
          for (int i = 0; i < kStrips; ++i)
            sum[i][j / 4 * (kChains - 1)] = _mm512_dpbusd_epi32(sum[i][j / 4 * (kChains - 1)], w[i][j], four);
        }
        const __m512 x_scale = _mm512_set1_ps(a->scale);
        GREENROOM_UNROLL
        for (int i = 0; i < kStrips; ++i) {
          if (kChains > kParts)
            sum[i][0] = _mm512_add_epi32(sum[i][0], sum[i][kChains - 1]);
          GREENROOM_UNROLL
          for (int part = 0; part < kParts; ++part)
            acc[t][i] =
                _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][part]), _mm512_mul_ps(scale[i][part], x_scale), acc[t][i]);
          if (Code::kHasMin) {
            GREENROOM_UNROLL
            for (int part = 0; part < kParts; ++part)
              acc[t][i] = _mm512_fmadd_ps(min[i][part], min_factor<Code>(a, part), acc[t][i]);
          }
        }
      }
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, acc[t][i]);
  }
}

// The weights of one column as f32.
template <Kind kKind> static inline __m512 float_weights(const uint8_t* strip, size_t column) {
  if (kKind == kF32)
    return _mm512_loadu_ps(strip + 64 * column);
  if (kKind == kF16)
    return half_scales(strip + 32 * column);
  const __m512i pair = _mm512_loadu_si512(strip + 64 * (column / 2));
  if (column % 2 == 0)
    return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
  return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Four columns from c on, or the last few: one chain of additions per column modulo four.
template <Kind kKind, int kTokens, int kStrips, bool kLast>
static inline void float_turn(const StripTask* task, size_t c, size_t columns, const void* const* x,
                              __m512 (&acc)[kTokens][kStrips][4]) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  GREENROOM_UNROLL
  for (int k = 0; k < (kLast ? 3 : 4); ++k) {
    if (kLast && c + k >= columns)
      continue;
    __m512 w[kStrips];
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      w[i] = float_weights<kKind>((i ? task->second : task->strip) + c / kColumns * kStepBytes, static_cast<size_t>(k));
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m512 value = _mm512_set1_ps(static_cast<const float*>(x[t])[c + k]);
      GREENROOM_UNROLL
      for (int i = 0; i < kStrips; ++i)
        acc[t][i][k] = _mm512_fmadd_ps(w[i], value, acc[t][i][k]);
    }
  }
}

template <Kind kKind, int kTokens, int kStrips>
void float_block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  const size_t total = task->steps * kStepBytes, ahead = total < kAhead ? total : kAhead;
  const size_t columns = task->steps * kColumns;
  __m512 acc[kTokens][kStrips][4];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      GREENROOM_UNROLL
      for (int k = 0; k < 4; ++k)
        acc[t][i][k] = _mm512_setzero_ps();
    }
  }
  size_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      prefetch<4 / kColumns * kStepBytes, kStrips>(task, i, c / kColumns * kStepBytes, total, ahead, share);
    float_turn<kKind, kTokens, kStrips, false>(task, c, columns, x, acc);
  }
  float_turn<kKind, kTokens, kStrips, true>(task, c, columns, x, acc);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < kStrips; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, _mm512_add_ps(_mm512_add_ps(acc[t][i][0], acc[t][i][1]),
                                                                    _mm512_add_ps(acc[t][i][2], acc[t][i][3])));
  }
}

template <class Code, int kTokens>
void block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  if (task->second)
    block<Code, kTokens, 2>(task, share, x, out, out_stride);
  else
    block<Code, kTokens, 1>(task, share, x, out, out_stride);
}

template <Kind kKind, int kTokens>
void float_block(const StripTask* task, Share share, const void* const* x, float* out, size_t out_stride) {
  if (task->second)
    float_block<kKind, kTokens, 2>(task, share, x, out, out_stride);
  else
    float_block<kKind, kTokens, 1>(task, share, x, out, out_stride);
}

// Cuts any number of tokens into blocks whose sums fit the registers beside the weights.
template <class Code>
void strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  Share share = {0, (tokens + 3) / 4};
  for (; tokens >= 4; tokens -= 4, x += 4, out += 4 * out_stride, ++share.pass)
    block<Code, 4>(task, share, x, out, out_stride);
  if (tokens == 3)
    block<Code, 3>(task, share, x, out, out_stride);
  else if (tokens == 2)
    block<Code, 2>(task, share, x, out, out_stride);
  else if (tokens == 1)
    block<Code, 1>(task, share, x, out, out_stride);
}

template <Kind kKind>
void float_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  Share share = {0, (tokens + 2) / 3};
  for (; tokens >= 3; tokens -= 3, x += 3, out += 3 * out_stride, ++share.pass)
    float_block<kKind, 3>(task, share, x, out, out_stride);
  if (tokens == 2)
    float_block<kKind, 2>(task, share, x, out, out_stride);
  else if (tokens == 1)
    float_block<kKind, 1>(task, share, x, out, out_stride);
}

struct E4m3Floats {
  typedef float Activation;
  static constexpr int kMost = 3;

  // Two columns (pair) of the four that a load holds, times two activations.
  static inline __m512 add(__m512 acc, __m512i pair, const float* x) {
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
    const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
    return _mm512_fmadd_ps(odd, _mm512_set1_ps(x[1]), _mm512_fmadd_ps(even, _mm512_set1_ps(x[0]), acc));
  }
};

void e4m3_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  e4m3_tokens<E4m3Floats>(task, x, tokens, out, out_stride);
}

} // namespace

namespace avx512 {

void quantise(const float* x, size_t groups, ActivationGroup* out) {
  const uint32_t nan_bits = 0x7fc00000u;
  float nan;
  memcpy(&nan, &nan_bits, sizeof nan);
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  for (size_t g = 0; g < groups; ++g, x += kGroup) {
    ActivationGroup* a = out + g;
    const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
    // Compared as bits: a NaN is larger than infinity, infinity than any number.
    const int32_t largest =
        _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(first), magnitude_bits),
                                                 _mm512_and_si512(_mm512_castps_si512(second), magnitude_bits)));
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    const bool finite = largest < 0x7f800000, usable = finite && magnitude >= 1e-30f;
    a->scale = usable ? magnitude / 127.0f : finite ? 0.0f : nan;
    const __m512 inverse = _mm512_set1_ps(usable ? 127.0f / magnitude : 0.0f);
    const __mmask16 keep = usable ? 0xffff : 0; // NaN * 0 would still be NaN
    const __m512i q0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(first, inverse));
    const __m512i q1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(second, inverse));
    _mm_store_si128(reinterpret_cast<__m128i*>(a->q), _mm512_cvtepi32_epi8(q0));
    _mm_store_si128(reinterpret_cast<__m128i*>(a->q + 16), _mm512_cvtepi32_epi8(q1));
    const int32_t low = _mm512_reduce_add_epi32(q0), high = _mm512_reduce_add_epi32(q1);
    a->sum_x8 = -8 * (low + high);
    a->low_x32 = -32 * low;
    a->high_x32 = -32 * high;
    a->sum_x128 = -128 * (low + high);
    a->scaled_sum = a->scale * static_cast<float>(low + high);
    a->scaled_low = a->scale * static_cast<float>(low);
    a->scaled_high = a->scale * static_cast<float>(high);
  }
}

// Nearest even; NaN keeps its sign and becomes quiet.
void round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
  }
}

} // namespace avx512

uint64_t avx512::read(const uint8_t* p, size_t n) {
  __m512i sum[8];
  GREENROOM_UNROLL
  for (int k = 0; k < 8; ++k)
    sum[k] = _mm512_setzero_si512();
  for (size_t at = 0; at < n; at += 512) {
    GREENROOM_UNROLL
    for (int k = 0; k < 8; ++k)
      sum[k] = _mm512_add_epi64(sum[k], _mm512_load_si512(p + at + 64 * k));
  }
  GREENROOM_UNROLL
  for (int k = 1; k < 8; ++k)
    sum[0] = _mm512_add_epi64(sum[0], sum[k]);
  uint64_t lanes[8], total = 0;
  memcpy(lanes, &sum[0], sizeof lanes);
  for (int k = 0; k < 8; ++k)
    total += lanes[k];
  return total;
}

namespace {

constexpr KernelTable table() {
  KernelTable t = {"avx512vnni", {}, kActF32, avx512::quantise, avx512::round_bf16, avx512::read};
  t.strip[kInt4F16] = strip<Int4<false, false>>;
  t.strip[kInt4F16Min] = strip<Int4<true, false>>;
  t.strip[kInt4K] = strip<Int4K<false>>;
  t.strip[kInt4Nl] = strip<Int4Table<false>>;
  t.strip[kInt4Mx] = strip<Int4Table<true>>;
  t.strip[kInt4Nv] = strip<Int4Nv>;
  t.strip[kInt4Xs] = strip<Int4Xs>;
  t.strip[kInt5F16] = strip<Int4<false, true>>;
  t.strip[kInt5F16Min] = strip<Int4<true, true>>;
  t.strip[kInt5K] = strip<Int4K<true>>;
  t.strip[kInt8F16] = strip<Int8>;
  t.strip[kInt2K] = strip<Int2K>;
  t.strip[kInt3K] = strip<Int3K>;
  t.strip[kInt6K] = strip<Int6K>;
  t.strip[kInt4Block] = strip<Block<true, false, false>>;
  t.strip[kInt4BlockZero] = strip<Block<true, true, false>>;
  t.strip[kInt8Block] = strip<Block<false, false, false>>;
  t.strip[kInt8BlockZero] = strip<Block<false, true, false>>;
  t.strip[kInt4Halves] = strip<Block<true, false, true>>;
  t.strip[kInt4HalvesZero] = strip<Block<true, true, true>>;
  t.strip[kInt8Halves] = strip<Block<false, false, true>>;
  t.strip[kInt8HalvesZero] = strip<Block<false, true, true>>;
  t.strip[kE4m3] = e4m3_strip;
  t.strip[kBf16] = float_strip<kBf16>;
  t.strip[kF16] = float_strip<kF16>;
  t.strip[kF32] = float_strip<kF32>;
  return t;
}

} // namespace

constinit const KernelTable kAvx512VnniKernels = table();

} // namespace greenroom
