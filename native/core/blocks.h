// The blocks of a decoder layer, made of matrices, experts and attention that others own too. Each is one function of
// the residual stream, for one token and for many; results have the same bits either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "arena.h"
#include "attention.h"
#include "experts.h"
#include "matrix.h"
#include "router.h"
#include "short_conv.h"
#include "thread_pool.h"

namespace greenroom {

// What one call's blocks share: where in the sequence it is.
struct Step {
  ThreadPool::Call& call;
  size_t start, tokens;
  std::vector<std::vector<float>> turns; // per rope of the model: [tokens, rotated / 2, 2]
  // [tokens] each: that every token goes to the one expert of an MLP, and counts 1.
  std::vector<int32_t> zeros;
  std::vector<float> ones;

  explicit Step(ThreadPool::Call& c, size_t from, size_t n)
      : call(c), start(from), tokens(n), zeros(n, 0), ones(n, 1.0f) {}
};

// f32 [tokens, width] of any contents, for as long as it lives; its memory serves the next one, also of another call.
class Room {
public:
  Room(Step& step, size_t width);
  ~Room() { free_.push_back(std::move(memory_)); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  float* data() { return reinterpret_cast<float*>(memory_.data()); }

private:
  std::vector<Arena>& free_;
  Arena memory_;
};

struct Norm {
  std::vector<float> weight, bias; // [hidden]; an empty bias makes it a root mean square norm
  float eps;

  // y = norm(x), after x += added unless that is null.
  void run(Step& step, float* x, const float* added, float* y) const;
};

// y = x W^T + bias, where W is matrices stacked in rows.
struct Linear {
  std::vector<std::shared_ptr<const Matrix>> parts;
  std::vector<float> bias; // [rows] or empty

  size_t rows() const;
  size_t columns() const { return parts.front()->layout().columns; }
  void run(Step& step, const float* x, size_t tokens, float* y, const Ahead& ahead = {}) const;
  Ahead stream() const { return {parts.front()->stream()}; }
};

// y = o(attention(qkv(x)))
struct AttentionBlock {
  Linear qkv;
  std::shared_ptr<const Attention> attention;
  Linear o;
  std::optional<size_t> rope; // place in Step::turns
  uint8_t* cache;

  void run(Step& step, const float* x, float* y, const Ahead& ahead) const;
  Ahead stream() const { return qkv.stream(); }
};

// y = out(conv(in(x)))
struct ConvBlock {
  Linear in;
  std::shared_ptr<const ShortConv> conv;
  Linear out;
  ShortConvMemory memory;

  void run(Step& step, const float* x, float* y, const Ahead& ahead) const;
  Ahead stream() const { return in.stream(); }
};

struct MlpBlock {
  std::shared_ptr<const Experts> expert; // of one

  // out += factors * mlp(x); factors [tokens], null for 1.
  void add(Step& step, const float* x, const float* factors, float* out, const Ahead& ahead) const;
  Ahead stream() const { return {expert->stream()}; }
};

struct MoeBlock {
  Linear logits;
  std::shared_ptr<const Router> router;
  std::optional<Norm> router_norm; // of the residual stream, which the router then reads
  std::shared_ptr<const Experts> experts;
  bool weigh_input; // weights multiply the experts' input instead of their output
  std::optional<MlpBlock> shared;

  // out += the experts' result for x.
  void add(Step& step, const float* x, float* residual, float* out, const Ahead& ahead) const;
  Ahead stream() const { return logits.stream(); }
};

// A dense MLP and routed experts side by side, each with norms of its own (Gemma 4).
struct ParallelBlock {
  MlpBlock dense;
  Norm dense_post_norm, norm;
  MoeBlock experts;
  Norm post_norm;

  // out += both; the MLP reads x, the experts the residual stream.
  void add(Step& step, const float* x, float* residual, float* out, const Ahead& ahead) const;
  Ahead stream() const { return dense.stream(); }
};

// x += m * mixer(norm x); x += m * ffn(norm x); x *= output_scale
struct LayerBlock {
  Norm mixer_norm;
  std::variant<AttentionBlock, ConvBlock> mixer;
  Norm ffn_norm;
  std::variant<MlpBlock, MoeBlock, ParallelBlock> ffn;
  std::optional<Norm> mixer_post_norm, ffn_post_norm;
  float multiplier;
  std::optional<float> output_scale;

  // ahead: what is read after the layer.
  void run(Step& step, float* x, const Ahead& ahead) const;
  Ahead stream() const {
    return std::visit([](const auto& block) { return block.stream(); }, mixer);
  }
};

} // namespace greenroom
