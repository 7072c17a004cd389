// AVX2, FMA and F16C. Only plain C headers: nothing compiled here may be shared with baseline files.
#include "exponential_avx2.h"
#include "integer_strips_256.h"

namespace greenroom {
namespace {

// The weights of one column for eight rows as f32; p points at the column's step.
template <Kind kKind> static inline __m256 float_weights(const uint8_t* p, size_t column, size_t half) {
  if (kKind == kF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 64 * column + 32 * half));
  if (kKind == kF16)
    return half_scales(p + 32 * column + 16 * half);
  const __m256i pair = load(p + 64 * (column / 2) + 32 * half);
  if (column % 2 == 0)
    return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// Four columns from c on, or the last few. Two chains per token and half, even and odd columns: with both halves,
// enough to keep two FMA units busy.
template <Kind kKind, int kTokens, bool kLast>
static inline void float_turn(const uint8_t* strip, size_t c, size_t columns, const void* const* x,
                              __m256 (&acc)[kTokens][2][2]) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  const uint8_t* p = strip + c / kColumns * kStepBytes;
  GREENROOM_UNROLL
  for (int k = 0; k < (kLast ? 3 : 4); ++k) {
    if (kLast && c + k >= columns)
      continue;
    const __m256 upper = float_weights<kKind>(p, static_cast<size_t>(k), 0);
    const __m256 lower = float_weights<kKind>(p, static_cast<size_t>(k), 1);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256 value = _mm256_set1_ps(static_cast<const float*>(x[t])[c + k]);
      acc[t][0][k % 2] = _mm256_fmadd_ps(upper, value, acc[t][0][k % 2]);
      acc[t][1][k % 2] = _mm256_fmadd_ps(lower, value, acc[t][1][k % 2]);
    }
  }
}

template <Kind kKind, int kTokens>
void float_block(const uint8_t* strip, size_t steps, const uint8_t* next, const void* const* x, float* out,
                 size_t out_stride) {
  constexpr size_t kColumns = kKind == kBf16 ? 2 : 1, kStepBytes = kKind == kF16 ? 32 : 64;
  const size_t total = steps * kStepBytes, ahead = total < kAhead ? total : kAhead, columns = steps * kColumns;
  __m256 acc[kTokens][2][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      GREENROOM_UNROLL
      for (int k = 0; k < 2; ++k)
        acc[t][h][k] = _mm256_setzero_ps();
    }
  }
  size_t c = 0;
  for (; c + 4 <= columns; c += 4) {
    prefetch<4 / kColumns * kStepBytes>(strip, next, c / kColumns * kStepBytes, total, ahead);
    float_turn<kKind, kTokens, false>(strip, c, columns, x, acc);
  }
  float_turn<kKind, kTokens, true>(strip, c, columns, x, acc);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    GREENROOM_UNROLL
    for (int h = 0; h < 2; ++h)
      _mm256_storeu_ps(out + t * out_stride + 8 * h, _mm256_add_ps(acc[t][h][0], acc[t][h][1]));
  }
}

template <Kind kKind>
void strip_float(const uint8_t* strip, size_t steps, Scaling, const uint8_t* next, const void* const* x, size_t tokens,
                 float* out, size_t out_stride) {
  for (; tokens >= 3; tokens -= 3, x += 3, out += 3 * out_stride)
    float_block<kKind, 3>(strip, steps, next, x, out, out_stride);
  if (tokens == 2)
    float_block<kKind, 2>(strip, steps, next, x, out, out_stride);
  else if (tokens == 1)
    float_block<kKind, 1>(strip, steps, next, x, out, out_stride);
}

