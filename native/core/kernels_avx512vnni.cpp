// AVX-512 F, BW, VL, DQ and VNNI. Only plain C headers: nothing compiled here may be shared with baseline files.
#include "e4m3_strips_512.h"
#include "float_strips_512.h"
#include "integer_panels_512.h"

namespace greenroom {
namespace {

static inline int32_t word(const int8_t* q) {
  int32_t value;
  memcpy(&value, q, sizeof value);
  return value;
}

// acc + sum * weight scale * activation scale (+ minimum * what it is multiplied by): the same steps everywhere.
static inline __m512 add_scaled(__m512 acc, __m512i sum, __m512 scale, __m512 x_scale) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, x_scale), acc);
}

template <class Code> struct IntegerStream {
  // Measured with one thread at 2048 x 768, share of the read bandwidth at 8, 4 and 2 KB: int8 84, 87 and 83 %, int4
  // 86, 79 and 69. (With AVX2 int8 wants 8 KB as well.)
  static constexpr size_t kFetched = Code::kBytes ? 4096 : kAhead;

  template <int kTokens> static void run(const StripTask* task, const void* const* x, float* out, size_t out_stride);
};

template <class Code>
template <int kTokens>
void IntegerStream<Code>::run(const StripTask* task, const void* const* x, float* out, size_t out_stride) {
  constexpr int kParts = Code::kParts;
  const size_t step_nbytes = Code::step_nbytes(task->scaling), groups = Code::groups(task->scaling);
  const size_t turn = step_nbytes / groups; // what one group's turn fetches
  const size_t total = task->steps * step_nbytes, ahead = total < kFetched ? total : kFetched;
  __m512 acc[kTokens];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    acc[t] = _mm512_setzero_ps();
  for (size_t s = 0; s < task->steps; ++s) {
    const uint8_t* step = task->strip + s * step_nbytes;
    const typename Code::Head head = Code::head(step, task->scaling);
    for (size_t g = 0; g < groups; ++g) {
      __m512i w[8];
      __m512 scale[kParts], min[kParts];
      prefetch<Code::kTurnBytes>(task->strip, task->next, s * step_nbytes + g * turn, total, ahead);
      Code::unpack(step, g, w);
      Code::scales(head, step, g, scale, min);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const ActivationGroup* a = static_cast<const ActivationGroup*>(x[t]) + s * groups + g;
        // Two chains: eight dependent instructions would fill the scheduler with waiters.
        __m512i sum[2] = {Code::start(a, 0), kParts == 2 ? Code::start(a, 1) : _mm512_setzero_si512()};
        GREENROOM_UNROLL
        for (int j = 0; j < 8; ++j)
          sum[j / 4] = _mm512_dpbusd_epi32(sum[j / 4], w[j], _mm512_set1_epi32(word(a->q + 4 * j)));
        const __m512 x_scale = _mm512_set1_ps(a->scale);
        if (kParts == 1) {
          acc[t] = add_scaled(acc[t], _mm512_add_epi32(sum[0], sum[1]), scale[0], x_scale);
        } else {
          acc[t] = add_scaled(acc[t], sum[0], scale[0], x_scale);
          acc[t] = add_scaled(acc[t], sum[1], scale[kParts - 1], x_scale);
        }
        if (Code::kHasMin) {
          GREENROOM_UNROLL
          for (int part = 0; part < kParts; ++part)
            acc[t] = _mm512_fmadd_ps(min[part], min_factor<Code>(a, part), acc[t]);
        }
      }
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    _mm512_storeu_ps(out + t * out_stride, acc[t]);
}

// Products of a panel with a few tokens, added to out.
template <class Code, int kTokens>
static inline void multiply(const Panel<Code>* panel, typename Panel<Code>::Filler* fillers, size_t groups,
                            const Share& share, const void* const* x, size_t first_group, float* out,
                            size_t out_stride) {
  constexpr int kParts = Code::kParts;
  __m512 acc[kTokens][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < 2; ++i)
      acc[t][i] = first_group ? _mm512_loadu_ps(out + t * out_stride + 16 * i) : _mm512_setzero_ps();
  }
  const ActivationGroup* a[kTokens];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    a[t] = static_cast<const ActivationGroup*>(x[t]) + first_group;
  for (size_t g = 0; g < groups; ++g) {
    __m512i sum[kTokens][2];
    share.fetch(0, g);
    share.fetch(1, g);
    if (!Panel<Code>::kAtOnce && fillers && g + 1 < groups) {
      fillers[0].fill(g + 1);
      fillers[1].fill(g + 1);
    }
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t)
        sum[t][0] = sum[t][1] = Code::start(a[t] + g, part);
      GREENROOM_UNROLL
      for (int j = 8 / kParts * part; j < 8 / kParts * (part + 1); ++j) {
        __m512i first = weights(panel, g, j, 0), second = weights(panel, g, j, 1);
        hold(first);
        hold(second);
        GREENROOM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          const __m512i four = _mm512_set1_epi32(word(a[t][g].q + 4 * j));
          sum[t][0] = _mm512_dpbusd_epi32(sum[t][0], first, four);
          sum[t][1] = _mm512_dpbusd_epi32(sum[t][1], second, four);
        }
      }
      const __m512 scale[2] = {_mm512_load_ps(panel->scale[g][part][0]), _mm512_load_ps(panel->scale[g][part][1])};
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m512 x_scale = _mm512_set1_ps(a[t][g].scale);
        acc[t][0] = add_scaled(acc[t][0], sum[t][0], scale[0], x_scale);
        acc[t][1] = add_scaled(acc[t][1], sum[t][1], scale[1], x_scale);
      }
    }
    GREENROOM_UNROLL
    for (int part = 0; part < (Code::kHasMin ? kParts : 0); ++part) {
      const __m512 min[2] = {_mm512_load_ps(panel->min[g][part][0]), _mm512_load_ps(panel->min[g][part][1])};
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m512 x_sum = min_factor<Code>(a[t] + g, part);
        acc[t][0] = _mm512_fmadd_ps(min[0], x_sum, acc[t][0]);
        acc[t][1] = _mm512_fmadd_ps(min[1], x_sum, acc[t][1]);
      }
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int i = 0; i < 2; ++i)
      _mm512_storeu_ps(out + t * out_stride + 16 * i, acc[t][i]);
  }
}

