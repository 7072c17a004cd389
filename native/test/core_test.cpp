// The kernels and the pool without Python, small enough for the sanitizers. The thorough tests are in tests/native.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "activations.h"
#include "attention.h"
#include "bandwidth.h"
#include "decoder.h"
#include "dispatch.h"
#include "experts.h"
#include "matrix.h"
#include "norm.h"

using namespace greenroom;

namespace {

void require(bool condition, const std::string& what) {
  if (condition)
    return;
  std::fprintf(stderr, "core_test: %s\n", what.c_str());
  std::exit(1);
}

// Exactly as long as stored rows are: a read beyond them is the sanitizer's to find.
std::vector<uint8_t> stored(const Layout& layout, std::mt19937& rng) {
  std::vector<uint8_t> bytes(layout.rows * layout.stored_row_nbytes());
  const std::string& name = layout.format->name;
  if (name == "F32") {
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const float value = static_cast<float>(rng() % 2000) / 1000.0f - 1.0f;
      std::memcpy(bytes.data() + i, &value, 4);
    }
    return bytes;
  }
  for (uint8_t& b : bytes)
    b = static_cast<uint8_t>(rng());
  // High bytes of every f16 or bf16 number: sane exponents.
  auto tame = [&](size_t first, size_t every) {
    for (size_t i = first; i < bytes.size(); i += every)
      bytes[i] = (bytes[i] & 0x83) | 0x28;
  };
  const size_t block = layout.format->nbytes;
  if (name == "BF16" || name == "F16") {
    tame(1, 2);
    if (name == "BF16")
      for (size_t i = 1; i < bytes.size(); i += 2)
        bytes[i] = (bytes[i] & 0x80) | 0x3e;
  } else if (name == "MXFP4") {
    for (size_t i = 0; i < bytes.size(); i += block)
      bytes[i] = static_cast<uint8_t>(118 + rng() % 8);
  } else if (name == "NVFP4") {
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = i % block < 4 ? bytes[i] & 63 : bytes[i];
  } else if (name == "Q6_K") {
    tame(209, block);
  } else if (name == "Q3_K") {
    tame(109, block);
  } else if (name == "Q2_K") {
    tame(81, block);
    tame(83, block);
  } else if (name.find("_G") != std::string::npos) {
    const bool f32 = name.find("F32") != std::string::npos;
    const size_t top = f32 ? 3 : 1;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i % block == top)
        bytes[i] = static_cast<uint8_t>(name.find("_F16") != std::string::npos ? 0x28 : 0x3c);
      else if (name[0] == 'E' && i % block > top && (bytes[i] & 0x7f) > 0x48)
        bytes[i] &= 0xbf; // no NaN, nothing that would drown the others
    }
  } else {
    tame(1, block);
    if (name == "Q4_1" || name == "Q5_1" || name == "Q4_K" || name == "Q5_K")
      tame(3, block);
  }
  return bytes;
}

std::vector<float> normal(size_t n, std::mt19937& rng) {
  std::normal_distribution<float> distribution;
  std::vector<float> out(n);
  for (float& v : out)
    v = distribution(rng);
  return out;
}

void matrices(ThreadPool& pool, const std::string& isa) {
  std::mt19937 rng(1);
  for (const char* format :
       {"F32",           "F16",           "BF16",         "Q8_0",       "Q4_0",           "Q4_1",
        "Q5_0",          "Q5_1",          "Q2_K",         "Q3_K",       "Q4_K",           "Q5_K",
        "Q6_K",          "IQ4_NL",        "IQ4_XS",       "MXFP4",      "NVFP4",          "I4_G32_BF16",
        "I4_G128_F16_Z", "I4_G16_F32",    "I4_G16_F16_Z", "I8_G64_F32", "I8_G128_BF16_Z", "I8_G16_BF16",
        "I8_G16_F16_Z",  "E4M3_G128_F32", "E4M3_G16_BF16"}) {
    const bool floats = format[0] == 'F' || format[0] == 'B';
    for (const char* recode : {"", "float32", "int8", "int4", "int4_g128"}) {
      const bool integers = !std::strncmp(recode, "int", 3);
      const long long columns = !floats ? 256 : !integers ? 37 : !std::strcmp(recode, "int4_g128") ? 128 : 96;
      Matrix w(35, columns, format, *recode ? std::optional<std::string>(recode) : std::nullopt, isa);
      const std::vector<uint8_t> bytes = stored(w.layout(), rng);
      w.load(pool, bytes.data(), bytes.size(), 0);
      const size_t k = w.layout().columns;
      std::vector<float> dense(35 * k);
      w.dequantise(dense.data());
      for (size_t tokens : {1u, 3u, 21u}) {
        const std::vector<float> x = normal(tokens * k, rng);
        std::vector<float> y(tokens * 35);
        w.forward(pool, x.data(), tokens, y.data());
        for (size_t t = 0; t < tokens; ++t)
          for (size_t r = 0; r < 35; ++r) {
            double sum = 0, magnitude = 0, largest = 0;
            for (size_t c = 0; c < k; ++c) {
              const double w_c = dense[r * k + c];
              sum += w_c * x[t * k + c];
              magnitude += std::fabs(w_c);
              largest = std::fmax(largest, std::fabs(x[t * k + c]));
            }
            // Half a step of int8 activations, or the rounding of bf16 ones, whichever applies is smaller.
            require(std::fabs(sum - y[t * 35 + r]) <= largest / 200 * magnitude + 1e-5,
                    std::string(isa) + " " + format + " " + recode + ": a product is off");
          }
      }
    }
  }
}

