// For any CPU.
#include "recode_body.h"

namespace greenroom {

constinit const RecodeKernels kPortableRecode = {int8_groups, int4_groups};

} // namespace greenroom
