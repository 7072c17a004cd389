// engine._native: the core behind Python's calling conventions, and nothing else.
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "attention.h"
#include "bandwidth.h"
#include "bindings.h"
#include "cpu.h"
#include "dispatch.h"
#include "experts.h"
#include "file_rows.h"
#include "matrix.h"
#include "norm.h"
#include "thread_pool.h"
#ifdef GREENROOM_CEILINGS
#include "ceilings.h"
#endif

using namespace greenroom;

namespace {

using Bytes = py::array_t<uint8_t, py::array::c_style>;

Part part_named(const std::string& name) {
  if (name == "gate")
    return Part::gate;
  if (name == "up")
    return Part::up;
  if (name == "down")
    return Part::down;
  throw std::invalid_argument("unknown part \"" + name + "\"; known are gate, up, down");
}

// The format whose packed form the matrix has: the stored one, unless it was re-coded.
std::string packed_format(const Layout& layout) {
  if (layout.kind == layout.format->kind)
    return layout.format->name;
  switch (layout.kind) {
  case kInt8F16:
    return "Q8_0";
  case kInt4Nl:
    return "IQ4_NL";
  case kF32:
    return "F32";
  default:
    return "I4_G128_F16";
  }
}

py::array_t<float> matrix_array(const Layout& layout) {
  return py::array_t<float>({static_cast<py::ssize_t>(layout.rows), static_cast<py::ssize_t>(layout.columns)});
}

void bind_cpu(py::module_& m) {
  py::class_<CpuFeatures>(m, "CpuFeatures")
      .def_readonly("vendor", &CpuFeatures::vendor)
      .def_readonly("brand", &CpuFeatures::brand)
      .def_readonly("family", &CpuFeatures::family)
      .def_readonly("model", &CpuFeatures::model)
      .def_readonly("cpu", &CpuFeatures::cpu)
      .def_readonly("usable", &CpuFeatures::usable);
  m.def("cpu_features", &detect_cpu);
  m.def("tiers", &tiers);
  m.def(
      "kernel_tier", [](const std::string& code, const Name& isa) { return kernels_for(kind_of_code(code), isa).name; },
      py::arg("code"), py::arg("isa") = py::none());
}

void bind_pool(py::module_& m) {
  py::register_exception<Interrupted>(m, "Interrupted", PyExc_RuntimeError);
  py::register_exception<EndOfFile>(m, "EndOfFile", PyExc_EOFError);
  py::register_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised)
        std::rethrow_exception(raised);
    } catch (const std::system_error& error) {
      const py::object what = py::cast(error.code().message());
      PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), what).ptr());
    }
  });
  py::class_<ThreadPool>(m, "ThreadPool")
      .def(py::init([](int threads, const std::optional<std::vector<int>>& cpus,
                       const std::optional<std::vector<int>>& nodes) {
             return std::make_unique<ThreadPool>(threads, cpus.value_or(std::vector<int>{}),
                                                 nodes.value_or(std::vector<int>{}));
           }),
           py::arg("threads"), py::arg("cpus") = py::none(), py::arg("nodes") = py::none())
      .def_property_readonly("threads", &ThreadPool::threads)
      .def("tallies",
           [](ThreadPool& pool) {
             std::vector<std::pair<uint64_t, uint64_t>> all;
             py::gil_scoped_release unlocked;
             for (const Tally& tally : pool.tallies())
               all.emplace_back(tally.own, tally.others);
             return all;
           })
      .def("resize", &ThreadPool::resize, py::arg("threads"), Unlocked())
      .def("cancel", &ThreadPool::cancel)
      .def("close", &ThreadPool::close, Unlocked());
}