void layers(ThreadPool& pool, const std::string& isa) {
  std::mt19937 rng(2);
  // 34 strips of output rows: of a few tokens a thread alone takes two at a time, one of three takes one.
  constexpr size_t kExperts = 5, kHidden = 544, kInner = 96, kTopK = 3;
  for (const char* format : {"Q4_1", "Q8_0", "BF16", "F32", "I4_G16_BF16", "E4M3_G32_F16", "I4_G32_F32_Z"}) {
    Experts experts(kExperts, kHidden, kInner, format, format, format, std::nullopt, isa);
    for (size_t e = 0; e < kExperts; ++e)
      for (Part part : {Part::gate, Part::up, Part::down}) {
        const std::vector<uint8_t> bytes = stored(experts.layout(part), rng);
        experts.load(pool, static_cast<long long>(e), part, bytes.data(), bytes.size());
      }
    for (size_t tokens : {1u, 7u, 50u}) {
      std::vector<float> x = normal(tokens * kHidden, rng), weights(tokens * kTopK, 0.5f), y(tokens * kHidden);
      std::vector<int32_t> ids(tokens * kTopK);
      for (int32_t& id : ids)
        id = static_cast<int32_t>(rng() % (kExperts + 1)) - 1;
      x[5] = tokens == 7 ? INFINITY : x[5];
      experts.forward(pool, {x.data(), tokens, ids.data(), weights.data(), kTopK, y.data(), false});
      std::vector<float> again(tokens * kHidden);
      ThreadPool single(1);
      experts.forward(single, {x.data(), tokens, ids.data(), weights.data(), kTopK, again.data(), false});
      require(std::memcmp(y.data(), again.data(), y.size() * sizeof(float)) == 0, "threads changed a result");
    }
  }
}

