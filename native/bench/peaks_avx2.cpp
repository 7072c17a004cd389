#include <immintrin.h>

#include "peaks.h"
#include "repeat.h"

namespace greenroom_bench {

int maddubs_chain(long turns) {
  __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1), total = _mm256_setzero_si256();
#define START(k) __m256i acc##k = _mm256_setzero_si256();
#define TURN(k)                                                                                                        \
  __asm__ volatile("" : "+x"(x)); /* a new value, as far as the compiler knows */                                      \
  acc##k = _mm256_add_epi32(acc##k, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
#define KEEP(k) __asm__ volatile("" : "+x"(acc##k));
#define FINISH(k) total = _mm256_add_epi32(total, acc##k);
  REPEAT12(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT12(TURN)
    REPEAT12(KEEP)
  }
  REPEAT12(FINISH)
#undef START
#undef TURN
#undef FINISH
  return _mm256_extract_epi32(total, 0);
}

int fma256_chain(long turns) {
  __m256 x = _mm256_set1_ps(1.0f), total = _mm256_setzero_ps();
#define START(k) __m256 acc##k = _mm256_setzero_ps();
#define TURN(k) acc##k = _mm256_fmadd_ps(x, x, acc##k);
#define FINISH(k) total = _mm256_add_ps(total, acc##k);
  REPEAT12(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT12(TURN)
    REPEAT12(KEEP)
  }
  REPEAT12(FINISH)
  return static_cast<int>(_mm256_cvtss_f32(total));
}

} // namespace greenroom_bench
