#include "experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "activations.h"
#include "dispatch.h"

namespace greenroom {
namespace {

constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;

GateKind gate_named(const std::string& name) {
  if (name == "silu")
    return kSilu;
  if (name == "gelu_tanh")
    return kGeluTanh;
  if (name == "oai")
    return kOai;
  throw std::invalid_argument("unknown activation \"" + name + "\"; known are silu, gelu_tanh, oai");
}

} // namespace

Experts::Experts(long long experts, long long hidden, long long intermediate, const std::string& gate_format,
                 const std::string& up_format, const std::string& down_format, const std::optional<std::string>& recode,
                 const std::optional<std::string>& isa, const std::vector<int>& nodes,
                 const ExpertActivation& activation)
    : vectors_(&vector_kernels(isa)), activation_(gate_named(activation.name)),
      limit_(activation.limit > 0.0f ? activation.limit : std::numeric_limits<float>::infinity()) {
  if (!(activation.limit >= 0.0f))
    throw std::invalid_argument("the limit of an activation must not be negative");
  if (experts < 1 || experts > (1 << 20))
    throw std::invalid_argument("a layer of " + std::to_string(experts) + " experts cannot be packed: 1 to 2^20 can");
  auto make = [&](long long rows, long long columns, const std::string& format) {
    Projection p;
    p.layout = layout_of(rows, columns, format, recode);
    p.kernels = &kernels_for(p.layout.kind, isa);
    p.form = form_of(p.layout.kind, *p.kernels);
    return p;
  };
  gate_ = make(intermediate, hidden, gate_format);
  up_ = make(intermediate, hidden, up_format);
  down_ = make(hidden, intermediate, down_format);
  for (Projection* p : {&gate_, &up_, &down_})
    p->factors.assign(static_cast<size_t>(experts), 1.0f);
  experts_ = static_cast<size_t>(experts);
  counts_ = std::make_unique<std::atomic<uint64_t>[]>(experts_);
  hidden_ = static_cast<size_t>(hidden);
  intermediate_ = static_cast<size_t>(intermediate);

  gate_.strip_stride = up_.strip_stride = gate_.layout.strip_nbytes + up_.layout.strip_nbytes;
  down_.strip_stride = down_.layout.strip_nbytes;
  for (Projection* p : {&gate_, &up_, &down_})
    p->bias.resize(activation.bias ? experts_ * padded_rows(p->layout.rows) : 0);
  slice(std::max<size_t>(1, nodes.size()));
  arena_ = Arena(nbytes_);
  bound_ = !nodes.empty();
  for (size_t n = 0; n < nodes.size(); ++n)
    bound_ &= arena_.bind(slices_[n].offset, experts_ * slices_[n].expert_nbytes, nodes[n]);
}

void Experts::slice(size_t nodes) {
  if (nodes > kMostNodes)
    throw std::invalid_argument("a layer can be spread over " + std::to_string(kMostNodes) + " memory nodes, not " +
                                std::to_string(nodes));
  // Whole tiles, so that none reads from two nodes.
  auto cut = [nodes](size_t strips, size_t n) {
    const size_t tiles = (strips + kTileStrips - 1) / kTileStrips;
    return std::min(strips, tiles * n / nodes * kTileStrips);
  };
  for (size_t n = 0; n < nodes; ++n) {
    Slice slice;
    slice.first_strip = cut(gate_.layout.strips, n);
    slice.strips = cut(gate_.layout.strips, n + 1) - slice.first_strip;
    slice.first_down = cut(down_.layout.strips, n);
    slice.downs = cut(down_.layout.strips, n + 1) - slice.first_down;
    slice.offset = n ? (nbytes_ + kHugePage - 1) / kHugePage * kHugePage : 0;
    slice.expert_nbytes = slice.strips * gate_.strip_stride + slice.downs * down_.strip_stride;
    if (slice.expert_nbytes > (size_t{1} << 46) / experts_)
      throw std::bad_alloc();
    nbytes_ = slice.offset + experts_ * slice.expert_nbytes;
    slices_.push_back(slice);
  }
}

void Experts::touch(size_t node) {
  const Slice& slice = slices_.at(node);
  volatile std::byte* bytes = arena_.data() + slice.offset;
  for (size_t at = 0; at < experts_ * slice.expert_nbytes; at += kPage)
    bytes[at] = std::byte{0};
}

const Experts::Projection& Experts::projection(Part part) const {
  return part == Part::gate ? gate_ : part == Part::up ? up_ : down_;
}

Experts::Projection& Experts::projection(Part part) {
  return part == Part::gate ? gate_ : part == Part::up ? up_ : down_;
}

const Layout& Experts::layout(Part part) const {
  return projection(part).layout;
}
const KernelTable& Experts::kernels(Part part) const {
  return *projection(part).kernels;
}

PackedMatrix Experts::matrix(size_t expert, Part part, const Slice& slice) const {
  const Projection& p = projection(part);
  PackedMatrix packed;
  packed.layout = p.layout;
  packed.strip_stride = p.strip_stride;
  size_t first = slice.first_strip, offset = slice.offset + expert * slice.expert_nbytes;
  if (part == Part::up)
    offset += gate_.layout.strip_nbytes;
  if (part == Part::down) {
    first = slice.first_down;
    offset += slice.strips * gate_.strip_stride;
  }
  packed.base = reinterpret_cast<uint8_t*>(arena_.data()) + offset;
  packed.first_strip = first;
  return packed;
}

size_t Experts::checked(long long expert) const {
  if (expert < 0 || static_cast<size_t>(expert) >= experts_)
    throw std::invalid_argument("expert " + std::to_string(expert) + " does not exist: the layer has " +
                                std::to_string(experts_));
  return static_cast<size_t>(expert);
}

void Experts::check_size(Part part, size_t nbytes) const {
  const size_t expected = layout(part).rows * layout(part).stored_row_nbytes();
  if (nbytes != expected)
    throw std::invalid_argument("this part takes " + std::to_string(expected) + " bytes, not " +
                                std::to_string(nbytes));
}

void Experts::load(ThreadPool& pool, long long expert, Part part, const uint8_t* data, size_t nbytes) {
  const size_t e = checked(expert), row_nbytes = layout(part).stored_row_nbytes();
  check_size(part, nbytes);
  for (const Slice& slice : slices_) {
    const auto [first, last] = rows(part, slice);
    if (first < last)
      pack(pool, matrix(e, part, slice), data + first * row_nbytes, (last - first) * row_nbytes,
           static_cast<long long>(first));
  }
}

void Experts::load_bias(long long expert, Part part, const float* bias, size_t rows) {
  const size_t e = checked(expert);
  Projection& p = projection(part);
  if (p.bias.empty())
    throw std::invalid_argument("this layer has no biases");
  if (rows != p.layout.rows)
    throw std::invalid_argument("this bias takes " + std::to_string(p.layout.rows) + " values, not " +
                                std::to_string(rows));
  std::copy_n(bias, rows, &p.bias[e * padded_rows(rows)]);
}

void Experts::load_file(ThreadPool& pool, long long expert, Part part, const InputFile& file, uint64_t offset,
                        size_t nbytes) {
  const size_t e = checked(expert), row_nbytes = layout(part).stored_row_nbytes();
  check_size(part, nbytes);
  for (const Slice& slice : slices_) {
    const auto [first, last] = rows(part, slice);
    if (first < last)
      pack_file(pool, matrix(e, part, slice), file, offset + first * row_nbytes, (last - first) * row_nbytes,
                static_cast<long long>(first));
  }
}

std::pair<size_t, size_t> Experts::rows(Part part, const Slice& slice) const {
  const size_t first = part == Part::down ? slice.first_down : slice.first_strip;
  const size_t strips = part == Part::down ? slice.downs : slice.strips, most = layout(part).rows;
  return {std::min(most, first * kStripRows), std::min(most, (first + strips) * kStripRows)};
}

void Experts::set_factor(long long expert, Part part, float factor) {
  if (!std::isfinite(factor))
    throw std::invalid_argument("a factor of weights must be finite");
  projection(part).factors[checked(expert)] = factor;
}

void Experts::set_columns(long long expert, Part part, const int32_t* order, size_t columns) {
  const size_t e = checked(expert);
  if (part == Part::down)
    throw std::invalid_argument("only gate and up can have an order of columns");
  check_permutation(order, columns, hidden_);
  std::lock_guard<std::mutex> guard(columns_mutex_);
  std::vector<int32_t>& all = projection(part).columns;
  if (all.empty()) {
    all.resize(experts_ * hidden_);
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = static_cast<int32_t>(i % hidden_);
  }
  std::copy_n(order, hidden_, all.begin() + static_cast<ptrdiff_t>(e * hidden_));
}

void Experts::dequantise(long long expert, Part part, float* out) const {
  const size_t e = checked(expert), columns = layout(part).columns;
  const float factor = projection(part).factors[e];
  for (const Slice& slice : slices_) {
    const auto [first, last] = rows(part, slice);
    dequantise_rows(matrix(e, part, slice), first, last, out + first * columns);
    std::transform(out + first * columns, out + last * columns, out + first * columns,
                   [factor](float value) { return value * factor; });
  }
}

Experts::Piece Experts::piece(long long expert, size_t node) const {
  const size_t e = checked(expert);
  const Slice& slice = slices_.at(node);
  const auto* data = reinterpret_cast<const uint8_t*>(arena_.data()) + slice.offset + e * slice.expert_nbytes;
  return {data, slice.expert_nbytes, slice.strips, slice.downs};
}

std::vector<uint64_t> Experts::counts() const {
  std::vector<uint64_t> all(experts_);
  for (size_t e = 0; e < experts_; ++e)
    all[e] = counts_[e].load(std::memory_order_relaxed);
  return all;
}

} // namespace greenroom