#ifdef __linux__
// Activations that end where unmapped memory begins: a kernel that reads behind the last token dies.
void activations_at_the_edge(const std::string& isa) {
  constexpr size_t kTokens = 19, kColumns = 256, kMapped = size_t{1} << 16, kPage = 4096;
  auto* base =
      static_cast<uint8_t*>(mmap(nullptr, kMapped + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  require(base != MAP_FAILED && mprotect(base + kMapped, kPage, PROT_NONE) == 0, "no guard page");
  for (const char* format :
       {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q2_K", "Q3_K", "Q4_K", "Q6_K", "IQ4_NL", "IQ4_XS",
        "MXFP4", "NVFP4", "I4_G128_F16_Z", "I8_G16_F32_Z", "E4M3_G64_BF16", "E4M3_G16_F16"}) {
    const Layout layout = layout_of(32, kColumns, format, std::nullopt);
    const KernelTable& kernels = kernels_for(layout.kind, isa);
    const std::vector<uint8_t> strips(layout.nbytes());
    const size_t row = activation_row_nbytes(form_of(layout.kind, kernels), kColumns) - 64;
    for (size_t tokens = 1; tokens <= kTokens; ++tokens) {
      const void* x[kTokens];
      for (size_t t = 0; t < tokens; ++t)
        x[t] = base + kMapped - (tokens - t) * row;
      float out[kTokens * 32];
      const StripTask one = {strips.data(), nullptr, layout.steps, strips.data(), nullptr, layout.scaling};
      const StripTask two = {strips.data(), strips.data() + layout.strip_nbytes,
                             layout.steps,  strips.data(),
                             strips.data(), layout.scaling};
      kernels.strip[layout.kind](&one, x, tokens, out, 32);
      kernels.strip[layout.kind](&two, x, tokens, out, 32);
    }
  }
  munmap(base, kMapped + kPage);
}
#endif

void attention(ThreadPool& pool, const std::string& isa) {
  std::mt19937 rng(3);
  constexpr size_t kHeads = 6, kKvHeads = 2, kTokens = 600;
  for (size_t head_dim : {24u, 33u, 64u}) {
    AttentionShape shape{kHeads, kKvHeads, static_cast<long long>(head_dim), 8, kTokens, 0.2f, 1e-6f};
    shape.window = head_dim < 64 ? 70 : 0;
    const size_t columns = (kHeads + 2 * kKvHeads) * head_dim, out = kHeads * head_dim;
    const std::vector<float> qkv = normal(kTokens * columns, rng), turns(kTokens * 8, 0.7f);
    for (const char* kv_type : {"f32", "bf16", "f16", "q8"}) {
      const Attention layer(
          shape, kv_type,
          {normal(columns, rng), normal(head_dim, rng), normal(head_dim, rng), normal(shape.window ? kHeads : 0, rng)},
          isa);
      // Exactly as long as it must be, and of any contents.
      std::vector<uint8_t> cache(
          kv_cache_nbytes(kKvHeads, static_cast<long long>(head_dim), kTokens, kv_type, shape.window, shape.rollback),
          uint8_t{0xff});
      std::vector<float> whole(kTokens * out), parts(kTokens * out);
      std::vector<float> work = qkv;
      layer.forward(pool, work.data(), kTokens, turns.data(), 0, cache.data(), whole.data());
      size_t first = 0;
      for (size_t last : {1u, 40u, 590u, 591u, 600u}) {
        work.assign(qkv.begin() + static_cast<std::ptrdiff_t>(first * columns),
                    qkv.begin() + static_cast<std::ptrdiff_t>(last * columns));
        layer.forward(pool, work.data(), last - first, turns.data() + first * 8, static_cast<long long>(first),
                      cache.data(), parts.data() + first * out);
        first = last;
      }
      require(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)) == 0,
              isa + " " + kv_type + ": chunks changed a result");
      for (float value : whole)
        require(std::isfinite(value), isa + " " + kv_type + ": memory never written was read");
    }
  }
}

void norms(ThreadPool& pool) {
  std::mt19937 rng(4);
  for (size_t hidden : {1u, 37u, 4096u}) {
    std::vector<float> x = normal(20 * hidden, rng);
    const std::vector<float> added = normal(20 * hidden, rng), weight(hidden, 2.0f);
    std::vector<float> y(20 * hidden);
    norm(pool, x.data(), added.data(), 20, hidden, weight.data(), nullptr, 0.0f, y.data());
    for (size_t t = 0; t < 20; ++t) {
      const float* row = y.data() + t * hidden;
      const double mean = std::inner_product(row, row + hidden, row, 0.0) / static_cast<double>(hidden);
      require(std::fabs(mean - 4.0) < 1e-4, "a norm is off");
    }
  }
}

std::shared_ptr<const Matrix> random_matrix(ThreadPool& pool, long long rows, long long columns, std::mt19937& rng,
                                            const std::string& isa) {
  auto w = std::make_shared<Matrix>(rows, columns, "Q4_0", std::nullopt, isa);
  const std::vector<uint8_t> bytes = stored(w->layout(), rng);
  w->load(pool, bytes.data(), bytes.size(), 0);
  return w;
}

std::shared_ptr<const Experts> random_experts(ThreadPool& pool, long long experts, std::mt19937& rng,
                                              const std::string& isa) {
  auto layer = std::make_shared<Experts>(experts, 64, 96, "Q8_0", "Q8_0", "Q4_1", std::nullopt, isa, std::vector<int>{},
                                         ExpertActivation{"oai", 7.0f, true});
  for (long long e = 0; e < experts; ++e)
    for (Part part : {Part::gate, Part::up, Part::down}) {
      const std::vector<uint8_t> bytes = stored(layer->layout(part), rng);
      layer->load(pool, e, part, bytes.data(), bytes.size());
      const std::vector<float> bias = normal(layer->layout(part).rows, rng);
      layer->load_bias(e, part, bias.data(), bias.size());
    }
  return layer;
}