struct Vnni {
  template <class Code>
  static void run(const Panel<Code>* panel, typename Panel<Code>::Filler* fillers, size_t groups, const Share& share,
                  const void* const* x, size_t tokens, size_t first_group, float* out, size_t out_stride) {
    if (tokens == 5)
      multiply<Code, 5>(panel, fillers, groups, share, x, first_group, out, out_stride);
    else if (tokens == 4)
      multiply<Code, 4>(panel, fillers, groups, share, x, first_group, out, out_stride);
    else if (tokens == 3)
      multiply<Code, 3>(panel, fillers, groups, share, x, first_group, out, out_stride);
    else if (tokens == 2)
      multiply<Code, 2>(panel, fillers, groups, share, x, first_group, out, out_stride);
    else
      multiply<Code, 1>(panel, fillers, groups, share, x, first_group, out, out_stride);
  }
};

// Units of one column.
template <Kind kKind> struct Floats {
  static constexpr size_t kUnits = kKind == kBf16 ? 2 : 1, kBytes = kKind == kF32 ? 64 : 32;

  static inline __m512i load(const uint8_t* strip, size_t unit) {
    if (kKind == kF32)
      return _mm512_loadu_si512(strip + 64 * unit);
    if (kKind == kF16)
      return _mm512_castps_si512(half_scales(strip + 32 * unit));
    const __m512i pair = _mm512_loadu_si512(strip + 64 * (unit / 2));
    return unit % 2 ? _mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))
                    : _mm512_slli_epi32(pair, 16);
  }
  static inline __m512i broadcast(const void* x, size_t unit) {
    return _mm512_castps_si512(_mm512_set1_ps(static_cast<const float*>(x)[unit]));
  }
  static inline __m512 add(__m512 sum, __m512i w, __m512i value) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(value), sum);
  }
};

template <class Code>
void strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  if (task->second)
    two_strips<Panel<Code>, Vnni>(task, x, tokens, out, out_stride);
  else
    one_strip<IntegerStream<Code>>(task, x, tokens, out, out_stride);
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
    const __m256i q = _mm256_set_m128i(_mm512_cvtepi32_epi8(q1), _mm512_cvtepi32_epi8(q0));
    _mm256_store_si256(reinterpret_cast<__m256i*>(a->q), q);
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
    const int32_t low = _mm256_extract_epi32(sums, 0), high = _mm256_extract_epi32(sums, 4);
    a->sum_x8 = -8 * (low + high);
    a->low_x32 = -32 * low;
    a->high_x32 = -32 * high;
    a->sum_x128 = -128 * (low + high);
    a->scaled_sum = a->scale * static_cast<float>(low + high);
    a->scaled_low = a->scale * static_cast<float>(low);
    a->halves[0] = static_cast<int16_t>(low);
    a->halves[1] = static_cast<int16_t>(high);
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
  t.strip[kBf16] = float_strip<Floats<kBf16>>;
  t.strip[kF16] = float_strip<Floats<kF16>>;
  t.strip[kF32] = float_strip<Floats<kF32>>;
  return t;
}

} // namespace

constinit const KernelTable kAvx512VnniKernels = table();

} // namespace greenroom
