// Attention over keys and values in bf16 with AVX512_BF16, whose products of pairs count twice those of float32. Only
// plain C headers: nothing compiled here may be shared with baseline files.
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "attention_kernels.h"
#include "unroll.h"

namespace greenroom {
namespace {

#include "lanes_avx512.h"

// 24 sums beside four vectors of keys; but eight rows had better not pass over the keys twice.
constexpr int kMostRows = 8, kManyRows = 6;
constexpr int vectors_at_once(int rows) {
  return rows > 6 ? 2 : 4;
}
// Of these weights and values are multiplied at once.
constexpr size_t kKeysAtOnce = 2;
constexpr size_t kPairNbytes = 4;
constexpr float kNegligible = -126.0f; // 2^x is 1e-38 there

static inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

// A compiler may keep __m512bh apart from __m512i (MSVC does).
static inline __m512bh as_bf16(__m512i v) {
  __m512bh out;
  memcpy(&out, &v, sizeof out);
  return out;
}
static inline __m512i as_bits(__m512bh v) {
  __m512i out;
  memcpy(&out, &v, sizeof out);
  return out;
}

// sum + the products of both numbers of each pair.
static inline Lanes add_products(Lanes sum, __m512i pairs, __m512i others) {
  return _mm512_dpbf16_ps(sum, as_bf16(pairs), as_bf16(others));
}
static inline __m512i load_pairs(const void* p) {
  return _mm512_loadu_si512(p);
}
static inline __m512i broadcast_pair(const void* p) {
  int32_t pair;
  memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}

template <KvType> static inline size_t block_nbytes(size_t width) {
  return kKeyBlock * width * 2;
}

// 2^(score - largest). A polynomial of the fraction to 4e-6, small beside the rounding to bf16 (2e-3), with 2^0 = 1
// exactly; the power of the whole part comes with the instruction that takes it.
static inline Lanes weights_of(Lanes scores, float largest) {
  const Lanes x = at_least(kNegligible, subtract(scores, broadcast(largest)));
  const Lanes fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  Lanes p = broadcast(1.35557274e-2f);
  p = multiply_add(p, fraction, broadcast(5.20323502e-2f));
  p = multiply_add(p, fraction, broadcast(2.41379824e-1f));
  p = multiply_add(p, fraction, broadcast(6.93032098e-1f));
  p = multiply_add(p, fraction, broadcast(1.0f));
  return _mm512_scalef_ps(p, x);
}

// Rounded to bf16; the sum is that of the rounded ones.
static inline Lanes keep_weights(float* weights, const Lanes* w) {
  const __m512i low = as_bits(_mm512_cvtne2ps_pbh(w[1], w[0])), high = as_bits(_mm512_cvtne2ps_pbh(w[3], w[2]));
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  _mm512_storeu_si512(weights, low);
  _mm512_storeu_si512(weights + 16, high);
  return add_products(add_products(_mm512_setzero_ps(), low, ones), high, ones);
}

// out [kRows, 64]: q . k for the keys of one block. Fetches what lies `ahead`.
template <KvType, int kRows>
void score(const float* const* q, size_t head_dim, const uint8_t* keys, size_t ahead, float* out) {
  constexpr int kVectors = vectors_at_once(kRows);
  constexpr size_t kPartNbytes = 16 * kVectors * kPairNbytes;
  const uint8_t* rows[kRows];
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r)
    rows[r] = reinterpret_cast<const uint8_t*>(q[r]);
  for (size_t part = 0; part < kKeyBlock / (16 * kVectors); ++part) {
    Lanes acc[kRows][kVectors];
    GREENROOM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = broadcast(0.0f);
    }
    const uint8_t* p = keys + part * kPartNbytes;
    for (size_t pair = 0; pair < head_dim / 2; ++pair, p += kKeyBlock * kPairNbytes) {
      for (size_t line = 0; line < kPartNbytes; line += 64)
        prefetch(p + ahead + line);
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const __m512i k = load_pairs(p + 64 * v);
        GREENROOM_UNROLL
        for (int r = 0; r < kRows; ++r)
          acc[r][v] = add_products(acc[r][v], k, broadcast_pair(rows[r] + kPairNbytes * pair));
      }
    }
    // An odd dimension is by itself: a pair with 0, as it is in the query.
    if (head_dim % 2) {
      p = keys + head_dim / 2 * kKeyBlock * kPairNbytes + part * kPartNbytes / 2;
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * v));
        GREENROOM_UNROLL
        for (int r = 0; r < kRows; ++r)
          acc[r][v] =
              add_products(acc[r][v], _mm512_cvtepu16_epi32(half), broadcast_pair(rows[r] + 2 * (head_dim - 1)));
      }
    }
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = 16 * (part * kVectors + static_cast<size_t>(v));
      GREENROOM_UNROLL
      for (int r = 0; r < kRows; ++r)
        store(out + kKeyBlock * static_cast<size_t>(r) + at, acc[r][v]);
    }
  }
}

