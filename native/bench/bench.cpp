// How close the expert kernels come to this machine's ceilings, measured in the same breath: decode against the read
// bandwidth, prefill (512 tokens) against the arithmetic peak of the tier. Ratios and medians; the absolute figures are
// the machine's. Decode counts the bytes of the stored format, so that a fatter layout cannot look faster.
//
//   cmake -S . -B build/bench -DGREENROOM_PYTHON=OFF -DGREENROOM_BENCH=ON && cmake --build build/bench
//   build/bench/bench [threads] [repeats] [isa] [format] [small|large]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "arena.h"
#include "cpu.h"
#include "dispatch.h"
#include "experts.h"
#include "float16.h"
#include "peaks.h"

using namespace greenroom;

namespace {

struct Shape {
  size_t hidden, intermediate, experts, top_k;
};

// One thread is timed by its own CPU clock, which other programs do not disturb; several by the wall.
double now(const ThreadPool& pool) {
#ifdef __linux__
  if (pool.threads() == 1) {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds(const ThreadPool& pool, const std::function<void()>& work) {
  const double start = now(pool);
  work();
  return now(pool) - start;
}

// Bytes per second of a plain read loop.
double read_rate(ThreadPool& pool, const Arena& buffer) {
  constexpr size_t kTile = size_t{1} << 20;
  volatile uint64_t sink = 0;
  const KernelTable& kernels = kernels_for(kInt8F16, std::nullopt);
  auto read = [&](size_t tile, int) {
    sink = kernels.read(reinterpret_cast<const uint8_t*>(buffer.data()) + tile * kTile, kTile);
  };
  ThreadPool::Call call(pool);
  return static_cast<double>(buffer.nbytes()) / seconds(pool, [&] { call.run({{buffer.nbytes() / kTile, read}}); });
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Sane stored weights: random codes, small scales.
std::vector<uint8_t> stored(const Layout& layout, std::mt19937& rng) {
  std::vector<uint8_t> bytes(layout.rows * layout.stored_row_nbytes());
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const uint32_t word = static_cast<uint32_t>(rng());
    std::memcpy(bytes.data() + i, &word, 4);
  }
  if (layout.kind == kBf16) {
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const float value = (static_cast<float>(bytes[i]) - 127.5f) / 4096.0f;
      const uint16_t bits = bf16_from_f32(value);
      std::memcpy(bytes.data() + i, &bits, 2);
    }
  } else {
    // Q6_K has its scale last; those with minima have a second one behind the first.
    const uint16_t scale = f16_from_f32(0.01f);
    const size_t block = layout.format->nbytes, at = layout.format->name == std::string("Q6_K") ? block - 2 : 0;
    const bool second = block == 20 || block == 24 || block == 144 || block == 176;
    for (size_t i = 0; i < bytes.size(); i += block) {
      std::memcpy(bytes.data() + i + at, &scale, 2);
      if (second)
        std::memcpy(bytes.data() + i + 2, &scale, 2);
    }
  }
  return bytes;
}

struct Layer {
  Shape shape;
  std::unique_ptr<Experts> experts;
  double stored_nbytes; // of one expert

  Layer(ThreadPool& pool, Shape s, const std::string& format, const std::string& isa) : shape(s) {
    experts = std::make_unique<Experts>(s.experts, s.hidden, s.intermediate, format, format, format, std::nullopt, isa);
    std::mt19937 rng(1);
    stored_nbytes = 0;
    for (Part part : {Part::gate, Part::up, Part::down}) {
      const std::vector<uint8_t> bytes = stored(experts->layout(part), rng);
      stored_nbytes += static_cast<double>(bytes.size());
      for (size_t e = 0; e < s.experts; ++e)
        experts->load(pool, static_cast<long long>(e), part, bytes.data(), bytes.size());
    }
  }
};

struct Batch {
  size_t tokens;
  std::vector<float> x, weights, y;
  std::vector<int32_t> ids;

  Batch(const Shape& s, size_t n)
      : tokens(n), x(n * s.hidden), weights(n * s.top_k, 0.125f), y(n * s.hidden), ids(n * s.top_k) {
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    for (float& v : x)
      v = normal(rng);
  }
  void route(const Shape& s, std::mt19937& rng) {
    std::vector<int32_t> all(s.experts);
    for (size_t e = 0; e < s.experts; ++e)
      all[e] = static_cast<int32_t>(e);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t k = 0; k < s.top_k; ++k)
        std::swap(all[k], all[k + rng() % (s.experts - k)]);
      std::copy_n(all.begin(), s.top_k, ids.begin() + static_cast<std::ptrdiff_t>(t * s.top_k));
    }
  }
  void run(ThreadPool& pool, const Layer& layer) {
    layer.experts->forward(pool, {x.data(), tokens, ids.data(), weights.data(), layer.shape.top_k, y.data(), false});
  }
};

