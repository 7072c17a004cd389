// Between stored rows and packed strips.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats.h"
#include "thread_pool.h"

namespace greenroom {

// Where a packed matrix lies; strips may be spaced wider than their size (gate and up share one stretch of memory).
struct PackedMatrix {
  Layout layout;
  uint8_t* base = nullptr;
  size_t strip_stride = 0;

  uint8_t* strip(size_t index) const { return base + index * strip_stride; }
};

// Packs stored rows [first_row, first_row + row count of data) in parallel. Throws std::invalid_argument when data is
// not a whole number of rows that fit, or when a recoding meets NaN or infinite weights.
void pack(ThreadPool& pool, const PackedMatrix& matrix, const uint8_t* data, size_t nbytes, long long first_row);

// The weights as f32 [rows, columns].
void dequantise(const PackedMatrix& matrix, float* out);

} // namespace greenroom
