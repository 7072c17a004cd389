#include "router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace greenroom {
namespace {

constexpr size_t kMostExperts = size_t{1} << 20;

void check(bool condition, const std::string& what) {
  if (!condition)
    throw std::invalid_argument(what);
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// The places of the k largest of n, best first, lower places first among equals. A NaN passes for the largest, so that
// it shows in the result.
void best_of(const float* values, size_t n, size_t k, int32_t* places) {
  size_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    size_t at = found;
    while (at > 0 && !(values[places[at - 1]] >= values[i]))
      --at;
    if (at == k)
      continue;
    found = std::min(k, found + 1);
    for (size_t j = found - 1; j > at; --j)
      places[j] = places[j - 1];
    places[at] = static_cast<int32_t>(i);
  }
}

// In place; sums in double, so that their order does not matter to float.
void softmax(float* values, size_t n) {
  const float largest = *std::max_element(values, values + n);
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) {
    values[i] = std::exp(values[i] - largest);
    sum += static_cast<double>(values[i]);
  }
  const float inverse = static_cast<float>(1.0 / sum);
  for (size_t i = 0; i < n; ++i)
    values[i] *= inverse;
}

} // namespace

Router::Router(const RouterShape& shape, RouterWeights weights) : shape_(shape), weights_(std::move(weights)) {
  check(shape.experts >= 1 && shape.experts <= static_cast<long long>(kMostExperts), "experts must be 1 to 2^20");
  check(shape.top_k >= 1 && shape.top_k <= shape.experts, "top_k must be 1 to the number of experts");
  check(shape.groups >= 1 && shape.experts % shape.groups == 0, "groups must divide the experts");
  check(shape.top_groups >= 1 && shape.top_groups <= shape.groups, "top_groups must be 1 to the number of groups");
  check(shape.top_k <= shape.experts / shape.groups * shape.top_groups,
        "the best groups have fewer than top_k experts");
  check(shape.group_score == "top2" || shape.group_score == "max",
        "unknown score \"" + shape.group_score + "\" of a group; known are top2, max");
  experts_ = static_cast<size_t>(shape.experts);
  top_k_ = static_cast<size_t>(shape.top_k);
  if (shape.score == "softmax")
    score_ = Score::softmax;
  else if (shape.score == "sigmoid")
    score_ = Score::sigmoid;
  else if (shape.score == "topk_softmax")
    score_ = Score::topk_softmax;
  else if (shape.score == "sparsemixer")
    score_ = Score::sparsemixer;
  else
    throw std::invalid_argument("unknown router score \"" + shape.score +
                                "\"; known are softmax, sigmoid, topk_softmax, sparsemixer");
  for (const std::vector<float>* values : {&weights_.bias, &weights_.choice_bias, &weights_.expert_scale})
    check(values->empty() || values->size() == experts_, "a router's biases and scales have one value per expert");
  // Softmax over the chosen logits is softmax over all, divided by the chosen sum.
  const bool plain = weights_.choice_bias.empty() && shape.groups == 1 && shape.renormalise_eps == 0.0f &&
                     shape.renormalise_min == 0.0f;
  by_logits_ = score_ == Score::topk_softmax || (score_ == Score::softmax && shape.renormalise && plain);
}

void Router::choose(const float* logits, size_t tokens, int32_t* ids, float* weights, float* factors) const {
  std::vector<float> work(2 * experts_);
  for (size_t t = 0; t < tokens; ++t, logits += this->logits(), ids += top_k_, weights += top_k_) {
    choose_one(logits, ids, weights, work);
    for (size_t slot = 0; slot < top_k_; ++slot) {
      weights[slot] *= shape_.scale;
      if (!weights_.expert_scale.empty())
        weights[slot] *= weights_.expert_scale[static_cast<size_t>(ids[slot])];
    }
    if (shape_.shared_gate)
      factors[t] = sigmoid(logits[experts_]);
  }
}

