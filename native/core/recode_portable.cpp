// For any CPU.
#include "recode_body.h"

namespace greenroom {

constinit const RecodeKernels kPortableRecode = {int8_groups, int4_groups, int4_g128_groups};

} // namespace greenroom