void bind_matrix(py::module_& m) {
  py::class_<Matrix, std::shared_ptr<Matrix>>(m, "Matrix")
      .def(py::init<long long, long long, const std::string&, const Name&, const Name&>(), py::arg("rows"),
           py::arg("columns"), py::arg("format"), py::arg("recode") = py::none(), py::arg("isa") = py::none())
      .def_property_readonly("nbytes", &Matrix::nbytes)
      .def_property_readonly("code", [](const Matrix& w) { return code_name(w.layout().kind); })
      .def(
          "load",
          [](Matrix& w, ThreadPool& pool, const Bytes& data, long long first_row) {
            const uint8_t* bytes = data.data();
            const size_t nbytes = static_cast<size_t>(data.nbytes());
            py::gil_scoped_release unlocked;
            w.load(pool, bytes, nbytes, first_row);
          },
          py::arg("pool"), py::arg("data").noconvert(), py::arg("first_row") = 0)
      .def(
          "set_columns",
          [](Matrix& w, const py::array_t<int32_t, py::array::c_style>& order) {
            w.set_columns(order.data(), static_cast<size_t>(order.size()));
          },
          py::arg("order").noconvert())
      .def("set_factor", &Matrix::set_factor, py::arg("first_row"), py::arg("rows"), py::arg("factor"))
      .def(
          "load_file",
          [](Matrix& w, ThreadPool& pool, const std::filesystem::path& path, uint64_t offset, uint64_t nbytes,
             long long first_row) { w.load_file(pool, InputFile(path), offset, nbytes, first_row); },
          py::arg("pool"), py::arg("path"), py::arg("offset"), py::arg("nbytes"), py::arg("first_row") = 0, Unlocked())
      .def(
          "forward",
          [](const Matrix& w, ThreadPool& pool, uintptr_t x, long long tokens, uintptr_t y) {
            const size_t n = count(tokens, "tokens");
            w.forward(pool, address<const float>(x, n, "x"), n, address<float>(y, n, "y"));
          },
          py::arg("pool"), py::arg("x"), py::arg("tokens"), py::arg("y"), Unlocked())
      .def("dequantise",
           [](const Matrix& w) {
             auto out = matrix_array(w.layout());
             float* data = out.mutable_data();
             py::gil_scoped_release unlocked;
             w.dequantise(data);
             return out;
           })
      .def(
          "dequantise_rows",
          [](const Matrix& w, const py::array_t<int64_t, py::array::c_style>& rows) {
            py::array_t<float> out({rows.size(), static_cast<py::ssize_t>(w.layout().columns)});
            const int64_t* wanted = rows.data();
            const size_t n = static_cast<size_t>(rows.size());
            float* data = out.mutable_data();
            py::gil_scoped_release unlocked;
            w.dequantise(wanted, n, data);
            return out;
          },
          py::arg("rows").noconvert());
  m.def(
      "packed_nbytes",
      [](long long rows, long long columns, const std::string& format, const Name& recode, const Name& isa) {
        const Layout layout = layout_of(rows, columns, format, recode);
        kernels_for(layout.kind, isa); // the layout is the same on every tier; an unknown name is still an error
        return layout.nbytes();
      },
      py::arg("rows"), py::arg("columns"), py::arg("format"), py::arg("recode") = py::none(),
      py::arg("isa") = py::none());
}

