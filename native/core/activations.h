// Activation rows in the form a kernel wants.
#pragma once

#include <cstddef>

#include "kernels.h"

namespace greenroom {

// Bytes from one row to the next. Rows are padded by a cache line, so that rows of a power-of-two size do not all fall
// into the same cache sets.
size_t activation_row_nbytes(ActivationForm form, size_t columns);

// x [columns] -> row; columns up to the next multiple of 32 are zero.
void prepare_row(const KernelTable& table, ActivationForm form, const float* x, size_t columns, void* row);

// 32 values of a row, starting at column 32 * group; x [32] is already zero beyond the last column.
void prepare_group(const KernelTable& table, ActivationForm form, const float* x, size_t group, void* row);

} // namespace greenroom
