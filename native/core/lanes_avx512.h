// Sixteen f32 for the AVX-512 files; included inside the unnamed namespace of each, so that no linker ever sees two
// copies of one name.

typedef __m512 Lanes;

static inline Lanes load(const float* p) {
  return _mm512_loadu_ps(p);
}
static inline void store(float* p, Lanes x) {
  _mm512_storeu_ps(p, x);
}
static inline Lanes broadcast(float x) {
  return _mm512_set1_ps(x);
}
static inline Lanes add(Lanes a, Lanes b) {
  return _mm512_add_ps(a, b);
}
static inline Lanes subtract(Lanes a, Lanes b) {
  return _mm512_sub_ps(a, b);
}
static inline Lanes multiply(Lanes a, Lanes b) {
  return _mm512_mul_ps(a, b);
}
static inline Lanes divide(Lanes a, Lanes b) {
  return _mm512_div_ps(a, b);
}
static inline Lanes multiply_add(Lanes a, Lanes b, Lanes c) {
  return _mm512_fmadd_ps(a, b, c);
}
static inline Lanes larger(Lanes a, Lanes b) {
  return _mm512_max_ps(a, b);
}
// NaN passes: it is the second operand.
static inline Lanes at_least(float bound, Lanes x) {
  return _mm512_max_ps(_mm512_set1_ps(bound), x);
}
static inline Lanes at_most(float bound, Lanes x) {
  return _mm512_min_ps(_mm512_set1_ps(bound), x);
}
// Lanes from .. to - 1 of x, the others replaced; 0 <= from, to <= 16.
static inline Lanes keep_between(Lanes x, size_t from, size_t to, float others) {
  const __mmask16 keep = static_cast<__mmask16>(((1u << to) - 1) & ~((1u << from) - 1));
  return _mm512_mask_mov_ps(_mm512_set1_ps(others), keep, x);
}
// The pairs (a, b) of x become (a c - b s, a s + b c), where turns has the pairs (c, s).
static inline Lanes rotate_pairs(Lanes x, Lanes turns) {
  const Lanes swapped = _mm512_permute_ps(x, 0b10110001);
  return _mm512_fmaddsub_ps(x, _mm512_moveldup_ps(turns), _mm512_mul_ps(swapped, _mm512_movehdup_ps(turns)));
}
static inline float largest_of(Lanes x) {
  return _mm512_reduce_max_ps(x);
}
static inline float sum_of(Lanes x) {
  return _mm512_reduce_add_ps(x);
}
static inline float first_lane(Lanes x) {
  return _mm512_cvtss_f32(x);
}
