// Sixteen f32 in plain C++; see lanes_avx512.h.

struct Lanes {
  float v[16];
};

template <class Value> Lanes lanes(Value value) {
  Lanes out;
  for (size_t i = 0; i < 16; ++i)
    out.v[i] = value(i);
  return out;
}

inline Lanes load(const float* p) {
  return lanes([&](size_t i) { return p[i]; });
}
inline void store(float* p, const Lanes& x) {
  std::memcpy(p, x.v, sizeof x.v);
}
inline Lanes broadcast(float x) {
  return lanes([&](size_t) { return x; });
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  return lanes([&](size_t i) { return a.v[i] + b.v[i]; });
}
inline Lanes subtract(const Lanes& a, const Lanes& b) {
  return lanes([&](size_t i) { return a.v[i] - b.v[i]; });
}
inline Lanes multiply(const Lanes& a, const Lanes& b) {
  return lanes([&](size_t i) { return a.v[i] * b.v[i]; });
}
inline Lanes divide(const Lanes& a, const Lanes& b) {
  return lanes([&](size_t i) { return a.v[i] / b.v[i]; });
}
inline Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
  return lanes([&](size_t i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline Lanes larger(const Lanes& a, const Lanes& b) {
  return lanes([&](size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
// NaN passes.
inline Lanes at_least(float bound, const Lanes& x) {
  return lanes([&](size_t i) { return x.v[i] < bound ? bound : x.v[i]; });
}
inline Lanes at_most(float bound, const Lanes& x) {
  return lanes([&](size_t i) { return x.v[i] > bound ? bound : x.v[i]; });
}
// Lanes from .. to - 1 of x, the others replaced; 0 <= from, to <= 16.
inline Lanes keep_between(const Lanes& x, size_t from, size_t to, float others) {
  return lanes([&](size_t i) { return i >= from && i < to ? x.v[i] : others; });
}
// The pairs (a, b) of x become (a c - b s, a s + b c), where turns has the pairs (c, s).
inline Lanes rotate_pairs(const Lanes& x, const Lanes& turns) {
  return lanes([&](size_t i) {
    const float cosine = turns.v[i / 2 * 2], sine = turns.v[i / 2 * 2 + 1];
    return i % 2 ? x.v[i] * cosine + x.v[i - 1] * sine : x.v[i] * cosine - x.v[i + 1] * sine;
  });
}
inline float largest_of(const Lanes& x) {
  float largest = x.v[0];
  for (float value : x.v)
    largest = value > largest ? value : largest;
  return largest;
}
inline float sum_of(const Lanes& x) {
  float sum = 0.0f;
  for (float value : x.v)
    sum += value;
  return sum;
}
inline float first_lane(const Lanes& x) {
  return x.v[0];
}
inline Lanes exponential(const Lanes& x) {
  return lanes([&](size_t i) { return std::exp(x.v[i]); });
}
