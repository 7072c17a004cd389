#include "blocks.h"

#include <algorithm>
#include <cstring>

#include "norm.h"

namespace greenroom {
namespace {

// Below this many values waking a thread costs more than it takes over.
constexpr size_t kAlone = size_t{1} << 15;

// work(first, last) over 0 .. n - 1.
template <class Work> void for_values(Step& step, size_t n, Work work) {
  if (n <= kAlone)
    return work(size_t{0}, n);
  step.call.run(
      {{(n + kAlone - 1) / kAlone, [&](size_t tile, int) { work(tile * kAlone, std::min(n, (tile + 1) * kAlone)); }}});
}

void add(Step& step, size_t n, const float* x, float* out) {
  for_values(step, n, [=](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i)
      out[i] += x[i];
  });
}

// work(token) for each.
template <class Work> void for_tokens(Step& step, size_t tokens, size_t width, Work work) {
  if (tokens * width > kAlone)
    return step.call.run({{tokens, [&](size_t token, int) { work(token); }}});
  for (size_t token = 0; token < tokens; ++token)
    work(token);
}

void multiply(Step& step, size_t n, float factor, float* x) {
  for_values(step, n, [=](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i)
      x[i] *= factor;
  });
}

} // namespace

Room::Room(Step& step, size_t width) : free_(step.call.kept()) {
  const size_t nbytes = step.tokens * width * sizeof(float);
  // The smallest that is large enough, so that the large ones are left for who needs them. Where none is, the largest
  // grows: no more are kept than were ever in use together.
  auto best = free_.end();
  for (auto room = free_.begin(); room != free_.end(); ++room)
    if (best == free_.end() || (best->nbytes() < nbytes ? room->nbytes() > best->nbytes()
                                                        : room->nbytes() >= nbytes && room->nbytes() < best->nbytes()))
      best = room;
  if (best != free_.end()) {
    memory_ = std::move(*best);
    free_.erase(best);
  }
  if (memory_.nbytes() < nbytes) {
    memory_ = Arena();
    memory_ = Arena(nbytes);
  }
}

void Norm::run(Step& step, float* x, const float* added, float* y) const {
  norm(step.call, x, added, step.tokens, weight.size(), weight.data(), bias.empty() ? nullptr : bias.data(), eps, y);
}

size_t Linear::rows() const {
  size_t sum = 0;
  for (const auto& part : parts)
    sum += part->layout().rows;
  return sum;
}

void Linear::run(Step& step, const float* x, size_t tokens, float* y, const Ahead& ahead) const {
  Matrix::forward(step.call, parts, x, tokens, y, ahead);
  const size_t all = rows();
  if (!bias.empty())
    for_tokens(step, tokens, all, [&](size_t t) {
      for (size_t i = 0; i < all; ++i)
        y[t * all + i] += bias[i];
    });
}

void AttentionBlock::run(Step& step, const float* x, float* y, const Ahead& ahead) const {
  Room qkv_room(step, qkv.rows()), heads(step, attention->outputs());
  qkv.run(step, x, step.tokens, qkv_room.data(), attention->stream(cache, step.start));
  attention->forward(step.call, qkv_room.data(), step.tokens, rope ? step.turns[*rope].data() : nullptr,
                     static_cast<long long>(step.start), cache, heads.data(), o.stream());
  o.run(step, heads.data(), step.tokens, y, ahead);
}

void ConvBlock::run(Step& step, const float* x, float* y, const Ahead& ahead) const {
  Room projected(step, in.rows()), mixed(step, conv->channels());
  in.run(step, x, step.tokens, projected.data(), out.stream());
  conv->forward(step.call, projected.data(), step.tokens, step.start, memory, mixed.data());
  out.run(step, mixed.data(), step.tokens, y, ahead);
}

void MlpBlock::add(Step& step, const float* x, const float* factors, float* out, const Ahead& ahead) const {
  const float* weights = factors ? factors : step.ones.data();
  expert->forward(step.call, {x, step.tokens, step.zeros.data(), weights, 1, out, true}, ahead);
}

