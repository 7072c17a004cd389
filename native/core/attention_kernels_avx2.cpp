// Attention with AVX2, FMA and F16C. Only plain C headers: nothing compiled here may be shared with baseline files.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "attention_kernels.h"
#include "exponential_avx2.h"
#include "unroll.h"

namespace greenroom {
namespace {

#include "lanes_avx2.h"

// Twelve sums beside the two halves of a vector and one broadcast value; for three rows, too, one vector is faster.
constexpr int kMostRows = 6, kManyRows = 6;
constexpr int vectors_at_once(int rows) {
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

static inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

template <KvType kType> static inline __m256 load_half(const uint8_t* p) {
  if (kType == kKvF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if (kType == kKvQ8)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  if (kType == kKvF16)
    return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

template <KvType kType> static inline Lanes load(const uint8_t* p) {
  return {load_half<kType>(p), load_half<kType>(p + (kType == kKvF32 ? 32 : kType == kKvQ8 ? 8 : 16))};
}

// Nearest even; NaN stays NaN.
static inline __m256i bf16_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}

template <KvType kType> static inline void narrow(Lanes x, uint8_t* out) {
  if (kType == kKvF32) {
    _mm256_storeu_ps(reinterpret_cast<float*>(out), x.low);
    _mm256_storeu_ps(reinterpret_cast<float*>(out) + 8, x.high);
    return;
  }
  __m128i low, high;
  if (kType == kKvF16) {
    low = _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    high = _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    // The pack works on each 128-bit half by itself; the permutation puts the pieces in order.
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_bits(x.low), bf16_bits(x.high)), 0xd8);
    low = _mm256_castsi256_si128(both);
    high = _mm256_extracti128_si256(both, 1);
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), low);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), high);
}

#include "attention_products.h"
#include "attention_softmax.h"

} // namespace

const AttentionKernels kAvx2Attention = {
    "avx2", {attend<kKvF32>, attend<kKvBf16>, attend<kKvF16>, attend<kKvQ8>},
    merge,  {narrow<kKvF32>, narrow<kKvBf16>, narrow<kKvF16>, narrow<kKvQ8>},
    false,  1.0f,
};

} // namespace greenroom