void Router::choose_one(const float* logits, int32_t* ids, float* weights, std::vector<float>& work) const {
  float* scores = work.data();
  std::copy_n(logits, experts_, scores);
  for (size_t e = 0; e < weights_.bias.size(); ++e)
    scores[e] += weights_.bias[e];
  if (score_ == Score::sparsemixer)
    return sparsemixer(scores, ids, weights);
  float* marks = scores;
  if (score_ == Score::softmax && !by_logits_ && weights_.choice_bias.empty() && shape_.groups == 1) {
    // The same order as the logits', which rounding keeps further apart: scores of even routers are often equal.
    marks = std::copy_n(scores, experts_, scores + experts_) - experts_;
  }
  if (!by_logits_) {
    if (score_ == Score::softmax)
      softmax(scores, experts_);
    else
      std::transform(scores, scores + experts_, scores, sigmoid);
  }
  if (!weights_.choice_bias.empty() || shape_.groups > 1) {
    marks = scores + experts_;
    for (size_t e = 0; e < experts_; ++e)
      marks[e] = scores[e] + (weights_.choice_bias.empty() ? 0.0f : weights_.choice_bias[e]);
    if (shape_.groups > 1)
      shut_groups(marks);
  }
  best_of(marks, experts_, top_k_, ids);
  for (size_t slot = 0; slot < top_k_; ++slot)
    weights[slot] = scores[ids[slot]];
  if (by_logits_)
    return softmax(weights, top_k_);
  if (shape_.renormalise) {
    float sum = 0.0f;
    for (size_t slot = 0; slot < top_k_; ++slot)
      sum += weights[slot];
    sum = std::max(sum + shape_.renormalise_eps, shape_.renormalise_min);
    for (size_t slot = 0; slot < top_k_; ++slot)
      weights[slot] /= sum;
  }
}

// Scores of groups that are not among the best become -infinity.
void Router::shut_groups(float* scores) const {
  const size_t groups = static_cast<size_t>(shape_.groups), size = experts_ / groups;
  const size_t open = static_cast<size_t>(shape_.top_groups), best = shape_.group_score == "max" ? 1 : 2;
  std::vector<float> marks(groups);
  std::vector<int32_t> places(std::max(best, open));
  for (size_t g = 0; g < groups; ++g) {
    const float* of_group = scores + g * size;
    best_of(of_group, size, std::min(best, size), places.data());
    marks[g] = of_group[places[0]] + (best == 2 && size > 1 ? of_group[places[1]] : 0.0f);
  }
  best_of(marks.data(), groups, open, places.data());
  for (size_t g = 0; g < groups; ++g)
    if (std::find(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(open), static_cast<int32_t>(g)) ==
        places.begin() + static_cast<std::ptrdiff_t>(open))
      std::fill_n(scores + g * size, size, -std::numeric_limits<float>::infinity());
}

// SparseMixer-v2 without its noise (Liu et al. 2023; Phi-3.5-MoE). Expert by expert: the best logit left wins, and
// weighs its share of a softmax over those left that are within 2 jitter of it, relative to the larger of their size
// and the best logit.
void Router::sparsemixer(const float* logits, int32_t* ids, float* weights) const {
  best_of(logits, experts_, top_k_, ids);
  for (size_t slot = 0; slot < top_k_; ++slot) {
    const float best = logits[ids[slot]];
    double sum = 0.0;
    for (size_t e = 0; e < experts_; ++e) {
      const bool taken = std::find(ids, ids + slot, static_cast<int32_t>(e)) != ids + slot;
      if (!taken && !((best - logits[e]) / std::max(std::fabs(logits[e]), best) > 2 * shape_.jitter))
        sum += std::exp(static_cast<double>(logits[e]) - static_cast<double>(best));
    }
    weights[slot] = static_cast<float>(1.0 / sum);
  }
}

} // namespace greenroom
