// AVX-VNNI: products of bytes summed in 32 bits by one instruction, 256 bits wide. Everything else is as with AVX2.
#define GREENROOM_VNNI_256
#include "integer_strips_256.h"

namespace greenroom {

const KernelTable kAvxVnniKernels = {
    "avxvnni",
    {strips<strip_int<Int4<false, false>>>, strips<strip_int<Int4<true, false>>>, strips<strip_int<Int4K<false>>>,
     strips<strip_int<Int4Nl>>, strips<strip_int<Int4Mx>>, strips<strip_int<Int4<false, true>>>,
     strips<strip_int<Int4<true, true>>>, strips<strip_int<Int4K<true>>>, strips<strip_int<Int8>>,
     strips<strip_int<Int6K>>, nullptr, nullptr, nullptr},
    kActF32,
    avx2::quantise,
    avx2::round_bf16,
    avx2::read,
};

} // namespace greenroom
