// Vector kernels with AVX2, FMA and F16C. Only plain C headers: nothing compiled here may be shared with baseline
// files.
#include <immintrin.h>
#include <math.h>

#include "exponential_avx2.h"
#include "vector_kernels.h"

namespace greenroom {
namespace {

#include "lanes_avx2.h"

#include "vector_body.h"

} // namespace

const VectorKernels kAvx2Vectors = {"avx2", {gate<kSilu>, gate<kGeluTanh>, gate<kOai>}, add_weighted, rms_norm, rotate};

} // namespace greenroom