void bind_experts(py::module_& m) {
  py::class_<Experts, std::shared_ptr<Experts>>(m, "Experts")
      .def(
          py::init([](long long experts, long long hidden, long long intermediate, const std::string& gate_format,
                      const std::string& up_format, const std::string& down_format, const Name& recode, const Name& isa,
                      const std::vector<int>& nodes, const std::string& activation, float limit, bool bias) {
            return std::make_shared<Experts>(experts, hidden, intermediate, gate_format, up_format, down_format, recode,
                                             isa, nodes, ExpertActivation{activation, limit, bias});
          }),
          py::arg("experts"), py::arg("hidden"), py::arg("intermediate"), py::arg("gate_format"), py::arg("up_format"),
          py::arg("down_format"), py::arg("recode") = py::none(), py::arg("isa") = py::none(),
          py::arg("nodes") = std::vector<int>{}, py::kw_only(), py::arg("activation") = "silu", py::arg("limit") = 0.0f,
          py::arg("bias") = false)
      .def_property_readonly("bound", &Experts::bound)
      .def("touch", &Experts::touch, py::arg("node"), Unlocked())
      .def_property_readonly("nbytes", &Experts::nbytes)
      .def_property_readonly("codes",
                             [](const Experts& e) {
                               return std::make_tuple(code_name(e.layout(Part::gate).kind),
                                                      code_name(e.layout(Part::up).kind),
                                                      code_name(e.layout(Part::down).kind));
                             })
      .def_property_readonly("tier", [](const Experts& e) { return e.kernels(Part::gate).name; })
      .def_property_readonly("counts",
                             [](const Experts& e) {
                               const std::vector<uint64_t> all = e.counts();
                               return py::array_t<uint64_t>(static_cast<py::ssize_t>(all.size()), all.data());
                             })
      .def_property_readonly("formats",
                             [](const Experts& e) {
                               return std::make_tuple(packed_format(e.layout(Part::gate)),
                                                      packed_format(e.layout(Part::up)),
                                                      packed_format(e.layout(Part::down)));
                             })
      .def_property_readonly("strip_nbytes",
                             [](const Experts& e) {
                               return std::make_tuple(e.layout(Part::gate).strip_nbytes,
                                                      e.layout(Part::up).strip_nbytes,
                                                      e.layout(Part::down).strip_nbytes);
                             })
      .def_property_readonly("strips",
                             [](const Experts& e) {
                               std::vector<std::pair<size_t, size_t>> all;
                               for (size_t node = 0; node < e.nodes(); ++node)
                                 all.emplace_back(e.piece(0, node).pairs, e.piece(0, node).downs);
                               return all;
                             })
      .def(
          "pieces",
          [](const std::shared_ptr<Experts>& e, long long expert) {
            std::vector<py::array> all;
            for (size_t node = 0; node < e->nodes(); ++node) {
              const Experts::Piece piece = e->piece(expert, node);
              all.push_back(Bytes(static_cast<py::ssize_t>(piece.nbytes), piece.data, py::cast(e)));
              all.back().attr("flags").attr("writeable") = false;
            }
            return all;
          },
          py::arg("expert"))
      .def_property_readonly("reordered", &Experts::reordered)
      .def(
          "factors",
          [](const Experts& e, const std::string& part) {
            const std::vector<float>& all = e.factors(part_named(part));
            return py::array_t<float>(static_cast<py::ssize_t>(all.size()), all.data());
          },
          py::arg("part"))
      .def(
          "biases",
          [](const Experts& e, const std::string& part) -> std::optional<py::array_t<float>> {
            const std::vector<float>& all = e.biases(part_named(part));
            if (all.empty())
              return std::nullopt;
            const size_t rows = e.layout(part_named(part)).rows;
            py::array_t<float> out({e.experts(), rows});
            for (size_t i = 0; i < e.experts(); ++i)
              std::copy_n(&all[i * Experts::padded_rows(rows)], rows, out.mutable_data(static_cast<py::ssize_t>(i)));
            return out;
          },
          py::arg("part"))
      .def_property_readonly("locked", &Experts::locked)
      .def("lock", &Experts::lock, Unlocked())
      .def(
          "load",
          [](Experts& e, ThreadPool& pool, long long expert, const std::string& part, const Bytes& data) {
            const Part which = part_named(part);
            const uint8_t* bytes = data.data();
            const size_t nbytes = static_cast<size_t>(data.nbytes());
            py::gil_scoped_release unlocked;
            e.load(pool, expert, which, bytes, nbytes);
          },
          py::arg("pool"), py::arg("expert"), py::arg("part"), py::arg("data").noconvert())
      .def(
          "set_factor",
          [](Experts& e, long long expert, const std::string& part, float factor) {
            e.set_factor(expert, part_named(part), factor);
          },
          py::arg("expert"), py::arg("part"), py::arg("factor"))
      .def(
          "set_columns",
          [](Experts& e, long long expert, const std::string& part,
             const py::array_t<int32_t, py::array::c_style>& order) {
            e.set_columns(expert, part_named(part), order.data(), static_cast<size_t>(order.size()));
          },
          py::arg("expert"), py::arg("part"), py::arg("order").noconvert())
      .def(
          "load_bias",
          [](Experts& e, long long expert, const std::string& part,
             const py::array_t<float, py::array::c_style>& bias) {
            e.load_bias(expert, part_named(part), bias.data(), static_cast<size_t>(bias.size()));
          },
          py::arg("expert"), py::arg("part"), py::arg("bias").noconvert())
      .def(
          "load_file",
          [](Experts& e, ThreadPool& pool, long long expert, const std::string& part, const std::filesystem::path& path,
             uint64_t offset,
             uint64_t nbytes) { e.load_file(pool, expert, part_named(part), InputFile(path), offset, nbytes); },
          py::arg("pool"), py::arg("expert"), py::arg("part"), py::arg("path"), py::arg("offset"), py::arg("nbytes"),
          Unlocked())
      .def(
          "forward",
          [](const Experts& e, ThreadPool& pool, uintptr_t x, long long tokens, uintptr_t expert_ids,
             uintptr_t expert_weights, long long top_k, uintptr_t y, bool accumulate) {
            const size_t n = count(tokens, "tokens");
            if (top_k < 1 || top_k > 1024)
              throw std::invalid_argument("top_k must be 1 to 1024, not " + std::to_string(top_k));
            e.forward(pool, RoutedTokens{address<const float>(x, n, "x"), n,
                                         address<const int32_t>(expert_ids, n, "expert_ids"),
                                         address<const float>(expert_weights, n, "expert_weights"),
                                         static_cast<size_t>(top_k), address<float>(y, n, "y"), accumulate});
          },
          py::arg("pool"), py::arg("x"), py::arg("tokens"), py::arg("expert_ids"), py::arg("expert_weights"),
          py::arg("top_k"), py::arg("y"), py::arg("accumulate") = false, Unlocked())
      .def(
          "dequantise",
          [](const Experts& e, long long expert, const std::string& part) {
            const Part which = part_named(part);
            auto out = matrix_array(e.layout(which));
            float* data = out.mutable_data();
            py::gil_scoped_release unlocked;
            e.dequantise(expert, which, data);
            return out;
          },
          py::arg("expert"), py::arg("part"));
}