// One layer of each kind; whole, in chunks, and on one thread.
void decoder(ThreadPool& pool, const std::string& isa) {
  constexpr size_t kHidden = 64, kTokens = 150, kVocab = 35;
  std::mt19937 rng(5);
  const auto norm = [&] { return Norm{normal(kHidden, rng), {}, 1e-5f}; };
  const auto linear = [&](long long rows) { return Linear{{random_matrix(pool, rows, kHidden, rng, isa)}, {}}; };
  AttentionShape shape{4, 2, 16, 8, kTokens, 0.25f};
  shape.window = 40;
  shape.rollback = 64;
  std::vector<uint8_t> caches[3];
  std::vector<LayerBlock> layers;
  RouterShape routing{5, 2, "softmax"};
  routing.shared_gate = true;
  const MoeBlock moe{linear(6), std::make_shared<Router>(routing, RouterWeights{}),
                     norm(),    random_experts(pool, 5, rng, isa),
                     false,     MlpBlock{random_experts(pool, 1, rng, isa)}};
  for (size_t i = 0; i < 3; ++i) {
    caches[i].assign(kv_cache_nbytes(2, 16, kTokens, "q8", shape.window, shape.rollback), uint8_t{0xff});
    auto attention = std::make_shared<Attention>(shape, "q8", AttentionWeights{}, isa);
    const AttentionBlock mixer{linear(128), attention, linear(64), size_t{0}, caches[i].data()};
    const MlpBlock mlp{random_experts(pool, 1, rng, isa)};
    LayerBlock layer{norm(), mixer, norm(), mlp, {}, {}, 1.0f, {}};
    if (i == 1)
      layer.ffn = moe;
    if (i == 2)
      layer = {norm(), mixer, norm(), ParallelBlock{mlp, norm(), norm(), moe, norm()}, norm(), norm(), 0.5f, 0.9f};
    layers.push_back(std::move(layer));
  }
  const Decoder model({{{0.5, 0.1, 0.02, 0.004}, 1.1}}, layers, norm(), linear(kVocab));
  const std::vector<float> x = normal(kTokens * kHidden, rng);
  const auto run = [&](ThreadPool& threads, std::vector<size_t> cuts) {
    std::vector<float> logits(kTokens * kVocab);
    size_t first = 0;
    for (size_t last : cuts) {
      std::vector<float> part(x.begin() + static_cast<std::ptrdiff_t>(first * kHidden),
                              x.begin() + static_cast<std::ptrdiff_t>(last * kHidden));
      model.forward(threads, part.data(), last - first, static_cast<long long>(first), false,
                    logits.data() + first * kVocab);
      first = last;
    }
    return logits;
  };
  ThreadPool single(1);
  const std::vector<float> expected = run(single, {64, 128, 150});
  for (float value : expected)
    require(std::isfinite(value), isa + ": a decoder's logits are not finite");
  require(run(pool, {1, 2, 60, 124, 149, 150}) == expected, isa + ": chunks or threads changed a decoder's logits");
  const auto kept = [&] { return ThreadPool::Call(single).kept().size(); };
  const size_t rooms = kept();
  run(single, {1, 2, 70, 150});
  require(rooms > 0 && kept() == rooms, isa + ": a decoder keeps more memory with every call");
}

void pool_under_stress() {
  ThreadPool pool(4);
  for (int round = 0; round < 300; ++round) {
    std::atomic<int> first{0}, second{0};
    ThreadPool::Call call(pool);
    call.run({{37, [&](size_t, int) { ++first; }}, {11, [&](size_t, int) {
                                                      require(first == 37, "a phase started early");
                                                      ++second;
                                                    }}});
    require(second == 11, "a tile was lost");
  }
  // One tile of the first phase dawdles as long as nobody has gone ahead: without a barrier somebody would.
  for (int round = 0; round < 10; ++round) {
    std::atomic<bool> finished{false}, early{false};
    ThreadPool::Call call(pool);
    call.run({{4,
               [&](size_t tile, int) {
                 if (tile != 0)
                   return;
                 for (int turn = 0; turn < 20000 && !early; ++turn)
                   std::this_thread::yield();
                 finished = true;
               }},
              {8, [&](size_t, int) { early = early || !finished; }}});
    require(!early, "a phase did not wait for the one before");
  }
  // The first tile is as much work as all others together: whoever has it must not have taken others with it.
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> others{0};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ThreadPool::Call call(pool);
    call.run({{64,
               [&](size_t tile, int) {
                 if (tile != 0)
                   ++others;
                 while (tile == 0 && others < 63 && std::chrono::steady_clock::now() < end)
                   std::this_thread::yield();
               },
               {},
               {},
               1}});
    require(std::chrono::steady_clock::now() < end, "a long tile kept others waiting");
  }
  int interrupted = 0;
  std::atomic<bool> stop{false};
  std::thread canceller([&] {
    while (!stop)
      pool.cancel();
  });
  // On a busy machine the other thread may take a while to get a core.
  for (int round = 0; round < 50 || (!interrupted && round < 100000); ++round) {
    try {
      ThreadPool::Call call(pool);
      call.run({{100, [](size_t, int) { std::this_thread::yield(); }}});
    } catch (const Interrupted&) {
      ++interrupted;
    }
  }
  stop = true;
  canceller.join();
  require(interrupted > 0, "cancel had no effect");
  bool caught = false;
  try {
    ThreadPool::Call call(pool);
    call.run({{50, [](size_t tile, int) {
                 if (tile == 31)
                   throw std::runtime_error("tile 31");
               }}});
  } catch (const std::runtime_error& error) {
    caught = std::string(error.what()) == "tile 31";
  }
  require(caught, "an exception was lost");
  for (int threads : {1, 3, 2, 6}) {
    pool.resize(threads);
    std::atomic<int> tiles{0};
    ThreadPool::Call call(pool);
    call.run({{100, [&](size_t, int) { ++tiles; }}});
    require(tiles == 100, "a tile was lost after resizing");
  }
}

