// Attention in plain C++, for any CPU.
#include <bit>
#include <cmath>
#include <cstring>

#include "attention_kernels.h"
#include "float16.h"
#include "unroll.h"

namespace greenroom {
namespace {

#include "lanes_portable.h"

constexpr int kMostRows = 8, kManyRows = 8;
constexpr int vectors_at_once(int) {
  return 1;
}

void prefetch(const uint8_t*) {}

// Without branches, so that compilers make vectors of it: the exponent is rebased by a product, which also does
// subnormals; all ones stay all ones.
float widened(uint16_t half) {
  const float magnitude = std::bit_cast<float>((half & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | special | (half & 0x8000u) << 16);
}

template <KvType kType> Lanes load(const uint8_t* p) {
  if (kType == kKvQ8)
    return lanes([&](size_t i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  Lanes out;
  if (kType == kKvF32) {
    std::memcpy(out.v, p, sizeof out.v);
    return out;
  }
  uint16_t bits[16];
  std::memcpy(bits, p, sizeof bits);
  for (size_t i = 0; i < 16; ++i)
    out.v[i] = kType == kKvF16 ? widened(bits[i]) : f32_from_bf16(bits[i]);
  return out;
}

template <KvType kType> void narrow(Lanes x, uint8_t* out) {
  if (kType == kKvF32) {
    std::memcpy(out, x.v, sizeof x.v);
    return;
  }
  uint16_t bits[16];
  for (size_t i = 0; i < 16; ++i)
    bits[i] = kType == kKvF16 ? f16_from_f32(x.v[i]) : bf16_from_f32(x.v[i]);
  std::memcpy(out, bits, sizeof bits);
}

#include "attention_products.h"
#include "attention_softmax.h"

} // namespace

const AttentionKernels kPortableAttention = {
    "portable", {attend<kKvF32>, attend<kKvBf16>, attend<kKvF16>, attend<kKvQ8>},
    merge,      {narrow<kKvF32>, narrow<kKvBf16>, narrow<kKvF16>, narrow<kKvQ8>},
    false,      1.0f,
};

} // namespace greenroom
