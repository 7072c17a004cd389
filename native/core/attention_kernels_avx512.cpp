// Attention with AVX-512 (F, BW, VL, DQ). Only plain C headers: nothing compiled here may be shared with baseline
// files.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "attention_kernels.h"
#include "exponential_avx512.h"
#include "unroll.h"

namespace greenroom {
namespace {

#include "lanes_avx512.h"

// 24 sums beside four vectors of keys are the fastest; but eight rows had better not pass over the keys twice.
constexpr int kMostRows = 8, kManyRows = 6;
constexpr int vectors_at_once(int rows) {
  return rows > 6 ? 2 : 4;
}

static inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

template <KvType kType> static inline Lanes load(const uint8_t* p) {
  if (kType == kKvF32)
    return _mm512_loadu_ps(p);
  if (kType == kKvQ8)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if (kType == kKvF16)
    return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Nearest even; NaN stays NaN.
template <KvType kType> static inline void narrow(Lanes x, uint8_t* out) {
  if (kType == kKvF32) {
    _mm512_storeu_ps(out, x);
    return;
  }
  __m256i half;
  if (kType == kKvF16) {
    half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  } else {
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    half = _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), half);
}

#include "attention_products.h"
#include "attention_softmax.h"

} // namespace

const AttentionKernels kAvx512Attention = {
    "avx512", {attend<kKvF32>, attend<kKvBf16>, attend<kKvF16>, attend<kKvQ8>},
    merge,    {narrow<kKvF32>, narrow<kKvBf16>, narrow<kKvF16>, narrow<kKvQ8>},
    false,    1.0f,
};

} // namespace greenroom
