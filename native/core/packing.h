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
  uint8_t* base = nullptr; // of strip first_strip
  size_t strip_stride = 0;
  size_t first_strip = 0; // those before it lie elsewhere

  uint8_t* strip(size_t index) const { return base + (index - first_strip) * strip_stride; }
};

// Packs stored rows [first_row, first_row + row count of data) in parallel. Throws std::invalid_argument when data is
// not a whole number of rows that fit, or when a recoding meets NaN or infinite weights.
void pack(ThreadPool& pool, const PackedMatrix& matrix, const uint8_t* data, size_t nbytes, long long first_row);

// Throws std::invalid_argument unless order names each of `columns` once.
void check_permutation(const int32_t* order, size_t count, size_t columns);

// Rows [first, last) of the weights as f32 [last - first, columns].
void dequantise_rows(const PackedMatrix& matrix, size_t first, size_t last, float* out);

} // namespace greenroom