// What norms work on, without the GIL unless it is one token: that takes less than handing the GIL over may.
struct NormRows {
  size_t tokens, hidden;
  float* x;
  const float* added;
  const float* weight;
  float* y;
  std::optional<py::gil_scoped_release> unlocked;

  NormRows(uintptr_t x_at, uintptr_t added_at, long long n, long long width, uintptr_t weight_at, uintptr_t y_at)
      : tokens(count(n, "tokens")), hidden(count(width, "hidden")), x(address<float>(x_at, tokens, "x")),
        added(address<const float>(added_at, 0, "added")), weight(address<const float>(weight_at, tokens, "weight")),
        y(address<float>(y_at, tokens, "y")) {
    if (tokens > 1)
      unlocked.emplace();
  }
};

void bind_attention(py::module_& m) {
  py::class_<Attention, std::shared_ptr<Attention>>(m, "Attention")
      .def(py::init([](long long heads, long long kv_heads, long long head_dim, long long rotated, long long context,
                       float scale, const std::string& kv_type, const Floats& bias, const Floats& q_norm,
                       const Floats& k_norm, float norm_eps, const Name& isa, const std::string& qk_norm,
                       bool norm_after_rope, bool v_norm, float clip, long long window, long long chunk,
                       long long rollback, const Floats& sinks, long long temperature_interval,
                       float temperature_strength) {
             AttentionShape shape{heads,
                                  kv_heads,
                                  head_dim,
                                  rotated,
                                  context,
                                  scale,
                                  norm_eps,
                                  qk_norm,
                                  norm_after_rope,
                                  v_norm,
                                  clip,
                                  window,
                                  chunk,
                                  rollback,
                                  temperature_interval,
                                  temperature_strength};
             AttentionWeights weights{vector_of(bias), vector_of(q_norm), vector_of(k_norm), vector_of(sinks)};
             return std::make_shared<Attention>(shape, kv_type, std::move(weights), isa);
           }),
           py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"), py::arg("rotated"), py::arg("context"),
           py::arg("scale"), py::arg("kv_type"), py::arg("bias") = py::none(), py::arg("q_norm") = py::none(),
           py::arg("k_norm") = py::none(), py::arg("norm_eps") = 0.0f, py::arg("isa") = py::none(), py::kw_only(),
           py::arg("qk_norm") = "head", py::arg("norm_after_rope") = false, py::arg("v_norm") = false,
           py::arg("clip") = 0.0f, py::arg("window") = 0, py::arg("chunk") = 0,
           py::arg("rollback") = AttentionShape{}.rollback, py::arg("sinks") = py::none(),
           py::arg("temperature_interval") = 0, py::arg("temperature_strength") = 0.0f)
      .def_property_readonly("tier", &Attention::tier)
      .def(
          "forward",
          [](const Attention& a, ThreadPool& pool, uintptr_t qkv, long long tokens, uintptr_t turns, long long start,
             uintptr_t cache, uintptr_t y) {
            const size_t n = count(tokens, "tokens");
            a.forward(pool, address<float>(qkv, n, "qkv"), n, address<const float>(turns, a.rotated() ? n : 0, "turns"),
                      start, address<uint8_t>(cache, n, "cache"), address<float>(y, n, "y"));
          },
          py::arg("pool"), py::arg("qkv"), py::arg("tokens"), py::arg("turns"), py::arg("start"), py::arg("cache"),
          py::arg("y"), Unlocked());
  m.def("kv_cache_nbytes", &kv_cache_nbytes, py::arg("kv_heads"), py::arg("head_dim"), py::arg("context"),
        py::arg("kv_type"), py::arg("reach") = 0, py::arg("rollback") = AttentionShape{}.rollback);
  m.def(
      "rms_norm",
      [](ThreadPool& pool, uintptr_t x, uintptr_t added, long long tokens, long long hidden, uintptr_t weight,
         float eps, uintptr_t y) {
        const NormRows rows(x, added, tokens, hidden, weight, y);
        norm(pool, rows.x, rows.added, rows.tokens, rows.hidden, rows.weight, nullptr, eps, rows.y);
      },
      py::arg("pool"), py::arg("x"), py::arg("added"), py::arg("tokens"), py::arg("hidden"), py::arg("weight"),
      py::arg("eps"), py::arg("y"));
  m.def(
      "layer_norm",
      [](ThreadPool& pool, uintptr_t x, uintptr_t added, long long tokens, long long hidden, uintptr_t weight,
         uintptr_t bias, float eps, uintptr_t y) {
        const float* biases = address<const float>(bias, count(tokens, "tokens"), "bias");
        const NormRows rows(x, added, tokens, hidden, weight, y);
        norm(pool, rows.x, rows.added, rows.tokens, rows.hidden, rows.weight, biases, eps, rows.y);
      },
      py::arg("pool"), py::arg("x"), py::arg("added"), py::arg("tokens"), py::arg("hidden"), py::arg("weight"),
      py::arg("bias"), py::arg("eps"), py::arg("y"));
}

