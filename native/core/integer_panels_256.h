// Panels of integer codes for 256-bit registers, with and without VNNI. Rules as in integer_codes_256.h.
#pragma once

#include "integer_products_256.h"
#include "panels.h"

namespace greenroom {
namespace {

template <class C> struct alignas(64) Panel {
  typedef C Code;
  class Filler;

  // So many sums of two products of small codes fit 16 bits, which is what saves instructions without VNNI. Products of
  // signed bytes have to be widened one by one: see signed_sums.
  static constexpr int kNarrow = 32767 / (2 * Code::kLargest * 127);
  static constexpr bool kSplit = Code::kSigned && !kVnni;
  static constexpr bool kAtOnce = true; // unpacking between products takes 1 to 5 % longer
  static constexpr size_t kGroups = kSplit ? 8 : 16, kUnit = Code::kWhole ? 8 : 1; // 16 KB of codes; whole steps
  // Twelve sums, two loads of weights, an activation, a product; or eight sums, four loads, ones and some products.
  static constexpr size_t kMostTokens = kVnni || kNarrow > 2 ? 6 : 4;

  uint8_t codes[kGroups][2][2][8][32]; // of group, strip, half and four columns; where kSplit, their magnitudes
  uint8_t signs[kSplit ? kGroups : 1][2][2][8][32];           // 255 where a code is negative, else 0
  __m256i negative[kSplit ? kGroups : 1][Code::kParts][2][2]; // sums of the magnitudes of negative codes
  float scale[kGroups][Code::kParts][2][16];
  float min[kGroups][Code::kParts][2][16];
  // Where Code::kWhole, instead of scales and minima.
  typename Code::Head heads[Code::kWhole ? kGroups / kUnit : 1][2][2];
  __m256i factor[Code::kWhole ? kGroups : 1][Code::kParts][2][2], offset[Code::kWhole ? kGroups : 1][2][2];
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
    if (Code::kWhole && group_ == 0) {
      panel_->heads[at / Panel::kUnit][i_][0] = heads_[0];
      panel_->heads[at / Panel::kUnit][i_][1] = heads_[1];
    }
    for (size_t half = 0; half < 2; ++half) {
      uint8_t (*codes)[32] = panel_->codes[at][i_][half];
      __m256i w[8];
      __m256 scale[Code::kParts], min[Code::kParts];
      Code::unpack(step_, group_, half, w);
      if constexpr (!Code::kWhole)
        Code::scales(heads_[half], step_, group_, half, scale, min);
      if constexpr (Panel::kSplit) {
        split(at, half, w);
      } else {
        GREENROOM_UNROLL
        for (int j = 0; j < 8; ++j)
          store(codes[j], Code::kSigned ? _mm256_xor_si256(w[j], _mm256_set1_epi8(-128)) : w[j]);
      }
      if constexpr (Code::kWhole) {
        __m256i factor[Code::kParts];
        Code::whole(heads_[half], step_, group_, half, factor, &panel_->offset[at][i_][half], min);
        GREENROOM_UNROLL
        for (int part = 0; part < Code::kParts; ++part)
          panel_->factor[at][part][i_][half] = factor[part];
        if (Code::kHasMin && Code::kParts == 1)
          _mm256_store_ps(panel_->min[at][0][i_] + 8 * half, min[0]);
        continue;
      }
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
  inline void split(size_t at, size_t half, const __m256i* w) {
    constexpr int kLoads = 8 / Code::kParts;
    GREENROOM_UNROLL
    for (int part = 0; part < Code::kParts; ++part) {
      __m256i negative = _mm256_setzero_si256();
      GREENROOM_UNROLL
      for (int j = kLoads * part; j < kLoads * (part + 1); ++j) {
        const __m256i sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w[j]), magnitude = _mm256_abs_epi8(w[j]);
        store(panel_->codes[at][i_][half][j], magnitude);
        store(panel_->signs[at][i_][half][j], sign);
        negative = _mm256_add_epi16(negative, _mm256_maddubs_epi16(magnitude, sign));
      }
      panel_->negative[at][part][i_][half] = _mm256_madd_epi16(negative, _mm256_set1_epi16(-1));
    }
  }

  Panel<Code>* panel_;
  Scaling scaling_;
  size_t i_, group_;
  const uint8_t* step_;
  typename Code::Head heads_[2];
};

#ifdef GREENROOM_VNNI_256

// Sums of products of one part of a group of strip i with a few tokens.
template <class Code, int kTokens>
static inline void part_sums(const Panel<Code>* panel, const ActivationGroup* const* a, size_t g, size_t i, int part,
                             __m256i (&sums)[kTokens][2]) {
  constexpr int kLoads = 8 / Code::kParts;
  const uint8_t (*codes)[8][32] = panel->codes[g][i];
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

static inline __m256i widened(__m256i narrow, __m256i factor, __m256i start) {
  return _mm256_add_epi32(_mm256_madd_epi16(narrow, factor), start);
}

// What the sums of a part of a group start with; `so_far`: sums of the part before it.
template <class Code>
static inline __m256i started(const Panel<Code>* panel, const ActivationGroup* a, size_t g, size_t i, int part,
                              int half, __m256i so_far) {
  if constexpr (!Code::kWhole)
    return Code::start(a, part);
  else if (part)
    return so_far;
  else if constexpr (Code::kOffset)
    return _mm256_madd_epi16(panel->offset[g][i][half], half_sums(a));
  else
    return _mm256_setzero_si256();
}

// Sums of products of one part of a group of signed codes w of strip i with a few tokens. |w| is the unsigned side; the
// sign goes to the activation x, without an instruction of its own port: -x is the complement of x, plus one, and |w|
// of all negative w is what the ones add. A pair is -2 * 128 * 128 at least and 2 * 128 * 127 at most, which fits 16
// bits.
template <class Code, int kTokens>
static inline void signed_sums(const Panel<Code>* panel, const ActivationGroup* const* a, size_t g, size_t i, int part,
                               __m256i (&sums)[kTokens][2]) {
  constexpr int kLoads = 8 / Code::kParts;
  const uint8_t (*codes)[8][32] = panel->codes[g][i], (*signs)[8][32] = panel->signs[g][i];
  const __m256i ones = _mm256_set1_epi16(1);
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t) {
    sums[t][0] = panel->negative[g][part][i][0];
    sums[t][1] = panel->negative[g][part][i][1];
  }
  GREENROOM_UNROLL
  for (int j = kLoads * part; j < kLoads * (part + 1); ++j) {
    __m256i w[2], sign[2];
    GREENROOM_UNROLL
    for (int h = 0; h < 2; ++h) {
      w[h] = load(codes[h][j]);
      sign[h] = load(signs[h][j]);
      hold(w[h]);
      hold(sign[h]);
    }
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const __m256i four = words(a[t][g].q + 4 * j);
      GREENROOM_UNROLL
      for (int h = 0; h < 2; ++h)
        sums[t][h] = held(widened(_mm256_maddubs_epi16(w[h], _mm256_xor_si256(four, sign[h])), ones, sums[t][h]));
    }
  }
}

// Sums of products of one part of a group of strip i with a few tokens; where Code::kWhole, added to those of the part
// before it.
template <class Code, int kTokens>
static inline void part_sums(const Panel<Code>* panel, const ActivationGroup* const* a, size_t g, size_t i, int part,
                             __m256i (&sums)[kTokens][2]) {
  constexpr int kLoads = 8 / Code::kParts, kNarrow = Panel<Code>::kNarrow;
  const uint8_t (*codes)[8][32] = panel->codes[g][i];
  const auto factor = [&](int half) {
    if constexpr (Code::kWhole)
      return panel->factor[g][part][i][half];
    else
      return _mm256_set1_epi16(1);
  };
  if constexpr (Panel<Code>::kSplit) {
    signed_sums<Code, kTokens>(panel, a, g, i, part, sums);
  } else if constexpr (kNarrow > 2) {
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
          GREENROOM_UNROLL
          for (int half = 0; half < 2; ++half) {
            const __m256i start =
                j < kNarrow ? started(panel, a[t] + g, g, i, part, half, sums[t][half]) : sums[t][half];
            sums[t][half] = widened(narrow[t][half], factor(half), start);
          }
        }
      }
    }
  } else {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      sums[t][0] = started(panel, a[t] + g, g, i, part, 0, sums[t][0]);
      sums[t][1] = started(panel, a[t] + g, g, i, part, 1, sums[t][1]);
    }
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
        sums[t][0] =
            held(widened(_mm256_add_epi16(first, _mm256_maddubs_epi16(upper_next, next)), factor(0), sums[t][0]));
        sums[t][1] =
            held(widened(_mm256_add_epi16(second, _mm256_maddubs_epi16(lower_next, next)), factor(1), sums[t][1]));
      }
    }
  }
}

