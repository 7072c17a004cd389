#include "norm.h"

#include <cmath>

namespace greenroom {
namespace {

// Below this many values waking a thread costs more than it takes over.
constexpr size_t kAlone = size_t{1} << 15;

void add_row(float* x, const float* added, size_t hidden) {
  if (added)
    for (size_t i = 0; i < hidden; ++i)
      x[i] += added[i];
}

// Sixteen chains: four vectors of the baseline CPU.
template <class Value> float sum(size_t n, Value value) {
  float sums[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t k = 0; k < 16; ++k)
      sums[k] += value(i + k);
  for (; i < n; ++i)
    sums[i % 16] += value(i);
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k)
      sums[k] += sums[k + half];
  return sums[0];
}

void rms_row(float* x, const float* added, size_t hidden, const float* weight, float eps, float* y) {
  add_row(x, added, hidden);
  const float squares = sum(hidden, [=](size_t i) { return x[i] * x[i]; });
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + eps);
  for (size_t i = 0; i < hidden; ++i)
    y[i] = x[i] * factor * weight[i];
}

void layer_row(float* x, const float* added, size_t hidden, const float* weight, const float* bias, float eps,
               float* y) {
  add_row(x, added, hidden);
  const float n = static_cast<float>(hidden), mean = sum(hidden, [=](size_t i) { return x[i]; }) / n;
  const float squares = sum(hidden, [=](size_t i) { return (x[i] - mean) * (x[i] - mean); });
  const float factor = 1.0f / std::sqrt(squares / n + eps);
  for (size_t i = 0; i < hidden; ++i)
    y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

template <class Row> void for_rows(ThreadPool::Call& call, size_t tokens, size_t hidden, const Row& row) {
  if (tokens * hidden <= kAlone)
    for (size_t t = 0; t < tokens; ++t)
      row(t, 0);
  else
    call.run({{tokens, row}});
}

// Little work does not even wait for the pool.
template <class Row> void for_rows(ThreadPool& pool, size_t tokens, size_t hidden, const Row& row) {
  if (tokens * hidden <= kAlone) {
    for (size_t t = 0; t < tokens; ++t)
      row(t, 0);
    return;
  }
  ThreadPool::Call call(pool);
  for_rows(call, tokens, hidden, row);
}

template <class Pool>
void norm_rows(Pool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
               const float* bias, float eps, float* y) {
  for_rows(pool, tokens, hidden, [=](size_t t, int) {
    const float* more = added ? added + t * hidden : nullptr;
    if (bias)
      layer_row(x + t * hidden, more, hidden, weight, bias, eps, y + t * hidden);
    else
      rms_row(x + t * hidden, more, hidden, weight, eps, y + t * hidden);
  });
}

} // namespace

void norm(ThreadPool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
          const float* bias, float eps, float* y) {
  norm_rows(pool, x, added, tokens, hidden, weight, bias, eps, y);
}

void norm(ThreadPool::Call& call, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
          const float* bias, float eps, float* y) {
  norm_rows(call, x, added, tokens, hidden, weight, bias, eps, y);
}

} // namespace greenroom
