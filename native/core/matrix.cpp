#include "matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "activations.h"
#include "dispatch.h"

namespace greenroom {
namespace {

// More tokens at once would only make the scratch larger.
constexpr size_t kMostTokens = 1024;
constexpr size_t kMostParts = 4; // matrices multiplied at once

// Strips of a prefill tile: as many as leave each thread a few tiles, because every tile reads all activations, but no
// more than fit the L2 cache together with a block of these. (With two threads 2, 4, 8 and 16 take the same time.)
size_t strips_per_tile(size_t strips, size_t threads) {
  return std::clamp<size_t>(strips / (4 * threads), 2, 4) / 2 * 2;
}

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

// One of several matrices that are multiplied with the same tokens.
struct Matrix::Product {
  const Matrix* matrix;
  const float* x;
  float* y;
  size_t y_stride; // from one token to the next
  std::byte* acts;
  size_t row_nbytes; // of acts
  bool own_acts;     // false: those of the product before
  size_t first_tile, strips_per_tile;
};

void Matrix::forward(ThreadPool& pool, const float* x, size_t tokens, float* y) const {
  ThreadPool::Call call(pool);
  forward(call, x, tokens, y);
}

void Matrix::forward(ThreadPool::Call& call, const float* x, size_t tokens, float* y, const Ahead& ahead) const {
  Product product{this, x, y, layout().rows, nullptr, 0, true, 0, 1};
  multiply(call, {&product, 1}, tokens, ahead);
}

void Matrix::forward(ThreadPool::Call& call, std::span<const std::shared_ptr<const Matrix>> parts, const float* x,
                     size_t tokens, float* y, const Ahead& ahead) {
  size_t rows = 0;
  for (const auto& part : parts)
    rows += part->layout().rows;
  Product products[kMostParts];
  for (size_t first = 0; first < parts.size(); first += kMostParts) {
    const size_t count = std::min(kMostParts, parts.size() - first), last = first + count;
    for (size_t i = 0; i < count; ++i) {
      products[i] = {parts[first + i].get(), x, y, rows, nullptr, 0, true, 0, 1};
      y += parts[first + i]->layout().rows;
    }
    multiply(call, {products, count}, tokens, last < parts.size() ? Ahead{parts[last]->stream()} : ahead);
  }
}

void Matrix::multiply(ThreadPool::Call& call, std::span<Product> products, size_t tokens, const Ahead& ahead) {
  const size_t threads = static_cast<size_t>(call.threads());
  for (size_t first = 0; first < tokens; first += kMostTokens) {
    const size_t n = std::min(kMostTokens, tokens - first);
    size_t nbytes = 0, tiles = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      Product& product = products[i];
      const Matrix& matrix = *product.matrix;
      const ActivationForm form = form_of(matrix.layout().kind, *matrix.kernels_);
      const Matrix* before = i ? products[i - 1].matrix : nullptr;
      product.own_acts = !before || !matrix.columns_.empty() || !before->columns_.empty() ||
                         form != form_of(before->layout().kind, *before->kernels_);
      product.row_nbytes = activation_row_nbytes(form, matrix.layout().columns);
      nbytes += product.own_acts ? (n * product.row_nbytes + 63) / 64 * 64 : 0;
      product.strips_per_tile = n > 8 ? strips_per_tile(matrix.layout().strips, threads) : 1;
      product.first_tile = tiles;
      tiles += (matrix.layout().strips + product.strips_per_tile - 1) / product.strips_per_tile;
    }
    std::byte* acts = call.scratch(nbytes);
    for (size_t i = 0; i < products.size(); ++i) {
      Product& product = products[i];
      product.acts = product.own_acts ? acts : products[i - 1].acts;
      acts += product.own_acts ? (n * product.row_nbytes + 63) / 64 * 64 : 0;
    }
    const auto quantise_token = [&](size_t token, int) {
      for (const Product& product : products)
        if (product.own_acts)
          product.matrix->quantise(product, token);
    };
    const auto multiply_one = [&](size_t tile, int worker) {
      size_t i = products.size() - 1;
      while (products[i].first_tile > tile)
        --i;
      // What is read afterwards, if that is not the matrix's next tile.
      const uint8_t* behind = nullptr;
      if (ends_share(tile, tiles, static_cast<size_t>(worker), threads))
        behind = ahead.first.share(static_cast<size_t>(worker), threads);
      else if (i + 1 < products.size() && tile + 1 == products[i + 1].first_tile)
        behind = products[i + 1].matrix->packed_.base;
      products[i].matrix->multiply_tile(products[i], n, tile - products[i].first_tile, behind);
    };
    Stream stream = products[0].matrix->stream();
    stream.there = std::exchange(stream.tiles, tiles);
    call.run({{n, quantise_token}, {tiles, multiply_one, {}, stream}}, ahead);
    for (Product& product : products) {
      product.x += n * product.matrix->layout().columns;
      product.y += n * product.y_stride;
    }
  }
}

void Matrix::quantise(const Product& product, size_t token) const {
  const float* row = product.x + token * layout().columns;
  std::vector<float> turned(columns_.size());
  for (size_t c = 0; c < turned.size(); ++c)
    turned[c] = row[columns_[c]];
  prepare_row(*kernels_, form_of(layout().kind, *kernels_), turned.empty() ? row : turned.data(), layout().columns,
              product.acts + token * product.row_nbytes);
}

void Matrix::multiply_tile(const Product& product, size_t tokens, size_t tile, const uint8_t* behind) const {
  const Layout& layout = packed_.layout;
  const StripKernel kernel = kernels_->strip[layout.kind];
  const size_t first = tile * product.strips_per_tile, last = std::min(layout.strips, first + product.strips_per_tile);
  const void* rows[kTokenBlock];
  alignas(64) float out[kTokenBlock * 2 * kStripRows];
  for (size_t t0 = 0; t0 < tokens; t0 += kTokenBlock) {
    const size_t n = std::min<size_t>(kTokenBlock, tokens - t0);
    for (size_t t = 0; t < n; ++t)
      rows[t] = product.acts + (t0 + t) * product.row_nbytes;
    const size_t at_once = n >= kPairTokens ? 2 : 1;
    for (size_t strip = first; strip < last; strip += at_once) {
      const bool paired = strip + 1 < last && at_once == 2;
      const size_t after = strip + (paired ? 2 : 1), row = strip * kStripRows;
      const bool over = after == last && t0 + n == tokens;
      const uint8_t* next = over && behind ? behind : packed_.strip(after < last || over ? after : first);
      const StripTask task = {packed_.strip(strip),
                              paired ? packed_.strip(strip + 1) : nullptr,
                              layout.steps,
                              next,
                              next + packed_.strip_stride,
                              layout.scaling};
      kernel(&task, rows, n, out, 2 * kStripRows);
      const size_t valid = std::min((after - strip) * kStripRows, layout.rows - row);
      for (size_t t = 0; t < n; ++t) {
        float* to = product.y + (t0 + t) * product.y_stride + row;
        const float* from = out + t * 2 * kStripRows;
        if (factors_.empty())
          std::memcpy(to, from, valid * sizeof(float));
        else
          for (size_t r = 0; r < valid; ++r)
            to[r] = from[r] * factors_[row + r];
      }
    }
  }
}

} // namespace greenroom