#endif

// Products of one strip of a panel with a few tokens, added to out.
template <class Code, int kTokens>
static inline void multiply(const Panel<Code>* panel, size_t i, size_t groups, const Share& share,
                            const ActivationGroup* const* a, float* out, size_t out_stride) {
  constexpr int kParts = Code::kParts;
  for (size_t g = 0; g < groups; ++g) {
    share.fetch(i, g);
    GREENROOM_UNROLL
    for (int part = 0; part < kParts; ++part) {
      __m256i sums[kTokens][2];
      part_sums<Code, kTokens>(panel, a, g, i, part, sums);
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

// What the minima of a step of strip i add before their d, of all tokens side by side: one after the other they would
// load twice as much, and wait.
template <class Code, int kTokens>
static inline void step_mins(const Panel<Code>* panel, size_t i, size_t first, const ActivationGroup* const* a,
                             __m256 (&mins)[kTokens][2]) {
  GREENROOM_UNROLL
  for (int t = 0; t < kTokens; ++t)
    mins[t][0] = mins[t][1] = _mm256_setzero_ps();
  for (size_t g = first; Code::kHasMin && g < first + Panel<Code>::kUnit; ++g) {
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      const ActivationGroup* here = a[t] + g;
      GREENROOM_UNROLL
      for (int h = 0; h < 2; ++h) {
        if constexpr (Code::kParts == 1)
          mins[t][h] = _mm256_fmadd_ps(_mm256_load_ps(panel->min[g][0][i] + 8 * h), _mm256_set1_ps(here->scaled_sum),
                                       mins[t][h]);
        else
          mins[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(panel->offset[g][i][h], half_sums(here))),
                                       _mm256_set1_ps(here->scale), mins[t][h]);
      }
    }
  }
}

// The same where scales are whole numbers: sums of a step are added up before d multiplies them.
template <class Code, int kTokens>
static inline void multiply_whole(const Panel<Code>* panel, size_t i, size_t groups, const Share& share,
                                  const ActivationGroup* const* a, float* out, size_t out_stride) {
  constexpr size_t kUnit = Panel<Code>::kUnit;
  for (size_t first = 0; first < groups; first += kUnit) {
    __m256 totals[kTokens][2];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      totals[t][0] = totals[t][1] = _mm256_setzero_ps();
    for (size_t g = first; g < first + kUnit; ++g) {
      share.fetch(i, g);
      __m256i sums[kTokens][2];
      GREENROOM_UNROLL
      for (int part = 0; part < Code::kParts; ++part)
        part_sums<Code, kTokens>(panel, a, g, i, part, sums);
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        const __m256 x_scale = _mm256_set1_ps(a[t][g].scale);
        GREENROOM_UNROLL
        for (int h = 0; h < 2; ++h)
          totals[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t][h]), x_scale, totals[t][h]);
      }
    }
    __m256 mins[kTokens][2];
    step_mins<Code, kTokens>(panel, i, first, a, mins);
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      GREENROOM_UNROLL
      for (int h = 0; h < 2; ++h) {
        float* to = out + t * out_stride + 8 * h;
        const __m256 acc =
            add_step<Code>(panel->heads[first / kUnit][i][h], _mm256_loadu_ps(to), totals[t][h], mins[t][h]);
        _mm256_storeu_ps(to, acc);
      }
    }
  }
}