// A load of eight rows of four columns of e4m3, in the order 0, 2, 1, 3, times 2^-8 as f32: rows 0 .. 3 of columns 0
// and 1 side by side, rows 4 .. 7 of them, the same of columns 2 and 3. Moved to the place of f16's, the bits are an
// f16 number 2^8 times smaller, subnormal or not.
static inline void e4m3_values(__m256i codes, __m256* values) {
  const __m256i kept = _mm256_set1_epi16(static_cast<short>(0xbf80)); // all but the copy of the sign in the exponent
  const __m256i first = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1), kept);
  const __m256i second = _mm256_and_si256(_mm256_srai_epi16(codes, 1), kept);
  values[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(first));
  values[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(first, 1));
  values[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(second));
  values[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(second, 1));
}

static inline __m256 two_floats(const float* x) {
  return _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(x)));
}

template <int kTokens>
void e4m3_block(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x,
                float* out, size_t out_stride) {
  const size_t columns = scaling.columns, step_nbytes = kStripRows * (columns + scale_nbytes(scaling.type));
  const size_t total = steps * step_nbytes, ahead = total < kAhead ? total : kAhead;
  __m256 acc[kTokens][2];
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    acc[t][0] = acc[t][1] = _mm256_setzero_ps();
  for (size_t s = 0; s < steps; ++s) {
    const uint8_t* step = strip + s * step_nbytes;
    __m256 sum[kTokens][2][2]; // of rows 0 .. 3 and 4 .. 7, even and odd columns side by side
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      sum[t][0][0] = sum[t][0][1] = sum[t][1][0] = sum[t][1][1] = _mm256_setzero_ps();
    for (size_t c = 0; c < columns; c += 4) {
      prefetch<64>(strip, next, s * step_nbytes + kStripRows * c, total, ahead);
      GREENROOM_UNROLL
      for (int half = 0; half < 2; ++half) {
        __m256 w[4];
        e4m3_values(load(step + kStripRows * c + 32 * half), w);
        GREENROOM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          const float* a = static_cast<const float*>(x[t]) + s * columns + c;
          const __m256 first = two_floats(a), second = two_floats(a + 2);
          GREENROOM_UNROLL
          for (int rows = 0; rows < 2; ++rows)
            sum[t][half][rows] =
                _mm256_fmadd_ps(w[2 + rows], second, _mm256_fmadd_ps(w[rows], first, sum[t][half][rows]));
        }
      }
    }
    GREENROOM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256 stored = typed_scales(scaling.type, step + kStripRows * columns, static_cast<size_t>(half));
      const __m256 scale = _mm256_mul_ps(stored, _mm256_set1_ps(256.0f));
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        // Rows 0, 1, 4, 5, 2, 3, 6, 7.
        const __m256d added = _mm256_castps_pd(_mm256_hadd_ps(sum[t][half][0], sum[t][half][1]));
        acc[t][half] = _mm256_fmadd_ps(_mm256_castpd_ps(_mm256_permute4x64_pd(added, 0xd8)), scale, acc[t][half]);
      }
    }
  }
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * out_stride, acc[t][0]);
    _mm256_storeu_ps(out + t * out_stride + 8, acc[t][1]);
  }
}

void strip_e4m3(const uint8_t* strip, size_t steps, Scaling scaling, const uint8_t* next, const void* const* x,
                size_t tokens, float* out, size_t out_stride) {
  for (; tokens >= 2; tokens -= 2, x += 2, out += 2 * out_stride)
    e4m3_block<2>(strip, steps, scaling, next, x, out, out_stride);
  if (tokens == 1)
    e4m3_block<1>(strip, steps, scaling, next, x, out, out_stride);
}