// states [kRows], kVectors of each from `states` on: times change, plus weights . values of keys first .. last - 1.
template <int kRows, int kVectors>
void add_values(const float* weights, const float* change, size_t first, size_t last, const uint8_t* values,
                size_t width, size_t ahead, float* states, size_t stride) {
  Lanes acc[kRows][kVectors];
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = multiply(broadcast(change[r]), load(states + static_cast<size_t>(r) * stride + 16 * v));
  }
  const size_t row_nbytes = width * kPairNbytes;
  // Half of a pair that is not among the keys may be a NaN.
  const auto add_pair = [&](size_t pair, auto kept) {
    const uint8_t* p = values + pair * row_nbytes;
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const __m512i x = kept(load_pairs(p + 64 * v));
      GREENROOM_UNROLL
      for (int r = 0; r < kRows; ++r)
        acc[r][v] = add_products(acc[r][v], x, broadcast_pair(weights + kKeyBlock * static_cast<size_t>(r) + pair));
    }
  };
  if (first % 2)
    add_pair(first / 2,
             [](__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))); });
  for (size_t pair = (first + 1) / 2; pair < last / 2; ++pair) {
    for (size_t line = 0; line < 16 * kVectors * kPairNbytes; line += 64)
      prefetch(values + pair * row_nbytes + ahead + line);
    add_pair(pair, [](__m512i x) { return x; });
  }
  if (last % 2)
    add_pair(last / 2, [](__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi32(0xffff)); });
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v)
      store(states + static_cast<size_t>(r) * stride + 16 * v, acc[r][v]);
  }
}

// The same for the whole width.
template <KvType, int kRows>
void add_rows(const AttentionTask* task, const float* weights, const float* change, size_t first, size_t last,
              const uint8_t* values, size_t ahead, float* states) {
  constexpr size_t kAtOnce = 16 * vectors_at_once(kRows);
  const size_t stride = task->width + kStateExtra;
  size_t column = 0;
  for (; column + kAtOnce <= task->width; column += kAtOnce)
    add_values<kRows, vectors_at_once(kRows)>(weights, change, first, last, values + column * kPairNbytes, task->width,
                                              ahead, states + column, stride);
  for (; column < task->width; column += 16)
    add_values<kRows, 1>(weights, change, first, last, values + column * kPairNbytes, task->width, ahead,
                         states + column, stride);
}

void narrow(const float* x, size_t n, void* out) {
  for (size_t i = 0; i < n; i += 16) {
    const __m256bh half = _mm512_cvtneps_pbh(load(x + i));
    memcpy(static_cast<uint8_t*>(out) + 2 * i, &half, sizeof half);
  }
}

#include "attention_softmax.h"

} // namespace

const AttentionKernels kAvx512Bf16Attention = {
    "avx512bf16", {nullptr, attend<kKvBf16>, nullptr, nullptr}, merge, {nullptr, narrow, nullptr, nullptr}, true,
    1.44269504f,
};

} // namespace greenroom
