// AVX512_BF16: products of bf16 pairs. Only plain C headers: nothing compiled here may be shared with baseline files.
#include "e4m3_strips_512.h"
#include "float_strips_512.h"

namespace greenroom {
namespace {

// A compiler may keep __m512bh apart from __m512i (MSVC does).
static inline __m512bh as_bf16(__m512i v) {
  __m512bh out;
  memcpy(&out, &v, sizeof out);
  return out;
}

// Units of two columns.
struct Pairs {
  static constexpr size_t kUnits = 1, kBytes = 64;

  static inline __m512i load(const uint8_t* strip, size_t unit) { return _mm512_loadu_si512(strip + 64 * unit); }
  static inline __m512i broadcast(const void* x, size_t unit) {
    int32_t value;
    memcpy(&value, static_cast<const uint8_t*>(x) + 4 * unit, sizeof value);
    return _mm512_set1_epi32(value);
  }
  static inline __m512 add(__m512 sum, __m512i w, __m512i value) {
    return _mm512_dpbf16_ps(sum, as_bf16(w), as_bf16(value));
  }
};

struct E4m3Bf16 {
  typedef uint16_t Activation;
  static constexpr int kMost = 3;

  static inline __m512 add(__m512 acc, __m512i two, const uint16_t* x) {
    return _mm512_dpbf16_ps(acc, as_bf16(two), as_bf16(Pairs::broadcast(x, 0)));
  }
};

void e4m3_strip(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride) {
  e4m3_tokens<E4m3Bf16>(task, x, tokens, out, out_stride);
}

constexpr KernelTable table() {
  KernelTable t = {"avx512bf16", {}, kActBf16, avx512::quantise, avx512::round_bf16, avx512::read};
  t.strip[kE4m3] = e4m3_strip;
  t.strip[kBf16] = float_strip<Pairs>;
  return t;
}

} // namespace

constinit const KernelTable kAvx512Bf16Kernels = table();

} // namespace greenroom
