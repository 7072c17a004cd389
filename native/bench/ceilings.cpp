#include "ceilings.h"

#include <chrono>
#include <ctime>
#include <optional>

#include "dispatch.h"
#include "peaks.h"

using namespace greenroom;

namespace greenroom_bench {
namespace {

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

} // namespace

double seconds(const ThreadPool& pool, const std::function<void()>& work) {
  const double start = now(pool);
  work();
  return now(pool) - start;
}

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

Peak peak_of(Kind kind, const std::string& tier) {
  const bool narrow = tier == "avx2" || tier == "avxvnni";
  if (kind == kBf16 && tier == "avx512bf16")
    return {"vdpbf16ps", dpbf16_chain, 16 * 64};
  if (kind == kBf16 || kind == kF16 || kind == kF32)
    return narrow ? Peak{"fma256", fma256_chain, 12 * 16} : Peak{"fma512", fma512_chain, 16 * 32};
  if (tier == "avxvnni")
    return {"vpdpbusd256", dpbusd256_chain, 12 * 64};
  return narrow ? Peak{"maddubs", maddubs_chain, 12 * 64} : Peak{"vpdpbusd", dpbusd_chain, 16 * 128};
}

double peak_rate(ThreadPool& pool, const Peak& peak) {
  constexpr long kTurns = 100000;
  volatile int sink = 0;
  ThreadPool::Call call(pool);
  const size_t tiles = static_cast<size_t>(pool.threads()) * 8;
  const double t = seconds(pool, [&] { call.run({{tiles, [&](size_t, int) { sink = peak.chain(kTurns); }}}); });
  return static_cast<double>(tiles) * kTurns * peak.operations / t;
}

} // namespace greenroom_bench
