#include "matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "activations.h"
#include "dispatch.h"

namespace greenroom {
namespace {

// More tokens at once would only make the scratch larger.
constexpr size_t kMostTokens = 1024;
// Strips of a prefill tile: their weights and a block of activations fit the L2 cache together.
constexpr size_t kPrefillStrips = 4;

} // namespace

Matrix::Matrix(long long rows, long long columns, const std::string& format, const std::optional<std::string>& recode,
               const std::optional<std::string>& isa) {
  packed_.layout = layout_of(rows, columns, format, recode);
  kernels_ = &kernels_for(packed_.layout.kind, isa);
  arena_ = Arena(packed_.layout.nbytes());
  packed_.base = reinterpret_cast<uint8_t*>(arena_.data());
  packed_.strip_stride = packed_.layout.strip_nbytes;
}

void Matrix::load(ThreadPool& pool, const uint8_t* data, size_t nbytes, long long first_row) {
  pack(pool, packed_, data, nbytes, first_row);
}

void Matrix::load_file(ThreadPool& pool, const InputFile& file, uint64_t offset, size_t nbytes, long long first_row) {
  pack_file(pool, packed_, file, offset, nbytes, first_row);
}

void Matrix::set_factor(long long first_row, long long rows, float factor) {
  const auto all = static_cast<long long>(layout().rows);
  if (first_row < 0 || rows < 0 || first_row > all || rows > all - first_row)
    throw std::invalid_argument("a matrix of " + std::to_string(all) + " rows has no " + std::to_string(rows) +
                                " from row " + std::to_string(first_row) + " on");
  if (!std::isfinite(factor))
    throw std::invalid_argument("a factor of weights must be finite");
  if (factors_.empty() && factor != 1.0f)
    factors_.assign(layout().rows, 1.0f);
  if (!factors_.empty())
    std::fill_n(factors_.begin() + first_row, rows, factor);
}

void Matrix::set_columns(const int32_t* order, size_t columns) {
  check_permutation(order, columns, layout().columns);
  columns_.assign(order, order + columns);
}

void Matrix::dequantise_row_range(size_t first, size_t last, float* out) const {
  dequantise_rows(packed_, first, last, out);
  const size_t columns = layout().columns;
  std::vector<float> stored(columns_.size());
  for (size_t row = first; row < last; ++row, out += columns) {
    if (!factors_.empty())
      for (size_t c = 0; c < columns; ++c)
        out[c] *= factors_[row];
    std::copy_n(out, stored.size(), stored.begin());
    for (size_t c = 0; c < stored.size(); ++c)
      out[columns_[c]] = stored[c];
  }
}

void Matrix::dequantise(const int64_t* rows, size_t count, float* out) const {
  for (size_t i = 0; i < count; ++i)
    if (rows[i] < 0 || static_cast<size_t>(rows[i]) >= layout().rows)
      throw std::invalid_argument("row " + std::to_string(rows[i]) + " does not exist: the matrix has " +
                                  std::to_string(layout().rows));
  for (size_t i = 0; i < count; ++i) {
    const size_t row = static_cast<size_t>(rows[i]);
    dequantise_row_range(row, row + 1, out + i * layout().columns);
  }
}

void Matrix::forward(ThreadPool& pool, const float* x, size_t tokens, float* y) const {
  ThreadPool::Call call(pool);
  forward(call, x, tokens, y);
}

void Matrix::forward(ThreadPool::Call& call, const float* x, size_t tokens, float* y, const Ahead& ahead) const {
  for (size_t first = 0; first < tokens; first += kMostTokens)
    forward_chunk(call, x + first * layout().columns, std::min(kMostTokens, tokens - first), y + first * layout().rows,
                  ahead);
}

void Matrix::forward_chunk(ThreadPool::Call& call, const float* x, size_t tokens, float* y, const Ahead& ahead) const {
  const Layout& layout = packed_.layout;
  const ActivationForm form = form_of(layout.kind, *kernels_);
  const size_t row_nbytes = activation_row_nbytes(form, layout.columns);
  std::byte* acts = call.scratch(tokens * row_nbytes);

  auto quantise_token = [&](size_t t, int) {
    const float* row = x + t * layout.columns;
    std::vector<float> turned(columns_.size());
    for (size_t c = 0; c < turned.size(); ++c)
      turned[c] = row[columns_[c]];
    prepare_row(*kernels_, form, turned.empty() ? row : turned.data(), layout.columns, acts + t * row_nbytes);
  };

  const size_t strips_per_tile = tokens > 8 ? kPrefillStrips : 1;
  const StripKernel kernel = kernels_->strip[layout.kind];
  auto multiply = [&](size_t tile, int) {
    const size_t first = tile * strips_per_tile, last = std::min(layout.strips, first + strips_per_tile);
    const void* rows[kTokenBlock];
    float out[kTokenBlock * 2 * kStripRows];
    for (size_t t0 = 0; t0 < tokens; t0 += kTokenBlock) {
      const size_t n = std::min<size_t>(kTokenBlock, tokens - t0);
      for (size_t t = 0; t < n; ++t)
        rows[t] = acts + (t0 + t) * row_nbytes;
      const size_t at_once = n >= kPairTokens ? 2 : 1;
      for (size_t strip = first; strip < last; strip += at_once) {
        const bool paired = strip + 1 < last && at_once == 2;
        const size_t after = strip + (paired ? 2 : 1), row = strip * kStripRows;
        const uint8_t* next = packed_.strip(after < last || t0 + n == tokens ? after : first);
        const StripTask task = {packed_.strip(strip),
                                paired ? packed_.strip(strip + 1) : nullptr,
                                layout.steps,
                                next,
                                next + packed_.strip_stride,
                                layout.scaling};
        kernel(&task, rows, n, out, 2 * kStripRows);
        const size_t valid = std::min((after - strip) * kStripRows, layout.rows - row);
        for (size_t t = 0; t < n; ++t) {
          float* to = y + (t0 + t) * layout.rows + row;
          const float* from = out + t * 2 * kStripRows;
          if (factors_.empty())
            std::memcpy(to, from, valid * sizeof(float));
          else
            for (size_t r = 0; r < valid; ++r)
              to[r] = from[r] * factors_[row + r];
        }
      }
    }
  };
  const size_t tiles = (layout.strips + strips_per_tile - 1) / strips_per_tile;
  call.run({{tokens, quantise_token}, {tiles, multiply, {}, stream()}}, ahead);
}

} // namespace greenroom
