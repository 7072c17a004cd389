#include "decoder.h"

#include <stdexcept>
#include <string>

#include "norm.h"
#include "rope.h"

namespace greenroom {
namespace {

// Says which part of a model does not fit the others.
class Checker {
public:
  Checker(size_t hidden, const std::vector<RopeTable>& ropes) : hidden_(hidden), ropes_(ropes) {}

  void check(bool condition, const char* what) const {
    if (!condition)
      throw std::invalid_argument(std::string(what) + " does not fit the model's other parts");
  }
  void norm(const Norm& norm) const {
    check(norm.weight.size() == hidden_ && (norm.bias.empty() || norm.bias.size() == hidden_), "a norm");
  }
  void norm(const std::optional<Norm>& maybe) const {
    if (maybe)
      norm(*maybe);
  }
  void linear(const Linear& linear, size_t columns, size_t rows, const char* what) const {
    check(!linear.parts.empty(), what);
    for (const auto& part : linear.parts)
      check(part && part->layout().columns == columns, what);
    check((!rows || linear.rows() == rows) && (linear.bias.empty() || linear.bias.size() == linear.rows()), what);
  }
  void mixer(const AttentionBlock& block) const {
    check(block.attention && block.cache, "attention");
    linear(block.qkv, hidden_, block.attention->inputs(), "the projection of q, k and v");
    linear(block.o, block.attention->outputs(), hidden_, "attention's output projection");
    const size_t pairs = block.attention->rotated() / 2;
    check(block.rope ? *block.rope < ropes_.size() && ropes_[*block.rope].frequencies.size() == pairs : pairs == 0,
          "the rotation of q and k");
  }
  void mixer(const ConvBlock& block) const {
    check(block.conv && block.conv->channels() == hidden_ && block.memory.past && block.memory.recent &&
              block.memory.saved,
          "a short convolution");
    linear(block.in, hidden_, 3 * hidden_, "the projection before a short convolution");
    linear(block.out, hidden_, hidden_, "the projection behind a short convolution");
  }
  void ffn(const MlpBlock& block) const {
    check(block.expert && block.expert->experts() == 1 && block.expert->hidden() == hidden_, "an MLP");
  }
  void ffn(const MoeBlock& block) const {
    check(block.router && block.experts && block.experts->hidden() == hidden_ &&
              block.experts->experts() == block.router->experts(),
          "a router or its experts");
    linear(block.logits, hidden_, block.router->logits(), "a router");
    norm(block.router_norm);
    check(block.shared || !block.router->shared_gate(), "a gate without a shared expert");
    if (block.shared)
      ffn(*block.shared);
  }
  void ffn(const ParallelBlock& block) const {
    ffn(block.dense);
    ffn(block.experts);
    for (const Norm* one : {&block.dense_post_norm, &block.norm, &block.post_norm})
      norm(*one);
  }

private:
  size_t hidden_;
  const std::vector<RopeTable>& ropes_;
};

} // namespace

Decoder::Decoder(std::vector<RopeTable> ropes, std::vector<LayerBlock> layers, Norm norm, Linear head)
    : ropes_(std::move(ropes)), layers_(std::move(layers)), norm_(std::move(norm)), head_(std::move(head)) {
  const Checker checker(norm_.weight.size(), ropes_);
  checker.norm(norm_);
  checker.linear(head_, norm_.weight.size(), 0, "the output head");
  for (const LayerBlock& layer : layers_) {
    checker.norm(layer.mixer_norm);
    checker.norm(layer.ffn_norm);
    checker.norm(layer.mixer_post_norm);
    checker.norm(layer.ffn_post_norm);
    std::visit([&](const auto& mixer) { checker.mixer(mixer); }, layer.mixer);
    std::visit([&](const auto& ffn) { checker.ffn(ffn); }, layer.ffn);
  }
}

void Decoder::forward(ThreadPool& pool, float* x, size_t tokens, long long start, bool last_only, float* logits) const {
  if (start < 0)
    throw std::invalid_argument("a position before the first");
  if (tokens == 0)
    return;
  ThreadPool::Call call(pool);
  Step step(call, static_cast<size_t>(start), tokens);
  for (const RopeTable& rope : ropes_) {
    const size_t width = rope.frequencies.size() * 2;
    std::vector<float>& turns = step.turns.emplace_back(tokens * width);
    call.run({{tokens, [&](size_t token, int) {
                 rope_turns(rope.frequencies, rope.magnitude, step.start + token, 1, turns.data() + token * width);
               }}});
  }
  for (size_t i = 0; i < layers_.size(); ++i)
    layers_[i].run(step, x, i + 1 < layers_.size() ? layers_[i + 1].stream() : head_.stream());
  const size_t hidden = norm_.weight.size();
  if (last_only) {
    x += (tokens - 1) * hidden;
    step.tokens = 1;
  }
  norm_.run(step, x, nullptr, x);
  head_.run(step, x, step.tokens, logits);
}

} // namespace greenroom
