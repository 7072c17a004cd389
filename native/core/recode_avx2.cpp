// With AVX2.
#include "recode_body.h"

namespace greenroom {

constinit const RecodeKernels kAvx2Recode = {int8_groups, int4_groups, int4_g128_groups};

} // namespace greenroom
