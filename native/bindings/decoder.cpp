// The router, and the decoder with the blocks it is made of.
#include "decoder.h"

#include <memory>
#include <utility>

#include "bindings.h"
#include "rope.h"

using namespace greenroom;

namespace {

// The stubs say that nobody changes what a block was made of, so it may be shared.
template <class T> using Shared = std::shared_ptr<T>;

void bind_router(py::module_& m) {
  py::class_<Router, Shared<Router>>(m, "Router")
      .def(py::init([](long long experts, long long top_k, const std::string& score, long long groups,
                       long long top_groups, const std::string& group_score, bool renormalise, float renormalise_eps,
                       float renormalise_min, float scale, float jitter, bool shared_gate, const Floats& bias,
                       const Floats& choice_bias, const Floats& expert_scale) {
             const RouterShape shape{experts,     top_k,           score,           groups, top_groups, group_score,
                                     renormalise, renormalise_eps, renormalise_min, scale,  jitter,     shared_gate};
             return std::make_shared<Router>(
                 shape, RouterWeights{vector_of(bias), vector_of(choice_bias), vector_of(expert_scale)});
           }),
           py::arg("experts"), py::arg("top_k"), py::arg("score"), py::kw_only(), py::arg("groups") = 1,
           py::arg("top_groups") = 1, py::arg("group_score") = "top2", py::arg("renormalise") = false,
           py::arg("renormalise_eps") = 0.0f, py::arg("renormalise_min") = 0.0f, py::arg("scale") = 1.0f,
           py::arg("jitter") = 0.0f, py::arg("shared_gate") = false, py::arg("bias") = py::none(),
           py::arg("choice_bias") = py::none(), py::arg("expert_scale") = py::none())
      .def(
          "choose",
          [](const Router& r, uintptr_t logits, long long tokens, uintptr_t ids, uintptr_t weights, uintptr_t factors) {
            const size_t n = count(tokens, "tokens");
            r.choose(address<const float>(logits, n, "logits"), n, address<int32_t>(ids, n, "ids"),
                     address<float>(weights, n, "weights"),
                     address<float>(factors, r.shared_gate() ? n : 0, "factors"));
          },
          py::arg("logits"), py::arg("tokens"), py::arg("ids"), py::arg("weights"), py::arg("factors"));
  m.def(
      "rope_turns",
      [](const std::vector<double>& frequencies, double magnitude, long long start, long long tokens) {
        const size_t first = count(start, "start"), n = count(tokens, "tokens");
        py::array_t<float> turns(
            {static_cast<py::ssize_t>(n), static_cast<py::ssize_t>(frequencies.size()), py::ssize_t{2}});
        rope_turns(frequencies, magnitude, first, n, turns.mutable_data());
        return turns;
      },
      py::arg("frequencies"), py::arg("magnitude"), py::arg("start"), py::arg("tokens"));
}

ShortConvMemory memory_at(uintptr_t past, uintptr_t recent, uintptr_t saved) {
  return {address<const float>(past, 1, "past"), address<float>(recent, 1, "recent"),
          address<float>(saved, 1, "saved")};
}

void bind_short_conv(py::module_& m) {
  py::class_<ShortConv, Shared<ShortConv>>(m, "ShortConv")
      .def(py::init([](long long channels, long long width, long long interval, long long draft, const Floats& kernel,
                       const Floats& bias) {
             return std::make_shared<ShortConv>(ShortConvShape{channels, width, interval, draft}, vector_of(kernel),
                                                vector_of(bias));
           }),
           py::arg("channels"), py::arg("width"), py::arg("interval"), py::arg("draft"), py::arg("kernel"),
           py::arg("bias") = py::none())
      .def(
          "forward",
          [](const ShortConv& conv, ThreadPool& pool, uintptr_t projected, long long tokens, long long start,
             uintptr_t past, uintptr_t recent, uintptr_t saved, uintptr_t y) {
            const size_t n = count(tokens, "tokens");
            conv.forward(pool, address<float>(projected, n, "projected"), n, count(start, "start"),
                         memory_at(past, recent, saved), address<float>(y, n, "y"));
          },
          py::arg("pool"), py::arg("projected"), py::arg("tokens"), py::arg("start"), py::arg("past"),
          py::arg("recent"), py::arg("saved"), py::arg("y"), Unlocked());
}

void bind_blocks(py::module_& m) {
  py::class_<Norm>(m, "NormBlock")
      .def(py::init([](const Floats& weight, const Floats& bias, float eps) {
             return Norm{vector_of(weight), vector_of(bias), eps};
           }),
           py::arg("weight"), py::arg("bias"), py::arg("eps"));
  py::class_<Linear>(m, "LinearBlock")
      .def(py::init([](const std::vector<Shared<Matrix>>& parts, const Floats& bias) {
             return Linear{{parts.begin(), parts.end()}, vector_of(bias)};
           }),
           py::arg("parts"), py::arg("bias") = py::none());
  py::class_<AttentionBlock>(m, "AttentionBlock")
      .def(py::init([](const Linear& qkv, Shared<Attention> attention, const Linear& o, std::optional<size_t> rope,
                       uintptr_t cache) {
             return AttentionBlock{qkv, std::move(attention), o, rope, address<uint8_t>(cache, 1, "cache")};
           }),
           py::arg("qkv"), py::arg("attention"), py::arg("o"), py::arg("rope"), py::arg("cache"));
  py::class_<ConvBlock>(m, "ConvBlock")
      .def(
          py::init([](const Linear& in, Shared<ShortConv> conv, const Linear& out, uintptr_t past, uintptr_t recent,
                      uintptr_t saved) { return ConvBlock{in, std::move(conv), out, memory_at(past, recent, saved)}; }),
          py::arg("inputs"), py::arg("conv"), py::arg("out"), py::arg("past"), py::arg("recent"), py::arg("saved"));
  py::class_<MlpBlock>(m, "MlpBlock")
      .def(py::init([](Shared<Experts> expert) { return MlpBlock{std::move(expert)}; }), py::arg("expert"));
  py::class_<MoeBlock>(m, "MoeBlock")
      .def(py::init([](const Linear& logits, Shared<Router> router, const std::optional<Norm>& router_norm,
                       Shared<Experts> experts, bool weigh_input, const std::optional<MlpBlock>& shared) {
             return MoeBlock{logits, std::move(router), router_norm, std::move(experts), weigh_input, shared};
           }),
           py::arg("logits"), py::arg("router"), py::arg("router_norm"), py::arg("experts"), py::arg("weigh_input"),
           py::arg("shared"));
  py::class_<ParallelBlock>(m, "ParallelBlock")
      .def(py::init(
               [](const MlpBlock& dense, const Norm& dense_post_norm, const Norm& norm, const MoeBlock& experts,
                  const Norm& post_norm) { return ParallelBlock{dense, dense_post_norm, norm, experts, post_norm}; }),
           py::arg("dense"), py::arg("dense_post_norm"), py::arg("norm"), py::arg("experts"), py::arg("post_norm"));
  py::class_<LayerBlock>(m, "LayerBlock")
      .def(py::init([](const Norm& mixer_norm, const std::variant<AttentionBlock, ConvBlock>& mixer,
                       const Norm& ffn_norm, const std::variant<MlpBlock, MoeBlock, ParallelBlock>& ffn,
                       const std::optional<Norm>& mixer_post_norm, const std::optional<Norm>& ffn_post_norm,
                       float multiplier, std::optional<float> output_scale) {
             return LayerBlock{mixer_norm,      mixer,         ffn_norm,   ffn,
                               mixer_post_norm, ffn_post_norm, multiplier, output_scale};
           }),
           py::arg("mixer_norm"), py::arg("mixer"), py::arg("ffn_norm"), py::arg("ffn"),
           py::arg("mixer_post_norm") = py::none(), py::arg("ffn_post_norm") = py::none(), py::arg("multiplier") = 1.0f,
           py::arg("output_scale") = py::none());
}

} // namespace

void bind_decoder(py::module_& m) {
  bind_router(m);
  bind_short_conv(m);
  bind_blocks(m);
  py::class_<Decoder>(m, "Decoder")
      .def(py::init([](const std::vector<std::pair<std::vector<double>, double>>& ropes,
                       const std::vector<LayerBlock>& layers, const Norm& norm, const Linear& head) {
             std::vector<RopeTable> tables;
             for (const auto& [frequencies, magnitude] : ropes)
               tables.push_back({frequencies, magnitude});
             return std::make_unique<Decoder>(std::move(tables), layers, norm, head);
           }),
           py::arg("ropes"), py::arg("layers"), py::arg("norm"), py::arg("head"))
      .def(
          "forward",
          [](const Decoder& d, ThreadPool& pool, uintptr_t x, long long tokens, long long start, bool last_only,
             uintptr_t logits) {
            const size_t n = count(tokens, "tokens");
            d.forward(pool, address<float>(x, n, "x"), n, start, last_only, address<float>(logits, n, "logits"));
          },
          py::arg("pool"), py::arg("x"), py::arg("tokens"), py::arg("start"), py::arg("last_only"), py::arg("logits"),
          Unlocked());
}
