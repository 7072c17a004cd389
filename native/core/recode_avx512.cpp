// With AVX-512.
#include "recode_body.h"

namespace greenroom {

constinit const RecodeKernels kAvx512Recode = {int8_groups, int4_groups, int4_g128_groups};

} // namespace greenroom
