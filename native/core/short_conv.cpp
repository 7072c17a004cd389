#include "short_conv.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace greenroom {
namespace {

// Below this many values waking a thread costs more than it takes over.
constexpr size_t kAlone = size_t{1} << 15;

} // namespace

ShortConv::ShortConv(const ShortConvShape& shape, std::vector<float> kernel, std::vector<float> bias)
    : kernel_(std::move(kernel)), bias_(std::move(bias)) {
  if (shape.channels < 1 || shape.channels > (1 << 20) || shape.width < 1 || shape.width > 64)
    throw std::invalid_argument("a short convolution has 1 to 2^20 channels and looks at 1 to 64 tokens");
  if (shape.interval < 1 || shape.draft < 1)
    throw std::invalid_argument("a short convolution's state is saved every so many tokens, at least 1");
  channels_ = static_cast<size_t>(shape.channels);
  width_ = static_cast<size_t>(shape.width);
  interval_ = static_cast<size_t>(shape.interval);
  draft_ = static_cast<size_t>(shape.draft);
  if (kernel_.size() != width_ * channels_ || !(bias_.empty() || bias_.size() == channels_))
    throw std::invalid_argument("a short convolution has one weight per channel and token, and one bias per channel");
}

void ShortConv::forward(ThreadPool& pool, float* projected, size_t tokens, size_t start, const ShortConvMemory& memory,
                        float* y) const {
  ThreadPool::Call call(pool);
  forward(call, projected, tokens, start, memory, y);
}

void ShortConv::forward(ThreadPool::Call& call, float* projected, size_t tokens, size_t start,
                        const ShortConvMemory& memory, float* y) const {
  const size_t n = channels_, past = width_ - 1;
  // Row j of the inputs: those before the call, then its own, which take the place of b.
  const auto inputs = [&](size_t j) { return j < past ? memory.past + j * n : projected + (j - past) * 3 * n; };
  const auto gate = [&](size_t token, int) {
    float* b = projected + token * 3 * n;
    const float* x = b + 2 * n;
    for (size_t i = 0; i < n; ++i)
      b[i] *= x[i];
  };
  const auto mix = [&](size_t token, int) {
    float* out = y + token * n;
    const float* c = projected + token * 3 * n + n;
    for (size_t tap = 0; tap < width_; ++tap) {
      const float *row = inputs(token + tap), *weight = kernel_.data() + tap * n;
      if (tap == 0)
        for (size_t i = 0; i < n; ++i)
          out[i] = row[i] * weight[i];
      else
        for (size_t i = 0; i < n; ++i)
          out[i] += row[i] * weight[i];
    }
    for (size_t i = 0; i < bias_.size(); ++i)
      out[i] += bias_[i];
    for (size_t i = 0; i < n; ++i)
      out[i] *= c[i];
  };
  if (tokens * n > kAlone) {
    call.run({{tokens, gate}, {tokens, mix}});
  } else {
    for (size_t token = 0; token < tokens; ++token)
      gate(token, 0);
    for (size_t token = 0; token < tokens; ++token)
      mix(token, 0);
  }
  const auto keep = [&](size_t first, size_t count, float* to) {
    for (size_t j = 0; j < count; ++j)
      std::copy_n(inputs(first + j), n, to + j * n);
  };
  if (tokens <= draft_)
    keep(0, past + tokens, memory.recent);
  else
    keep(tokens, past, memory.recent);
  for (size_t number = start / interval_ + 1; number * interval_ <= start + tokens; ++number)
    keep(number * interval_ - start, past, memory.saved + number * past * n);
}

} // namespace greenroom
