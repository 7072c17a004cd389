// Panels of integer codes for 256-bit registers, with and without VNNI. Rules as in integer_codes_256.h.
#pragma once

#include "integer_products_256.h"
#include "panels.h"

namespace greenroom {
namespace {

#ifdef GREENROOM_VNNI_256
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

template <class C> struct alignas(64) Panel {
  typedef C Code;
  class Filler;

  // So many sums of two products of small codes fit 16 bits, which is what saves instructions without VNNI; products of
  // signed bytes have to be widened one by one, and a panel gains nothing (measured: all four ports are busy either
  // way).
  static constexpr int kNarrow = 32767 / (2 * Code::kLargest * 127);
  static constexpr bool kWorthwhile = kVnni || kNarrow > 1, kInPlace = false;
  static constexpr size_t kGroups = 16; // 16 KB of codes
  // Twelve sums, two loads of weights, an activation, a product; or eight sums, four loads, ones and some products.
  static constexpr size_t kMostTokens = kVnni || kNarrow > 2 ? 6 : 4;

  uint8_t codes[kGroups][2][2][8][32]; // of group, strip, half and four columns
  float scale[kGroups][Code::kParts][2][16];
  float min[kGroups][Code::kParts][2][16];
};

static inline void store(uint8_t* p, __m256i v) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(p), v);
}

// Unpacks groups of strip i (0 or 1) of a task, one after the other.
template <class Code> class Panel<Code>::Filler {
public:
  Filler(Panel<Code>* panel, const StripTask* task, size_t i, size_t first)
      : panel_(panel), scaling_(task->scaling), i_(i), group_(first % Code::groups(scaling_)),
        step_((i ? task->second : task->strip) + first / Code::groups(scaling_) * Code::step_nbytes(scaling_)),
        heads_{Code::head(step_, 0, scaling_), Code::head(step_, 1, scaling_)} {}

  // The next one, to place `at`.
  inline void fill(size_t at) {
    if (group_ == Code::groups(scaling_)) {
      group_ = 0;
      step_ += Code::step_nbytes(scaling_);
      heads_[0] = Code::head(step_, 0, scaling_);
      heads_[1] = Code::head(step_, 1, scaling_);
    }
    for (size_t half = 0; half < 2; ++half) {
      uint8_t (*codes)[32] = panel_->codes[at][i_][half];
      __m256i w[8];
      __m256 scale[Code::kParts], min[Code::kParts];
      Code::unpack(step_, group_, half, w);
      Code::scales(heads_[half], step_, group_, half, scale, min);
      GREENROOM_UNROLL
      for (int j = 0; j < 8; ++j)
        store(codes[j], Code::kSigned ? _mm256_xor_si256(w[j], _mm256_set1_epi8(-128)) : w[j]);
      GREENROOM_UNROLL
      for (int part = 0; part < Code::kParts; ++part) {
        _mm256_store_ps(panel_->scale[at][part][i_] + 8 * half, scale[part]);
        if (Code::kHasMin)
          _mm256_store_ps(panel_->min[at][part][i_] + 8 * half, min[part]);
      }
    }
    ++group_;
  }

private:
  Panel<Code>* panel_;
  Scaling scaling_;
  size_t i_, group_;
  const uint8_t* step_;
  typename Code::Head heads_[2];
};

#ifdef GREENROOM_VNNI_256

// Sums of products of one part of a group of one strip with a few tokens; codes: of both halves.
template <class Code, int kTokens>
static inline void part_sums(const uint8_t (*codes)[8][32], const ActivationGroup* const* a, size_t g, int part,
                             __m256i (&sums)[kTokens][2]) {
  constexpr int kLoads = 8 / Code::kParts;
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    sums[t][0] = sums[t][1] = Code::kSigned ? signed_start<Code>(a[t] + g, part) : Code::start(a[t] + g, part);
  GREENROOM_UNROLL
  for (int j = kLoads * part; j < kLoads * (part + 1); ++j) {
    __m256i upper = load(codes[0][j]), lower = load(codes[1][j]);
    hold(upper);
    hold(lower);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256i four = words(a[t][g].q + 4 * j);
      sums[t][0] = _mm256_dpbusd_avx_epi32(sums[t][0], upper, four);
      sums[t][1] = _mm256_dpbusd_avx_epi32(sums[t][1], lower, four);
    }
  }
}

#else

// Or GCC adds all products in an order of its own, from memory.
static inline __m256i held(__m256i sum) {
  hold(sum);
  return sum;
}

static inline __m256i widened(__m256i narrow, __m256i start) {
  return _mm256_add_epi32(_mm256_madd_epi16(narrow, _mm256_set1_epi16(1)), start);
}

