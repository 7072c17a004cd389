// The contract between the ISA-specific files and everything else. Plain declarations only: no inline function, no
// template and no standard header with code may appear here, or a linker could keep an AVX copy of it for everybody.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace greenroom {

// Output rows interleaved in one strip: one AVX-512 register of 32-bit lanes, two of AVX2.
enum : size_t {
  kStripRows = 16,
  kGroup = 32,
  kTokenBlock = 64, // activations of more would not stay in the L1 cache while a block of columns passes
  kPairTokens = 9   // from here on two strips at once are faster
};

// clang-format off: it tears the table
// How weights lie in memory. A strip holds 16 output rows; it is a sequence of steps along the columns. "Lane r" is the
// r-th piece of four bytes of a load of 64 bytes and belongs to row r.
//   nibbles     32 columns, 4 loads: byte b of lane r of load j has column 4j + b in the low half, 16 + 4j + b in the
//               high one.
//   bytes       32 columns, 8 loads: lane r of load j has columns 4j .. 4j + 3.
//   fifth bits  32 columns, 1 load: bit j of byte b of lane r belongs to column 4j + b.
//   pairs       32 columns, 2 loads: bits 2i and 2i + 1 of byte b of lane r of load h belong to column 16h + 4i + b.
// Steps:
//   int4_f16*   32 columns: nibbles, then 16 scales, then 16 minima if any.
//   int4_nl, _mx 32 columns: nibbles, then 16 f16 scales (nl) or 16 bytes of e8m0 exponents (mx).
//   int4_nv     32 columns: nibbles, then 16 e4m3 scales for columns 0 .. 15 and 16 for the others.
//   int4_xs     256 columns: 2 loads of scale words, 8 times nibbles. Lane r of word p: six bits at 6i are the scale of
//               group 4p + i; the top bytes are the low and high byte of d (f16).
//   int4_k      256 columns, 8 groups: 4 loads of scale words, then 8 times nibbles. Lane r of word p: bits 0-5
//               and 6-11 are scale and minimum of group 2p, bits 12-17 and 18-23 those of group 2p + 1; bits 24-31 of
//               words 0 and 1 are the low and high byte of d, of words 2 and 3 of -dmin (f16).
//   int5_f16*   as int4_f16*, with fifth bits behind the nibbles.
//   int5_k      as int4_k, with fifth bits behind each group's nibbles.
//   int8_f16    32 columns: bytes, then 16 f16 scales.
//   int2_k      256 columns: 16 f16 d, 16 f16 -dmin, then 8 groups of pairs and 32 bytes: of columns 0 .. 15 of
//               all rows, then of the others, the scale in the low half and the minimum in the high one.
//   int3_k      256 columns: 16 f16 d, 3 loads of scale words, then 8 groups of pairs and "fifth" (here third) bits.
//               Lane r of word p: six bits at 6i are the scale of columns 64p + 16i on; the top bytes of words 0, 1, 2
//               are those of columns 192 on.
//   int6_k      256 columns: 16 f16 d, then 8 groups of nibbles, pairs (the upper two bits) and 32 int8 scales,
//               first of all rows for columns 0 .. 15, then for 16 .. 31.
//   *_block*    Scaling::columns columns, at least 32: nibbles or bytes of all of them, then 16 scales of the type
//               Scaling names, then 16 bytes of zero points if any.
//   *_halves*   32 columns: nibbles or bytes, then 16 scales for columns 0 .. 15, 16 for the others, zero points alike.
//   e4m3        Scaling::columns columns, at least 16: a load per four of them, lane r with columns 0, 2, 1, 3 of the
//               four; then 16 scales. No code is a NaN: where one was stored, the scale is NaN.
//   bf16         2 columns: 16 rows of adjacent pairs.
//   f16, f32     1 column: 16 rows.
// clang-format on
enum Kind : uint8_t {
  kInt4F16,       // scale * (q - 8), f16 scale
  kInt4F16Min,    // scale * q + min, f16 both
  kInt4K,         // (d * scale) * q + (-dmin) * min, products in f32
  kInt4Nl,        // scale * kNlValues[q], f16 scale
  kInt4Mx,        // 2^(e - 128) * kMxValues[q]
  kInt4Nv,        // e4m3 / 2 * kMxValues[q], scales for 16 columns
  kInt4Xs,        // (d * (scale - 32)) * kNlValues[q]
  kInt5F16,       // scale * (q - 16), f16 scale
  kInt5F16Min,    // scale * q + min, f16 both
  kInt5K,         // as kInt4K
  kInt8F16,       // scale * q, f16 scale
  kInt2K,         // (d * scale) * q + (-dmin) * min, scales for 16 columns
  kInt3K,         // (d * (scale - 32)) * (q - 4), scales for 16 columns
  kInt6K,         // (d * scale) * (q - 32), scales for 16 columns, product in f32
  kInt4Block,     // scale * (q - 8)
  kInt4BlockZero, // scale * (q - zero)
  kInt8Block,     // scale * q
  kInt8BlockZero, // scale * (q + 128 - zero)
  kInt4Halves,    // the same four with scales for 16 columns
  kInt4HalvesZero,
  kInt8Halves,
  kInt8HalvesZero,
  kE4m3, // scale * q
  kBf16,
  kF16,
  kF32,
  kKinds
};

