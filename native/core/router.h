// Which experts a token goes to, and how much each counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace greenroom {

// In the order it works: scores of the logits; the best groups of neighbours; the best experts in these; their weights.
struct RouterShape {
  long long experts, top_k;
  std::string score; // "softmax", "sigmoid", "topk_softmax" or "sparsemixer"
  long long groups = 1, top_groups = 1;
  std::string group_score = "top2"; // a group is as good as the sum of its two best ("top2") or its best ("max")
  // The chosen weights are divided by their sum, which is first raised by eps, then to at least min.
  bool renormalise = false;
  float renormalise_eps = 0, renormalise_min = 0;
  float scale = 1.0f;       // multiplies the weights
  float jitter = 0.0f;      // sparsemixer's
  bool shared_gate = false; // one more logit: the shared expert's
};

// Each [experts] or empty: added to the logits; added to the scores, for choosing only; factors of the weights.
struct RouterWeights {
  std::vector<float> bias, choice_bias, expert_scale;
};

class Router {
public:
  // Throws std::invalid_argument for names and numbers that make no sense.
  Router(const RouterShape& shape, RouterWeights weights);

  size_t experts() const { return experts_; }
  size_t top_k() const { return top_k_; }
  bool shared_gate() const { return shape_.shared_gate; }
  size_t logits() const { return experts_ + shape_.shared_gate; }
  // logits [tokens, logits()] -> ids and weights [tokens, top_k], best first, lower ids first among equals; factors
  // [tokens]: sigmoid of the shared expert's logit, ignored without one.
  void choose(const float* logits, size_t tokens, int32_t* ids, float* weights, float* factors) const;

private:
  enum class Score { softmax, sigmoid, topk_softmax, sparsemixer };

  void choose_one(const float* logits, int32_t* ids, float* weights, std::vector<float>& work) const;
  void sparsemixer(const float* logits, int32_t* ids, float* weights) const;
  void shut_groups(float* scores) const;

  RouterShape shape_;
  size_t experts_, top_k_;
  Score score_;
  bool by_logits_; // weights are a softmax over the chosen logits
  RouterWeights weights_;
};

} // namespace greenroom