void MoeBlock::add(Step& step, const float* x, float* residual, float* out, const Ahead& ahead) const {
  const size_t tokens = step.tokens, hidden = experts->hidden(), top_k = router->top_k();
  Room logit_room(step, router->logits()), weights(step, top_k), factors(step, 1);
  std::vector<int32_t> ids(tokens * top_k);
  if (router_norm) {
    Room normed(step, hidden);
    router_norm->run(step, residual, nullptr, normed.data());
    logits.run(step, normed.data(), tokens, logit_room.data());
  } else {
    logits.run(step, x, tokens, logit_room.data());
  }
  for_tokens(step, tokens, router->logits(), [&](size_t t) {
    router->choose(logit_room.data() + t * router->logits(), 1, ids.data() + t * top_k, weights.data() + t * top_k,
                   factors.data() + t);
  });
  if (weigh_input) {
    // Slot by slot, because each expert has an input of its own. Models that do so use one expert per token.
    std::vector<int32_t> chosen(tokens);
    Room weighed(step, hidden);
    for (size_t slot = 0; slot < top_k; ++slot) {
      for_tokens(step, tokens, hidden, [&](size_t t) {
        chosen[t] = ids[t * top_k + slot];
        const float weight = weights.data()[t * top_k + slot];
        for (size_t i = 0; i < hidden; ++i)
          weighed.data()[t * hidden + i] = x[t * hidden + i] * weight;
      });
      experts->forward(step.call, {weighed.data(), tokens, chosen.data(), step.ones.data(), 1, out, true});
    }
  } else {
    experts->forward(step.call, {x, tokens, ids.data(), weights.data(), top_k, out, true},
                     shared ? shared->stream() : ahead);
  }
  if (shared)
    shared->add(step, x, router->shared_gate() ? factors.data() : nullptr, out, ahead);
}

void ParallelBlock::add(Step& step, const float* x, float* residual, float* out, const Ahead& ahead) const {
  const size_t hidden = norm.weight.size(), n = step.tokens * hidden;
  Room beside(step, hidden), normed(step, hidden);
  std::fill_n(beside.data(), n, 0.0f);
  dense.add(step, x, nullptr, beside.data(), experts.stream());
  dense_post_norm.run(step, beside.data(), nullptr, normed.data());
  greenroom::add(step, n, normed.data(), out);
  norm.run(step, residual, nullptr, normed.data());
  std::fill_n(beside.data(), n, 0.0f);
  experts.add(step, normed.data(), residual, beside.data(), ahead);
  post_norm.run(step, beside.data(), nullptr, normed.data());
  greenroom::add(step, n, normed.data(), out);
}

void LayerBlock::run(Step& step, float* x, const Ahead& ahead) const {
  const size_t hidden = mixer_norm.weight.size(), n = step.tokens * hidden;
  Room normed(step, hidden), mixed(step, hidden);
  mixer_norm.run(step, x, nullptr, normed.data());
  const Ahead after = std::visit([](const auto& block) { return block.stream(); }, ffn);
  std::visit([&](const auto& block) { block.run(step, normed.data(), mixed.data(), after); }, mixer);
  if (mixer_post_norm)
    mixer_post_norm->run(step, mixed.data(), nullptr, mixed.data());
  if (multiplier != 1.0f)
    multiply(step, n, multiplier, mixed.data());
  ffn_norm.run(step, x, mixed.data(), normed.data());
  // Into x itself, unless something happens to the result before.
  const bool apart = ffn_post_norm || multiplier != 1.0f || std::holds_alternative<ParallelBlock>(ffn);
  float* out = apart ? mixed.data() : x;
  if (apart)
    std::fill_n(out, n, 0.0f);
  if (const auto* mlp = std::get_if<MlpBlock>(&ffn))
    mlp->add(step, normed.data(), nullptr, out, ahead);
  else if (const auto* moe = std::get_if<MoeBlock>(&ffn))
    moe->add(step, normed.data(), x, out, ahead);
  else
    std::get<ParallelBlock>(ffn).add(step, normed.data(), x, out, ahead);
  if (ffn_post_norm)
    ffn_post_norm->run(step, out, nullptr, out);
  if (multiplier != 1.0f)
    multiply(step, n, multiplier, out);
  if (apart)
    greenroom::add(step, n, out, x);
  if (output_scale)
    multiply(step, n, *output_scale, x);
}

} // namespace greenroom
