#include "bandwidth.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "arena.h"
#include "dispatch.h"

namespace greenroom {
namespace {

constexpr size_t kTile = size_t{1} << 18;

} // namespace

std::vector<double> read_bandwidth(ThreadPool& pool, long long nbytes, long long repeats) {
  if (nbytes < (1 << 20) || nbytes > (1LL << 40))
    throw std::invalid_argument("the buffer must be 1 MB to 1 TB");
  if (repeats < 1 || repeats > 1000)
    throw std::invalid_argument("repeats must be 1 to 1000");
  const size_t tiles = static_cast<size_t>(nbytes) / kTile;
  Arena buffer(tiles * kTile);
  const KernelTable& kernels = kernels_for(kInt8F16, std::nullopt);
  std::atomic<uint64_t> sink{0}; // keeps the loop from being optimised away
  ThreadPool::Call call(pool);
  call.run({{tiles, [&](size_t tile, int) { std::memset(buffer.data() + tile * kTile, 1, kTile); }}});
  std::vector<double> rates;
  for (long long i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call.run({{tiles, [&](size_t tile, int) {
                 sink.fetch_add(kernels.read(reinterpret_cast<const uint8_t*>(buffer.data()) + tile * kTile, kTile),
                                std::memory_order_relaxed);
               }}});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(buffer.nbytes()) / seconds.count());
  }
  return rates;
}

std::optional<double> handover_seconds(ThreadPool& pool) {
  constexpr int kTurns = 20000;
  constexpr auto kPatience = std::chrono::milliseconds(200);
  if (pool.threads() < 2)
    return std::nullopt;
  struct alignas(64) Line {
    std::atomic<int> value{0};
  };
  Line arrived, ball;
  std::atomic<bool> given_up{false};
  double seconds = 0;
  ThreadPool::Call call(pool);
  // Only if one thread took both tiles, or the other lost its core, does anybody wait in vain.
  call.run({{2, [&](size_t side, int) {
               const auto start = std::chrono::steady_clock::now();
               int spins = 0;
               auto wait = [&](auto&& ready) {
                 while (!ready() && !given_up)
                   if (++spins % 1024 == 0 && std::chrono::steady_clock::now() - start > kPatience)
                     given_up = true;
               };
               arrived.value.fetch_add(1);
               wait([&] { return arrived.value == 2; });
               const auto first = std::chrono::steady_clock::now();
               for (int turn = static_cast<int>(side); turn < 2 * kTurns && !given_up; turn += 2) {
                 wait([&] { return ball.value.load(std::memory_order_acquire) == turn; });
                 ball.value.store(turn + 1, std::memory_order_release);
               }
               if (side == 1)
                 seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - first).count();
             }}});
  if (given_up)
    return std::nullopt;
  return seconds / (2 * kTurns);
}

} // namespace greenroom
