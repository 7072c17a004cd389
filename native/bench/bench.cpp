// How close the kernels come to this machine's ceilings, from one token to many, measured in the same breath: bytes
// read against the read bandwidth, operations against the arithmetic peak of the tier, and time against the larger of
// the two (the roofline). Medians; the absolute figures are the machine's. Bytes are those of the stored format, so
// that a fatter layout cannot look faster, of every expert a batch meets, once.
//
//   cmake -S . -B build/bench -DGREENROOM_PYTHON=OFF -DGREENROOM_BENCH=ON && cmake --build build/bench
//   build/bench/bench --threads 2 --isa avx2 --format Q4_0 --shape 2048x768x128x8 --tokens 1,512 --json curve.json
//
// A shape of four numbers is a layer of routed experts (hidden x intermediate x experts x top-k), one of two a matrix
// (rows x columns). Options that choose may be given several times.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.h"
#include "ceilings.h"
#include "cpu.h"
#include "dispatch.h"
#include "experts.h"
#include "float16.h"
#include "matrix.h"

using namespace greenroom;
using namespace greenroom_bench;

namespace {

constexpr double kShortest = 0.02; // seconds one figure is measured over

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

// Something that multiplies: `call` runs one batch and returns the stored bytes it had to read.
struct Work {
  std::string tier;
  Kind kind;
  double operations; // per token
  std::function<double(size_t tokens)> call;
};

std::vector<float> noise(size_t n) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x)
    v = normal(rng);
  return x;
}

Work expert_layer(ThreadPool& pool, const std::vector<size_t>& shape, const std::string& format, const std::string& isa,
                  size_t most) {
  const size_t hidden = shape[0], intermediate = shape[1], count = shape[2], top_k = shape[3];
  if (top_k > count)
    throw std::invalid_argument("a token cannot go to more experts than there are");
  auto experts = std::make_shared<Experts>(count, hidden, intermediate, format, format, format, std::nullopt, isa);
  std::mt19937 rng(1);
  double expert_nbytes = 0;
  for (Part part : {Part::gate, Part::up, Part::down}) {
    const std::vector<uint8_t> bytes = stored(experts->layout(part), rng);
    expert_nbytes += static_cast<double>(bytes.size());
    for (size_t e = 0; e < count; ++e)
      experts->load(pool, static_cast<long long>(e), part, bytes.data(), bytes.size());
  }
  auto x = std::make_shared<std::vector<float>>(noise(most * hidden));
  auto y = std::make_shared<std::vector<float>>(most * hidden);
  auto call = [=, &pool, rng = std::mt19937(3)](size_t tokens) mutable {
    std::vector<int32_t> all(count), ids(tokens * top_k);
    for (size_t e = 0; e < count; ++e)
      all[e] = static_cast<int32_t>(e);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t k = 0; k < top_k; ++k)
        std::swap(all[k], all[k + rng() % (count - k)]);
      std::copy_n(all.begin(), top_k, ids.begin() + static_cast<std::ptrdiff_t>(t * top_k));
    }
    const std::vector<float> weights(tokens * top_k, 1.0f / static_cast<float>(top_k));
    experts->forward(pool, {x->data(), tokens, ids.data(), weights.data(), top_k, y->data(), false});
    return expert_nbytes * static_cast<double>(std::set<int32_t>(ids.begin(), ids.end()).size());
  };
  return {experts->kernels(Part::gate).name, experts->layout(Part::gate).kind,
          6.0 * static_cast<double>(hidden * intermediate * top_k), call};
}

Work dense_layer(ThreadPool& pool, const std::vector<size_t>& shape, const std::string& format, const std::string& isa,
                 size_t most) {
  auto matrix = std::make_shared<Matrix>(shape[0], shape[1], format, std::nullopt, isa);
  std::mt19937 rng(1);
  const std::vector<uint8_t> bytes = stored(matrix->layout(), rng);
  matrix->load(pool, bytes.data(), bytes.size(), 0);
  auto x = std::make_shared<std::vector<float>>(noise(most * shape[1]));
  auto y = std::make_shared<std::vector<float>>(most * shape[0]);
  auto call = [=, &pool, nbytes = static_cast<double>(bytes.size())](size_t tokens) {
    matrix->forward(pool, x->data(), tokens, y->data());
    return nbytes;
  };
  return {matrix->kernels().name, matrix->layout().kind, 2.0 * static_cast<double>(shape[0] * shape[1]), call};
}

struct Samples {
  std::vector<double> seconds, gbs, read_share, gops, peak_share, roof_share;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Options {
  int threads = 1, repeats = 5;
  std::vector<std::string> isas, formats, shapes;
  std::vector<size_t> tokens;
  std::string json;
};

std::vector<size_t> numbers(const std::string& text, char separator) {
  std::vector<size_t> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    const std::string piece = text.substr(at, end - at);
    if (piece.empty() || piece.size() > 9 || piece.find_first_not_of("0123456789") != std::string::npos ||
        std::stoul(piece) == 0)
      throw std::invalid_argument("\"" + text + "\" is no list of numbers separated by \"" + separator + "\"");
    out.push_back(std::stoul(piece));
    at = end + 1;
  }
  return out;
}

