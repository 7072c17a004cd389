// Vector kernels in plain C++, for any CPU.
#include <math.h>

#include <cmath>
#include <cstring>

#include "vector_kernels.h"

namespace greenroom {
namespace {

#include "lanes_portable.h"

#include "vector_body.h"

} // namespace

const VectorKernels kPortableVectors = {
    "portable", {gate<kSilu>, gate<kGeluTanh>, gate<kOai>}, add_weighted, rms_norm, rotate};

} // namespace greenroom
