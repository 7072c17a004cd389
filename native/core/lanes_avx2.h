// Sixteen f32 for the AVX2 files; see lanes_avx512.h.

struct Lanes {
  __m256 low, high;
};

static inline Lanes load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
static inline Lanes broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
static inline Lanes subtract(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
static inline Lanes multiply(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
static inline Lanes divide(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
static inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
static inline Lanes larger(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
// NaN passes: it is the second operand.
static inline Lanes at_least(float bound, Lanes x) {
  return larger(broadcast(bound), x);
}
static inline Lanes at_most(float bound, Lanes x) {
  return {_mm256_min_ps(_mm256_set1_ps(bound), x.low), _mm256_min_ps(_mm256_set1_ps(bound), x.high)};
}
// Lanes from .. to - 1 of x, the others replaced; 0 <= from, to <= 16.
static inline Lanes keep_between(Lanes x, size_t from, size_t to, float others) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
  const __m256i first = _mm256_set1_epi32(static_cast<int>(from)), end = _mm256_set1_epi32(static_cast<int>(to));
  const __m256i low = _mm256_andnot_si256(_mm256_cmpgt_epi32(first, index), _mm256_cmpgt_epi32(end, index));
  const __m256i high = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_sub_epi32(first, eight), index),
                                           _mm256_cmpgt_epi32(_mm256_sub_epi32(end, eight), index));
  const __m256 other = _mm256_set1_ps(others);
  return {_mm256_blendv_ps(other, x.low, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other, x.high, _mm256_castsi256_ps(high))};
}
// The pairs (a, b) of x become (a c - b s, a s + b c), where turns has the pairs (c, s).
static inline __m256 rotate_pairs(__m256 x, __m256 turns) {
  const __m256 swapped = _mm256_permute_ps(x, 0b10110001);
  return _mm256_fmaddsub_ps(x, _mm256_moveldup_ps(turns), _mm256_mul_ps(swapped, _mm256_movehdup_ps(turns)));
}
static inline Lanes rotate_pairs(Lanes x, Lanes turns) {
  return {rotate_pairs(x.low, turns.low), rotate_pairs(x.high, turns.high)};
}
static inline float largest_of(Lanes x) {
  const __m256 v = _mm256_max_ps(x.low, x.high);
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
static inline float sum_of(Lanes x) {
  const __m256 v = _mm256_add_ps(x.low, x.high);
  __m128 m = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_add_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_add_ss(m, _mm_movehdup_ps(m)));
}
static inline float first_lane(Lanes x) {
  return _mm256_cvtss_f32(x.low);
}
static inline Lanes exponential(Lanes x) {
  return {greenroom::exponential(x.low), greenroom::exponential(x.high)};
}
