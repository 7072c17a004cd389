// AVX-VNNI: products of bytes summed in 32 bits by one instruction, 256 bits wide. Everything else is as with AVX2.
#define GREENROOM_VNNI_256
#include "integer_strips_256.h"

namespace greenroom {

namespace {

constexpr KernelTable table() {
  KernelTable t = {"avxvnni", {}, kActF32, avx2::quantise, avx2::round_bf16, avx2::read};
  t.strip[kInt4F16] = strip_int<Int4<false, false>>;
  t.strip[kInt4F16Min] = strip_int<Int4<true, false>>;
  t.strip[kInt4K] = strip_int<Int4K<false>>;
  t.strip[kInt4Nl] = strip_int<Int4Nl>;
  t.strip[kInt4Mx] = strip_int<Int4Mx>;
  t.strip[kInt4Nv] = strip_int<Int4Nv>;
  t.strip[kInt4Xs] = strip_int<Int4Xs>;
  t.strip[kInt5F16] = strip_int<Int4<false, true>>;
  t.strip[kInt5F16Min] = strip_int<Int4<true, true>>;
  t.strip[kInt5K] = strip_int<Int4K<true>>;
  t.strip[kInt8F16] = strip_int<Int8>;
  t.strip[kInt2K] = strip_int<Int2K>;
  t.strip[kInt3K] = strip_int<Int3K>;
  t.strip[kInt6K] = strip_int<Int6K>;
  t.strip[kInt4Block] = strip_int<Block<true, false, false>>;
  t.strip[kInt4BlockZero] = strip_int<Block<true, true, false>>;
  t.strip[kInt8Block] = strip_int<Block<false, false, false>>;
  t.strip[kInt8BlockZero] = strip_int<Block<false, true, false>>;
  t.strip[kInt4Halves] = strip_int<Block<true, false, true>>;
  t.strip[kInt4HalvesZero] = strip_int<Block<true, true, true>>;
  t.strip[kInt8Halves] = strip_int<Block<false, false, true>>;
  t.strip[kInt8HalvesZero] = strip_int<Block<false, true, true>>;
  return t;
}

} // namespace

constinit const KernelTable kAvxVnniKernels = table();

} // namespace greenroom