// Every thread works through the tiles of its own node before it touches another's.
void pool_with_nodes() {
  const std::vector<int> nodes = {0, 1, 0, 1, 1};
  ThreadPool pool(5, {}, nodes);
  const std::vector<size_t> first = {0, 40, 100}; // three slices where threads are on two nodes
  std::vector<std::vector<size_t>> ran(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::atomic<int>> times(130);
    for (auto& tiles : ran)
      tiles.clear();
    ThreadPool::Call call(pool);
    call.run({{130,
               [&](size_t tile, int worker) {
                 ++times[tile];
                 ran[static_cast<size_t>(worker)].push_back(tile);
                 std::this_thread::yield();
               },
               first}});
    for (const auto& n : times)
      require(n == 1, "a tile of a node ran other than once");
    for (size_t worker = 0; worker < 5; ++worker) {
      // Own node, then the next ones in turn: the rank of a tile's node never falls.
      size_t rank = 0;
      for (size_t tile : ran[worker]) {
        const size_t node = tile < 40 ? 0 : tile < 100 ? 1 : 2;
        const size_t turn = (node + 3 - static_cast<size_t>(nodes[worker])) % 3;
        require(turn >= rank, "a thread left its node's tiles before they were done");
        rank = turn;
      }
    }
  }
  uint64_t total = 0;
  for (const Tally& tally : pool.tallies())
    total += tally.own + tally.others;
  require(total == 50 * 130, "tallies do not add up");
}

void layers_on_nodes(ThreadPool& plain) {
  constexpr size_t kExperts = 3, kHidden = 160, kIntermediate = 96;
  std::mt19937 rng(5);
  Experts whole(kExperts, kHidden, kIntermediate, "Q4_0", "Q8_0", "BF16", std::nullopt, std::nullopt);
  ThreadPool spread(4, {}, {0, 1, 1, 0});
  const std::vector<float> x = normal(5 * kHidden, rng), weights(10, 0.5f);
  const std::vector<int32_t> ids = {0, 2, 1, 2, 0, 1, 2, 0, 1, -1};
  for (size_t nodes : {2, 3, 8}) {
    Experts sliced(kExperts, kHidden, kIntermediate, "Q4_0", "Q8_0", "BF16", std::nullopt, std::nullopt,
                   std::vector<int>(nodes, 0));
    for (size_t n = 0; n < nodes; ++n)
      sliced.touch(n);
    for (Part part : {Part::gate, Part::up, Part::down})
      for (long long e = 0; e < static_cast<long long>(kExperts); ++e) {
        const std::vector<uint8_t> bytes = stored(whole.layout(part), rng);
        whole.load(plain, e, part, bytes.data(), bytes.size());
        sliced.load(spread, e, part, bytes.data(), bytes.size());
      }
    std::vector<float> expected(x.size()), got(x.size());
    whole.forward(plain, {x.data(), 5, ids.data(), weights.data(), 2, expected.data(), false});
    sliced.forward(spread, {x.data(), 5, ids.data(), weights.data(), 2, got.data(), false});
    require(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)) == 0, "slices change results");
  }
}

} // namespace

int main() {
  ThreadPool pool(3), alone(1);
  for (const std::string& isa : tiers()) {
    matrices(pool, isa);
    layers(pool, isa);
    layers(alone, isa);
#ifdef __linux__
    activations_at_the_edge(isa);
#endif
    attention(pool, isa);
    decoder(pool, isa);
  }
  norms(pool);
  pool_under_stress();
  pool_with_nodes();
  layers_on_nodes(pool);
  require(read_bandwidth(pool, 1 << 20, 2).size() == 2, "bandwidth");
  std::puts("core_test: all good");
}
