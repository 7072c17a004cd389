// Vector kernels with AVX-512 (F, BW, VL, DQ). Only plain C headers: nothing compiled here may be shared with baseline
// files.
#include <immintrin.h>
#include <math.h>

#include "exponential_avx512.h"
#include "vector_kernels.h"

namespace greenroom {
namespace {

#include "lanes_avx512.h"

#include "vector_body.h"

} // namespace

const VectorKernels kAvx512Vectors = {
    "avx512", {gate<kSilu>, gate<kGeluTanh>, gate<kOai>}, add_weighted, rms_norm, rotate};

} // namespace greenroom