struct Peak {
  const char* name;
  int (*chain)(long);
  double operations; // per turn
};

Peak peak_of(const std::string& format, const std::string& tier) {
  if (format == "BF16" && tier == "avx512bf16")
    return {"vdpbf16ps", greenroom_bench::dpbf16_chain, 16 * 64};
  if (format == "BF16")
    return tier == "avx2" || tier == "avxvnni" ? Peak{"fma256", greenroom_bench::fma256_chain, 12 * 16}
                                               : Peak{"fma512", greenroom_bench::fma512_chain, 16 * 32};
  if (tier == "avxvnni")
    return {"vpdpbusd256", greenroom_bench::dpbusd256_chain, 12 * 64};
  return tier == "avx2" ? Peak{"maddubs", greenroom_bench::maddubs_chain, 12 * 64}
                        : Peak{"vpdpbusd", greenroom_bench::dpbusd_chain, 16 * 128};
}

double peak_gops(ThreadPool& pool, const Peak& peak) {
  constexpr long kTurns = 400000;
  volatile int sink = 0;
  ThreadPool::Call call(pool);
  const size_t tiles = static_cast<size_t>(pool.threads()) * 8;
  const double t = seconds(pool, [&] { call.run({{tiles, [&](size_t, int) { sink = peak.chain(kTurns); }}}); });
  return static_cast<double>(tiles) * kTurns * peak.operations / t / 1e9;
}

void measure(ThreadPool& pool, const Shape& shape, const std::string& format, const std::string& isa, int repeats) {
  Layer layer(pool, shape, format, isa);
  const std::string tier = layer.experts->kernels(Part::gate).name;
  const Peak peak = peak_of(format, tier);
  const double active = layer.stored_nbytes * static_cast<double>(shape.top_k);
  Batch one(shape, 1), many(shape, 512);
  std::mt19937 rng(3);
  many.route(shape, rng);
  const double gop = 2e-9 * 3.0 * static_cast<double>(many.tokens * shape.top_k * shape.hidden * shape.intermediate);
  const int calls = std::max(4, static_cast<int>(2e9 / active));
  Arena buffer(size_t{1} << 29);
  std::memset(buffer.data(), 1, buffer.nbytes());
  std::vector<double> rate, share, gops, peak_share;
  for (int r = 0; r < repeats; ++r) {
    const double before = read_rate(pool, buffer);
    double busy = 0;
    for (int i = 0; i < calls; ++i) {
      one.route(shape, rng);
      busy += seconds(pool, [&] { one.run(pool, layer); });
    }
    const double after = read_rate(pool, buffer);
    rate.push_back(active * calls / busy / 1e9);
    share.push_back(rate.back() * 1e9 / ((before + after) / 2));
    const double ceiling_before = peak_gops(pool, peak);
    const double t = seconds(pool, [&] { many.run(pool, layer); });
    gops.push_back(gop / t);
    peak_share.push_back(gops.back() / ((ceiling_before + peak_gops(pool, peak)) / 2));
  }
  std::printf(
      "%5zu x %4zu  %-4s %-10s %d thr | decode %6.1f GB/s  %3.0f %% of read | prefill %7.1f GOP/s  %3.0f %% of %s\n",
      shape.hidden, shape.intermediate, format.c_str(), tier.c_str(), pool.threads(), median(rate), 100 * median(share),
      median(gops), 100 * median(peak_share), peak.name);
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::string only_isa = argc > 3 ? argv[3] : "", only_format = argc > 4 ? argv[4] : "",
                    only_shape = argc > 5 ? argv[5] : "";
  ThreadPool pool(threads);
  std::printf("%s\n", detect_cpu().brand.c_str());
  for (const std::string& isa : tiers()) {
    if (isa == "portable" || isa == "avx512vnni" || (!only_isa.empty() && isa != only_isa))
      continue;
    for (const char* format : {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4", "BF16"}) {
      if (!only_format.empty() && only_format != format)
        continue;
      if (only_shape != "large")
        measure(pool, {2048, 768, 128, 8}, format, isa, repeats);
      if (only_shape != "small")
        measure(pool, {7168, 2048, 16, 8}, format, isa, repeats);
    }
  }
}
