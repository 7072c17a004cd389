// The contract between attention's ISA-specific files and everything else; plain declarations only, as in kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace greenroom {

enum : size_t {
  // Keys scored together. Blocks start at multiples of it from the sequence's first key, whatever is asked for.
  kKeyBlock = 64,
  // Keys whose sum is kept by itself before it joins the others: the smallest share of a long context for one thread.
  kSplitKeys = 512,
  // Values are padded to a multiple of this.
  kValueLanes = 16
};

// How keys and values are stored.
enum KvType : uint8_t { kKvF32, kKvBf16, kKvF16, kKvQ8, kKvTypes };

// One head's keys lie in blocks of 64, turned: [blocks, head_dim, 64]. Scores of 64 keys are then plain vector sums for
// one query and for many, in the same order. Its values lie in rows: [blocks * 64, width], zero beyond head_dim. Each
// block of int8 keys or values is followed by their 64 f32 scales. The block of key k is k / 64 modulo the number of
// blocks: a layer that looks back a limited way needs no more than that.
//
// Kernels that multiply pairs keep neighbours together, in the same room: keys [blocks, head_dim / 2, 64, 2] with an
// odd last dimension [64] behind each block's pairs, values [blocks * 32, width, 2] where the pair is two keys.
//
// A row is a query at one head; the rows of a task share the keys. Rows come in groups, one for each token: token t
// sees the keys first[t] .. visible + t - 1 of the head; first never falls.
struct AttentionTask {
  const float* const* q; // one pointer per row, [head_dim], scaled; for kernels of pairs [head_dim] bf16, 0 behind odd
  size_t rows, group, visible;
  const size_t* first;
  size_t first_key, last_key; // a split: first_key is a multiple of kSplitKeys, last_key at most what the last row sees
  size_t blocks;
  size_t head_dim, width;
  const uint8_t* keys;
  const uint8_t* values;
  float* states; // one per row, width + kStateExtra apart; a row that sees nothing of the split gets an empty sum
};

// The sum over one split: [width] values weighted by e^(score - largest) or, for scores in units of ln 2, a power of 2;
// then the largest score and the weights' sum.
enum : size_t { kStateLargest = 0, kStateSum = 1, kStateExtra = 16 };

struct AttentionKernels {
  const char* name;
  void (*attend[kKvTypes])(const AttentionTask* task);
  // The state of two splits together, in place of the first.
  void (*merge)(float* state, const float* next, size_t width);
  // x [n] as stored, n a multiple of 16: nearest even. The scale of int8 follows the codes. out may be x.
  void (*narrow[kKvTypes])(const float* x, size_t n, void* out);
  bool pairs;       // these multiply pairs of bf16
  float score_unit; // what scores are multiplied by beforehand
};

extern const AttentionKernels kPortableAttention;
#ifdef GREENROOM_X86
extern const AttentionKernels kAvx2Attention;
extern const AttentionKernels kAvx512Attention;     // F, BW, VL, DQ
extern const AttentionKernels kAvx512Bf16Attention; // and BF16, for keys and values in bf16 only
#endif

} // namespace greenroom
