#include <immintrin.h>

#include "peaks.h"
#include "repeat.h"

namespace greenroom_bench {

#define KEEP(k) __asm__ volatile("" : "+v"(acc##k));

int dpbusd_chain(long turns) {
  __m512i x = _mm512_set1_epi8(1), total = _mm512_setzero_si512();
#define START(k) __m512i acc##k = _mm512_setzero_si512();
#define TURN(k) acc##k = _mm512_dpbusd_epi32(acc##k, x, x);
#define FINISH(k) total = _mm512_add_epi32(total, acc##k);
  REPEAT16(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT16(TURN)
    REPEAT16(KEEP)
  }
  REPEAT16(FINISH)
#undef START
#undef TURN
#undef FINISH
  return _mm512_reduce_add_epi32(total);
}

#define START(k) __m512 acc##k = _mm512_setzero_ps();
#define FINISH(k) total = _mm512_add_ps(total, acc##k);

int fma512_chain(long turns) {
  __m512 x = _mm512_set1_ps(1.0f), total = _mm512_setzero_ps();
#define TURN(k) acc##k = _mm512_fmadd_ps(x, x, acc##k);
  REPEAT16(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT16(TURN)
    REPEAT16(KEEP)
  }
  REPEAT16(FINISH)
#undef TURN
  return static_cast<int>(_mm512_reduce_add_ps(total));
}

int dpbf16_chain(long turns) {
  __m512 total = _mm512_setzero_ps();
  __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
#define TURN(k) acc##k = _mm512_dpbf16_ps(acc##k, x, x);
  REPEAT16(START)
  for (long i = 0; i < turns; ++i) {
    REPEAT16(TURN)
    REPEAT16(KEEP)
  }
  REPEAT16(FINISH)
  return static_cast<int>(_mm512_reduce_add_ps(total));
}

} // namespace greenroom_bench
