// A causal depthwise convolution over the last few tokens, with gates before and behind it (LFM2).
#pragma once

#include <cstddef>
#include <vector>

#include "thread_pool.h"

namespace greenroom {

struct ShortConvShape {
  long long channels, width; // of the window
  long long interval;        // the state is saved at multiples of it
  long long draft;           // calls of at most so many tokens leave all of their inputs
};

// One layer's memory, f32.
struct ShortConvMemory {
  const float* past; // [width - 1, channels]: the inputs before the call
  float* recent;     // [width - 1 + draft, channels]: those before and of a short call, or the last of a longer one
  float* saved;      // [1 + context / interval, width - 1, channels]: before each position that is a multiple
};

class ShortConv {
public:
  // kernel [width, channels], the oldest token's weights first; bias [channels] or empty. Throws std::invalid_argument.
  ShortConv(const ShortConvShape& shape, std::vector<float> kernel, std::vector<float> bias);

  size_t channels() const { return channels_; }
  // projected [tokens, 3 channels], b then c then x of each token, overwritten; y [tokens, channels] =
  // c * (conv(b * x) + bias). A token's bits depend on nothing but the sequence.
  void forward(ThreadPool& pool, float* projected, size_t tokens, size_t start, const ShortConvMemory& memory,
               float* y) const;
  void forward(ThreadPool::Call& call, float* projected, size_t tokens, size_t start, const ShortConvMemory& memory,
               float* y) const;

private:
  size_t channels_, width_, interval_, draft_;
  std::vector<float> kernel_, bias_;
};

} // namespace greenroom