struct Multiplier {
  template <class Code>
  static void run(const Panel<Code>* panel, typename Panel<Code>::Filler*, size_t groups, const Share& share,
                  const void* const* x, size_t tokens, size_t first_group, float* out, size_t out_stride) {
    constexpr bool kSix = Panel<Code>::kMostTokens == 6;
    if (kSix && tokens == 6)
      both<Code, kSix ? 6 : 1>(panel, groups, share, x, first_group, out, out_stride);
    else if (kSix && tokens == 5)
      both<Code, kSix ? 5 : 1>(panel, groups, share, x, first_group, out, out_stride);
    else if (tokens == 4)
      both<Code, 4>(panel, groups, share, x, first_group, out, out_stride);
    else if (tokens == 3)
      both<Code, 3>(panel, groups, share, x, first_group, out, out_stride);
    else if (tokens == 2)
      both<Code, 2>(panel, groups, share, x, first_group, out, out_stride);
    else
      both<Code, 1>(panel, groups, share, x, first_group, out, out_stride);
  }

private:
  template <class Code, int kTokens>
  static void both(const Panel<Code>* panel, size_t groups, const Share& share, const void* const* x,
                   size_t first_group, float* out, size_t out_stride) {
    const ActivationGroup* a[kTokens];
    GREENROOM_UNROLL
    for (int t = 0; t < kTokens; ++t)
      a[t] = static_cast<const ActivationGroup*>(x[t]) + first_group;
    if (first_group == 0) {
      GREENROOM_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        GREENROOM_UNROLL
        for (int h = 0; h < 4; ++h) // GCC makes a slow loop of memset
          _mm256_storeu_ps(out + t * out_stride + 8 * h, _mm256_setzero_ps());
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      if constexpr (Code::kWhole)
        multiply_whole<Code, kTokens>(panel, i, groups, share, a, out + 16 * i, out_stride);
      else
        multiply<Code, kTokens>(panel, i, groups, share, a, out + 16 * i, out_stride);
    }
  }
};

} // namespace
} // namespace greenroom
