// Root mean square norms (Zhang and Sennrich 2019) and layer norms (Ba et al. 2016).
#pragma once

#include <cstddef>

#include "thread_pool.h"

namespace greenroom {

// The sum of squares, added in the same order for every row of n values.
float square_sum(const float* x, size_t n);

// y = x / sqrt(mean(x^2) + eps) * weight over rows [tokens, hidden]; x += added before that, unless added is null.
// y may be x.
void rms_norm(ThreadPool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
              float eps, float* y);

// The same with the mean taken off first and a bias added last: y = (x - mean) / sqrt(mean((x - mean)^2) + eps) *
// weight
// + bias.
void layer_norm(ThreadPool& pool, float* x, const float* added, size_t tokens, size_t hidden, const float* weight,
                const float* bias, float eps, float* y);

} // namespace greenroom