// Sums of products of one part of a group of one strip with a few tokens; codes: of both halves.
template <class Code, int kTokens>
static inline void part_sums(const uint8_t (*codes)[8][32], const ActivationGroup* const* a, size_t g, int part,
                             __m256i (&sums)[kTokens][2]) {
  constexpr int kLoads = 8 / Code::kParts, kNarrow = Panel<Code>::kNarrow;
  if constexpr (kNarrow > 2) {
    __m256i narrow[kTokens][2];
    GREENROOM_UNROLL
    for (int j = 0; j < kLoads; ++j) {
      __m256i upper = load(codes[0][kLoads * part + j]), lower = load(codes[1][kLoads * part + j]);
      hold(upper);
      hold(lower);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m256i four = words(a[t][g].q + 4 * (kLoads * part + j));
        const __m256i first = _mm256_maddubs_epi16(upper, four), second = _mm256_maddubs_epi16(lower, four);
        narrow[t][0] = j % kNarrow ? held(_mm256_add_epi16(narrow[t][0], first)) : first;
        narrow[t][1] = j % kNarrow ? held(_mm256_add_epi16(narrow[t][1], second)) : second;
      }
      if (j % kNarrow == kNarrow - 1 || j == kLoads - 1) {
        GREENROOM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          const __m256i start = Code::start(a[t] + g, part);
          sums[t][0] = widened(narrow[t][0], j < kNarrow ? start : sums[t][0]);
          sums[t][1] = widened(narrow[t][1], j < kNarrow ? start : sums[t][1]);
        }
      }
    }
  } else {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      sums[t][0] = sums[t][1] = Code::start(a[t] + g, part);
    GREENROOM_UNROLL
    for (int j = kLoads * part; j < kLoads * (part + 1); j += 2) {
      __m256i upper = load(codes[0][j]), upper_next = load(codes[0][j + 1]);
      __m256i lower = load(codes[1][j]), lower_next = load(codes[1][j + 1]);
      hold(upper);
      hold(upper_next);
      hold(lower);
      hold(lower_next);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m256i four = words(a[t][g].q + 4 * j), next = words(a[t][g].q + 4 * j + 4);
        const __m256i first = _mm256_maddubs_epi16(upper, four), second = _mm256_maddubs_epi16(lower, four);
        sums[t][0] = held(widened(_mm256_add_epi16(first, _mm256_maddubs_epi16(upper_next, next)), sums[t][0]));
        sums[t][1] = held(widened(_mm256_add_epi16(second, _mm256_maddubs_epi16(lower_next, next)), sums[t][1]));
      }
    }
  }
}

#endif

// Products of one strip of a panel with a few tokens, added to out.
template <class Code, int kTokens>
static inline void multiply(const Panel<Code>* panel, typename Panel<Code>::Filler* filler, size_t i, size_t groups,
                            const Share& share, const ActivationGroup* const* a, float* out, size_t out_stride) {
  constexpr int kParts = Code::kParts;
  for (size_t g = 0; g < groups; ++g) {
    share.fetch(i, g);
    if (filler && g + 1 < groups)
      filler->fill(g + 1);
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      __m256i sums[kTokens][2];
      part_sums<Code, kTokens>(panel->codes[g][i], a, g, part, sums);
      GREENROOM_UNROLL
      for (int h = 0; h < 2; ++h) {
        const __m256 scale = _mm256_load_ps(panel->scale[g][part][i] + 8 * h);
        GREENROOM_UNROLL
        for (int t = 0; t < kTokens; ++t) {
          float* to = out + t * out_stride + 8 * h;
          __m256 acc = _mm256_loadu_ps(to);
          acc = add_scaled(acc, sums[t][h], scale, a[t] + g);
          if (Code::kHasMin && part == kParts - 1) {
            GREENROOM_UNROLL
            for (int p = 0; p < kParts; ++p)
              acc = _mm256_fmadd_ps(_mm256_load_ps(panel->min[g][p][i] + 8 * h), min_factor<Code>(a[t] + g, p), acc);
          }
          _mm256_storeu_ps(to, acc);
        }
      }
    }
  }
}

struct Multiplier {
  template <class Code>
  static void run(const Panel<Code>* panel, typename Panel<Code>::Filler* fillers, size_t groups, const Share& share,
                  const void* const* x, size_t tokens, size_t first_group, float* out, size_t out_stride) {
    const ActivationGroup* a[Panel<Code>::kMostTokens];
    for (size_t t = 0; t < tokens; ++t)
      a[t] = static_cast<const ActivationGroup*>(x[t]) + first_group;
    if (first_group == 0)
      for (size_t t = 0; t < tokens; ++t)
        memset(out + t * out_stride, 0, 128);
    for (size_t i = 0; i < 2; ++i, out += 16) {
      typename Panel<Code>::Filler* filler = fillers ? fillers + i : nullptr;
      const auto strip = [&](auto count) {
        multiply<Code, decltype(count)::value>(panel, filler, i, groups, share, a, out, out_stride);
      };
      constexpr bool kSix = Panel<Code>::kMostTokens == 6;
      if (kSix && tokens == 6)
        strip(Count<kSix ? 6 : 1>());
      else if (kSix && tokens == 5)
        strip(Count<kSix ? 5 : 1>());
      else if (tokens == 4)
        strip(Count<4>());
      else if (tokens == 3)
        strip(Count<3>());
      else if (tokens == 2)
        strip(Count<2>());
      else
        strip(Count<1>());
    }
  }

private:
  template <int kCount> struct Count {
    static constexpr int value = kCount;
  };
};

} // namespace
} // namespace greenroom
