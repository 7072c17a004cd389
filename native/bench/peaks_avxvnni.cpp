#include <immintrin.h>

#include "peaks.h"
#include "repeat.h"

namespace greenroom_bench {

int dpbusd256_chain(long turns) {
  __m256i x = _mm256_set1_epi8(1), total = _mm256_setzero_si256();
#define START(k) __m256i acc##k = _mm256_setzero_si256();
#define TURN(k) acc##k = _mm256_dpbusd_avx_epi32(acc##k, x, x);
#define KEEP(k) __asm__ volatile("" : "+x"(acc##k));
#define FINISH(k) total = _mm256_add_epi32(total, acc##k);
  REPEAT12(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT12(TURN)
    REPEAT12(KEEP)
  }
  REPEAT12(FINISH)
  return _mm256_extract_epi32(total, 0);
}

} // namespace greenroom_bench