// What the kinds named *_block*, *_halves* and e4m3 leave open: columns per scale (16, 32, 64 or 128) and its type.
enum ScaleType : uint8_t { kScaleF16, kScaleBf16, kScaleF32 };
struct Scaling {
  uint8_t columns;
  ScaleType type;
};

// What the codes of IQ4_NL and of MXFP4 (twice e2m1) stand for.
constexpr int8_t kNlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kMxValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// How activations are handed to a kernel.
enum ActivationForm : uint8_t { kActInt8, kActF32, kActBf16 };

// 32 activations, int8 symmetric, with every sum a kernel can want, in one cache line: a broadcast then never splits.
struct alignas(64) ActivationGroup {
  int8_t q[32]; // -127 .. 127
  float scale;
  int32_t sum_x8;    // -8 * sum(q): start value for codes stored with offset 8
  int32_t sum_x128;  // -128 * sum(q): start value where weights are read with offset 128
  float scaled_sum;  // scale * sum(q): what a minimum is multiplied by
  int32_t low_x32;   // -32 * sum(q[0..15]): start value for codes stored with offset 32
  int32_t high_x32;  // -32 * sum(q[16..31])
  float scaled_low;  // scale * sum(q[0..15]), for minima of 16 columns
  int16_t halves[2]; // sum(q[0..15]), sum(q[16..31])
};

// Products of one strip, or of two strips of one matrix that share the loads of activations (faster with many tokens).
struct StripTask {
  const uint8_t* strip;
  const uint8_t* second; // or null
  size_t steps;
  const uint8_t* next; // what will be read afterwards, fetched meanwhile
  const uint8_t* next_second;
  Scaling scaling;
  // Activations that will be read soon, whole cache lines of each row: two strips fetch them meanwhile.
  const void* const* soon = nullptr;
  size_t soon_rows = 0, soon_nbytes = 0;
};

// out[t * out_stride + r] = sum over columns of weight[r, c] * x_t[c] for the 16 rows of the strip, t < tokens; those
// of the second strip follow at out + 16. x: one pointer per token (ActivationGroup, float or bf16, as the form says).
// The order of additions is the same for any number of tokens and strips.
typedef void (*StripKernel)(const StripTask* task, const void* const* x, size_t tokens, float* out, size_t out_stride);

struct KernelTable {
  const char* name;
  StripKernel strip[kKinds];
  ActivationForm bf16_form; // what strip[kBf16] and strip[kE4m3] want: kActF32 or kActBf16
  // x [32 * groups] -> out [groups]. A group with a NaN or an infinity gets scale NaN and codes 0.
  void (*quantise)(const float* x, size_t groups, ActivationGroup* out);
  // x [n] -> bf16, nearest even. n is a multiple of 16.
  void (*round_bf16)(const float* x, size_t n, uint16_t* out);
  // Reads n bytes (a multiple of 512) at 64-byte aligned p once: the yardstick for decode.
  uint64_t (*read)(const uint8_t* p, size_t n);
};

// One constant table per tier; each lives in its own translation unit.
extern const KernelTable kPortableKernels;
#ifdef GREENROOM_X86
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels; // integer kinds alone; the others stay with kAvx2Kernels
extern const KernelTable kAvx512VnniKernels;
extern const KernelTable kAvx512Bf16Kernels; // kBf16 and kE4m3; other kinds stay with kAvx512VnniKernels
extern const KernelTable kAmxKernels;        // integer kinds, bf16 and e4m3

// Defined with kAvx2Kernels, used by kAvxVnniKernels too.
namespace avx2 {
void quantise(const float* x, size_t groups, ActivationGroup* out);
void round_bf16(const float* x, size_t n, uint16_t* out);
uint64_t read(const uint8_t* p, size_t n);
} // namespace avx2

// Defined with kAvx512VnniKernels, used by kAvx512Bf16Kernels and kAmxKernels too.
namespace avx512 {
void quantise(const float* x, size_t groups, ActivationGroup* out);
void round_bf16(const float* x, size_t n, uint16_t* out);
uint64_t read(const uint8_t* p, size_t n);
} // namespace avx512
#endif

} // namespace greenroom
