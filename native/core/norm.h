// Root mean square norms (Zhang and Sennrich 2019) and layer norms (Ba et al. 2016).
#pragma once

#include <cstddef>

#include "thread_pool.h"

namespace greenroom {

// Rows [tokens, hidden]; x += added before that, unless added is null. y may be x. Without a bias the root mean square
// norm y = x / sqrt(mean(x^2) + eps) * weight; with one y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight +
// bias.
void norm(ThreadPool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
          const float* bias, float eps, float* y);
void norm(ThreadPool::Call& call, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
          const float* bias, float eps, float* y);

} // namespace greenroom