static inline int32_t largest_of(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

static inline int32_t sum_of(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

} // namespace

void avx2::quantise(const float* x, size_t groups, ActivationGroup* out) {
  const uint32_t nan_bits = 0x7fc00000u;
  float nan;
  memcpy(&nan, &nan_bits, sizeof nan);
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  for (size_t g = 0; g < groups; ++g, x += kGroup) {
    ActivationGroup* a = out + g;
    // Compared as bits: a NaN is larger than infinity, infinity than any number.
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude_bits));
    }
    const int32_t largest = largest_of(most);
    float magnitude;
    memcpy(&magnitude, &largest, sizeof magnitude);
    const bool finite = largest < 0x7f800000, usable = finite && magnitude >= 1e-30f;
    a->scale = usable ? magnitude / 127.0f : finite ? 0.0f : nan;
    const __m256 inverse = _mm256_set1_ps(usable ? 127.0f / magnitude : 0.0f);
    const __m256i keep = _mm256_set1_epi32(usable ? -1 : 0); // NaN * 0 would still be NaN
    __m256i q[4];
    GREENROOM_UNROLL
    for (int i = 0; i < 4; ++i)
      q[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), keep);
    // The packs work on each 128-bit half by itself; the permutation puts the pieces in order.
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    _mm256_store_si256(reinterpret_cast<__m256i*>(a->q),
                       _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    const int32_t low = sum_of(_mm256_add_epi32(q[0], q[1])), high = sum_of(_mm256_add_epi32(q[2], q[3]));
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
void avx2::round_bf16(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    out[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

uint64_t avx2::read(const uint8_t* p, size_t n) {
  __m256i sum[8];
  GREENROOM_UNROLL
  for (int k = 0; k < 8; ++k)
    sum[k] = _mm256_setzero_si256();
  for (size_t at = 0; at < n; at += 256) {
    GREENROOM_UNROLL
    for (int k = 0; k < 8; ++k)
      sum[k] = _mm256_add_epi64(sum[k], load(p + at + 32 * k));
  }
  GREENROOM_UNROLL
  for (int k = 1; k < 8; ++k)
    sum[0] = _mm256_add_epi64(sum[0], sum[k]);
  uint64_t lanes[4];
  memcpy(lanes, &sum[0], sizeof lanes);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

namespace {

constexpr KernelTable table() {
  KernelTable t = {"avx2", {}, kActF32, avx2::quantise, avx2::round_bf16, avx2::read};
  t.strip[kInt4F16] = strip_int<Int4<false, false>>;
  t.strip[kInt4F16Min] = strip_int<Int4<true, false>>;
  t.strip[kInt4K] = strip_int<Int4K<false>>;
  t.strip[kInt4Nl] = strip_int<Int4Nl>;
  t.strip[kInt4Mx] = strip_int<Int4Mx>;
  t.strip[kInt4Nv] = strip_int<Int4Nv>;
  t.strip[kInt4Xs] = strip_int<Int4Xs>;
  t.strip[kInt5F16] = strip_int<Int4<false, true>>;
  t.strip[kInt5F16Min] = strip_int<Int4<true, true>>;
  t.strip[kInt5K] = strip_int<Int4K<true>>;
  t.strip[kInt8F16] = strip_int<Int8>;
  t.strip[kInt2K] = strip_int<Int2K>;
  t.strip[kInt3K] = strip_int<Int3K>;
  t.strip[kInt6K] = strip_int<Int6K>;
  t.strip[kInt4Block] = strip_int<Block<true, false, false>>;
  t.strip[kInt4BlockZero] = strip_int<Block<true, true, false>>;
  t.strip[kInt8Block] = strip_int<Block<false, false, false>>;
  t.strip[kInt8BlockZero] = strip_int<Block<false, true, false>>;
  t.strip[kInt4Halves] = strip_int<Block<true, false, true>>;
  t.strip[kInt4HalvesZero] = strip_int<Block<true, true, true>>;
  t.strip[kInt8Halves] = strip_int<Block<false, false, true>>;
  t.strip[kInt8HalvesZero] = strip_int<Block<false, true, true>>;
  t.strip[kE4m3] = strips<strip_e4m3>;
  t.strip[kBf16] = strips<strip_float<kBf16>>;
  t.strip[kF16] = strips<strip_float<kF16>>;
  t.strip[kF32] = strips<strip_float<kF32>>;
  return t;
}

} // namespace

constinit const KernelTable kAvx2Kernels = table();

} // namespace greenroom