Options options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc)
      throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[i + 1];
    if (name == "--threads")
      o.threads = static_cast<int>(numbers(value, ',')[0]);
    else if (name == "--repeats")
      o.repeats = static_cast<int>(numbers(value, ',')[0]);
    else if (name == "--isa")
      o.isas.push_back(value);
    else if (name == "--format")
      o.formats.push_back(value);
    else if (name == "--shape")
      o.shapes.push_back(value);
    else if (name == "--tokens")
      o.tokens = numbers(value, ',');
    else if (name == "--json")
      o.json = value;
    else
      throw std::invalid_argument("unknown option " + name +
                                  "; known are --threads --repeats --isa --format --shape --tokens --json");
  }
  if (o.isas.empty())
    o.isas = tiers();
  if (o.formats.empty())
    o.formats = {"Q4_0", "Q4_K", "Q8_0", "BF16"};
  if (o.shapes.empty())
    o.shapes = {"2048x768x128x8", "7168x2048x16x8", "2048x4096"};
  if (o.tokens.empty())
    o.tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
  return o;
}

class Report {
public:
  explicit Report(const Options& o) : threads_(o.threads) {
    std::printf("%s, %d thread%s\n", detect_cpu().brand.c_str(), o.threads, o.threads > 1 ? "s" : "");
    if (o.json.empty())
      return;
    json_ = std::fopen(o.json.c_str(), "w");
    if (!json_)
      throw std::invalid_argument("cannot write " + o.json);
    std::fprintf(json_, "{\"cpu\": \"%s\", \"threads\": %d, \"results\": [", detect_cpu().brand.c_str(), o.threads);
  }
  ~Report() {
    if (!json_)
      return;
    std::fprintf(json_, "\n]}\n");
    std::fclose(json_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void add(const std::string& shape, const std::string& format, const Work& work, const char* peak, size_t tokens,
           const Samples& s) {
    std::printf("%-15s %-6s %-10s %4zu tok %10.1f us | %6.1f GB/s %4.0f %% of read | %7.1f GOP/s %4.0f %% of %s | "
                "%4.0f %% of roofline\n",
                shape.c_str(), format.c_str(), work.tier.c_str(), tokens, 1e6 * median(s.seconds), median(s.gbs),
                100 * median(s.read_share), median(s.gops), 100 * median(s.peak_share), peak,
                100 * median(s.roof_share));
    std::fflush(stdout);
    if (!json_)
      return;
    std::fprintf(json_,
                 "%s\n  {\"shape\": \"%s\", \"format\": \"%s\", \"tier\": \"%s\", \"threads\": %d, \"tokens\": %zu, "
                 "\"seconds\": %.9f, \"gbs\": %.3f, \"read_share\": %.4f, \"gops\": %.2f, \"peak\": \"%s\", "
                 "\"peak_share\": %.4f, \"roofline_share\": %.4f}",
                 rows_++ ? "," : "", shape.c_str(), format.c_str(), work.tier.c_str(), threads_, tokens,
                 median(s.seconds), median(s.gbs), median(s.read_share), median(s.gops), peak, median(s.peak_share),
                 median(s.roof_share));
  }

private:
  std::FILE* json_ = nullptr;
  int threads_;
  size_t rows_ = 0;
};

void measure(ThreadPool& pool, const Options& o, const std::string& shape, const std::string& format,
             const std::string& isa, Report& report) {
  const std::vector<size_t> sizes = numbers(shape, 'x');
  const size_t most = *std::max_element(o.tokens.begin(), o.tokens.end());
  if (sizes.size() != 2 && sizes.size() != 4)
    throw std::invalid_argument("a shape has two numbers or four, not \"" + shape + "\"");
  Work work =
      sizes.size() == 4 ? expert_layer(pool, sizes, format, isa, most) : dense_layer(pool, sizes, format, isa, most);
  const Peak peak = peak_of(work.kind, work.tier);
  Arena buffer(size_t{1} << 28);
  std::memset(buffer.data(), 1, buffer.nbytes());
  std::vector<Samples> samples(o.tokens.size());
  for (int r = 0; r < o.repeats; ++r) {
    for (size_t i = 0; i < o.tokens.size(); ++i) {
      const size_t tokens = o.tokens[i];
      const double read_before = read_rate(pool, buffer), peak_before = peak_rate(pool, peak);
      double busy = 0, nbytes = 0;
      int calls = 0;
      // A batch pays for the routing and the caches the batch before it left behind.
      for (; busy < kShortest; ++calls)
        busy += seconds(pool, [&] { nbytes += work.call(tokens); });
      const double read = (read_before + read_rate(pool, buffer)) / 2, top = (peak_before + peak_rate(pool, peak)) / 2;
      const double operations = work.operations * static_cast<double>(tokens) * calls;
      samples[i].seconds.push_back(busy / calls);
      samples[i].gbs.push_back(nbytes / busy / 1e9);
      samples[i].read_share.push_back(nbytes / busy / read);
      samples[i].gops.push_back(operations / busy / 1e9);
      samples[i].peak_share.push_back(operations / busy / top);
      samples[i].roof_share.push_back(std::max(nbytes / read, operations / top) / busy);
    }
  }
  for (size_t i = 0; i < o.tokens.size(); ++i)
    report.add(shape, format, work, peak.name, o.tokens[i], samples[i]);
}

} // namespace

int main(int argc, char** argv) {
  try {
    const Options o = options(argc, argv);
    ThreadPool pool(o.threads);
    Report report(o);
    std::set<std::string> done; // several caps may lead to one tier
    for (const std::string& shape : o.shapes)
      for (const std::string& format : o.formats)
        for (const std::string& isa : o.isas) {
          const char* tier = kernels_for(format_named(format).kind, isa).name;
          if (tier != std::string("portable") && done.insert(shape + format + tier).second)
            measure(pool, o, shape, format, isa, report);
        }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