// What a tier's main instruction does in registers; nothing where no such loop was built.
std::optional<std::pair<std::string, double>> arithmetic_peak(ThreadPool& pool, const std::string& code,
                                                              const Name& isa) {
#ifdef GREENROOM_CEILINGS
  const Kind kind = kind_of_code(code);
  const std::string tier = kernels_for(kind, isa).name;
  if (tier != "portable") {
    const greenroom_bench::Peak peak = greenroom_bench::peak_of(kind, tier);
    return std::pair{std::string(peak.name), greenroom_bench::peak_rate(pool, peak)};
  }
#else
  (void)pool, (void)code, (void)isa;
#endif
  return std::nullopt;
}

} // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "The compiled kernels; signatures and units are in _native.pyi.";
  bind_cpu(m);
  bind_pool(m);
  bind_matrix(m);
  bind_experts(m);
  bind_attention(m);
  m.def("handover_seconds", &handover_seconds, py::arg("pool"), Unlocked());
  m.def("arithmetic_peak", &arithmetic_peak, py::arg("pool"), py::arg("code"), py::arg("isa") = py::none(), Unlocked());
  bind_decoder(m);
  m.def("read_bandwidth", &read_bandwidth, py::arg("pool"), py::arg("nbytes"), py::arg("repeats"), Unlocked());
}
