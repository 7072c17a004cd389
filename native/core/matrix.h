// One packed weight matrix: y = x W^T.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arena.h"
#include "file_rows.h"
#include "packing.h"

namespace greenroom {

class Matrix {
public:
  // Throws std::invalid_argument for a shape or name that makes no sense, std::bad_alloc.
  Matrix(long long rows, long long columns, const std::string& format, const std::optional<std::string>& recode,
         const std::optional<std::string>& isa);

  const Layout& layout() const { return packed_.layout; }
  size_t nbytes() const { return packed_.layout.nbytes(); }
  const KernelTable& kernels() const { return *kernels_; }

  void load(ThreadPool& pool, const uint8_t* data, size_t nbytes, long long first_row);
  // The same from a file, starting at offset.
  void load_file(ThreadPool& pool, const InputFile& file, uint64_t offset, size_t nbytes, long long first_row);
  // What some rows are multiplied by; 1 at first. Throws std::invalid_argument when it is not finite or they do not
  // exist.
  void set_factor(long long first_row, long long rows, float factor);
  // Columns are stored in another order: column c is that of x's element order[c]. order [columns] is a permutation,
  // else std::invalid_argument is thrown.
  void set_columns(const int32_t* order, size_t columns);
  // x f32 [tokens, columns], y f32 [tokens, rows].
  void forward(ThreadPool& pool, const float* x, size_t tokens, float* y) const;
  void forward(ThreadPool::Call& call, const float* x, size_t tokens, float* y, const Ahead& ahead = {}) const;
  // Several matrices with as many columns, one above the other: y f32 [tokens, rows of all].
  static void forward(ThreadPool::Call& call, std::span<const std::shared_ptr<const Matrix>> parts, const float* x,
                      size_t tokens, float* y, const Ahead& ahead = {});
  // What a product with few tokens reads.
  Stream stream() const { return {packed_.base, layout().strips, packed_.strip_stride}; }
  // out f32 [rows, columns].
  void dequantise(float* out) const { dequantise_row_range(0, layout().rows, out); }
  // Some rows, in the order asked for: out f32 [count, columns]. Throws std::invalid_argument for one that is not
  // there.
  void dequantise(const int64_t* rows, size_t count, float* out) const;

private:
  struct Product;

  static void multiply(ThreadPool::Call& call, std::span<Product> products, size_t tokens, const Ahead& ahead);
  void quantise(const Product& product, size_t token) const;
  void multiply_tile(const Product& product, size_t tokens, size_t tile, const uint8_t* behind) const;
  void dequantise_row_range(size_t first, size_t last, float* out) const;

  PackedMatrix packed_;
  std::vector<float> factors_;   // [rows], or empty while all are 1
  std::vector<int32_t> columns_; // [columns], or empty while they are in order
  const KernelTable* kernels_;
  Arena arena_;
};

} // namespace greenroom
