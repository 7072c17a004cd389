#include "activations.h"

#include <cstdint>
#include <cstring>

namespace greenroom {

size_t activation_row_nbytes(ActivationForm form, size_t columns) {
  const size_t groups = (columns + kGroup - 1) / kGroup;
  const size_t per_group = form == kActInt8 ? sizeof(ActivationGroup) : kGroup * (form == kActF32 ? 4 : 2);
  return groups * per_group + 64;
}

void prepare_row(const KernelTable& table, ActivationForm form, const float* x, size_t columns, void* row) {
  const size_t whole = columns / kGroup, rest = columns % kGroup;
  if (form == kActInt8) {
    table.quantise(x, whole, static_cast<ActivationGroup*>(row));
  } else if (form == kActF32) {
    std::memcpy(row, x, whole * kGroup * sizeof(float));
  } else {
    table.round_bf16(x, whole * kGroup, static_cast<uint16_t*>(row));
  }
  if (rest) {
    float padded[kGroup] = {};
    std::memcpy(padded, x + whole * kGroup, rest * sizeof(float));
    prepare_group(table, form, padded, whole, row);
  }
}

void prepare_group(const KernelTable& table, ActivationForm form, const float* x, size_t group, void* row) {
  if (form == kActInt8) {
    table.quantise(x, 1, static_cast<ActivationGroup*>(row) + group);
  } else if (form == kActF32) {
    std::memcpy(static_cast<float*>(row) + group * kGroup, x, kGroup * sizeof(float));
  } else {
    table.round_bf16(x, kGroup, static_cast<uint16_t*>(row) + group * kGroup);
  }
}

} // namespace greenroom
