// A whole model in one call: layers, the last norm and the output head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "blocks.h"

namespace greenroom {

struct RopeTable {
  std::vector<double> frequencies; // one per rotated pair
  double magnitude;                // of cosine and sine
};

class Decoder {
public:
  // Throws std::invalid_argument for parts that do not fit each other.
  Decoder(std::vector<RopeTable> ropes, std::vector<LayerBlock> layers, Norm norm, Linear head);

  // x [tokens, hidden]: embeddings of the tokens at positions start .. start + tokens - 1, overwritten. Their keys and
  // values join the caches. logits [tokens, vocab], or [1, vocab] of the last token alone. Throws Interrupted.
  void forward(ThreadPool& pool, float* x, size_t tokens, long long start, bool last_only, float* logits) const;

private:
  std::vector<RopeTable> ropes_;
  std::vector<LayerBlock> layers_;
  Norm norm_;
  Linear head_;
};

} // namespace greenroom
