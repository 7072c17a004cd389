#include "norm.h"

#include <cmath>

namespace greenroom {
namespace {

// Below this many values waking a thread costs more than it takes over.
constexpr size_t kAlone = size_t{1} << 15;

void norm_row(float* x, const float* added, size_t hidden, const float* weight, float eps, float* y) {
  if (added)
    for (size_t i = 0; i < hidden; ++i)
      x[i] += added[i];
  const float factor = 1.0f / std::sqrt(square_sum(x, hidden) / static_cast<float>(hidden) + eps);
  for (size_t i = 0; i < hidden; ++i)
    y[i] = x[i] * factor * weight[i];
}

} // namespace

float square_sum(const float* x, size_t n) {
  // Sixteen chains: four vectors of the baseline CPU.
  float sums[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t k = 0; k < 16; ++k)
      sums[k] += x[i + k] * x[i + k];
  for (; i < n; ++i)
    sums[i % 16] += x[i] * x[i];
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k)
      sums[k] += sums[k + half];
  return sums[0];
}

void rms_norm(ThreadPool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
              float eps, float* y) {
  const auto row = [&](size_t t, int) {
    norm_row(x + t * hidden, added ? added + t * hidden : nullptr, hidden, weight, eps, y + t * hidden);
  };
  if (tokens * hidden <= kAlone) {
    for (size_t t = 0; t < tokens; ++t)
      row(t, 0);
    return;
  }
  ThreadPool::Call call(pool);
  call.run({{tokens, row}});
}

} // namespace greenroom
