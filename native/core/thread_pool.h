// Our own workers: the caller works too, tiles are claimed from one counter, idle workers sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "arena.h"

namespace greenroom {

constexpr size_t kMostNodes = 64; // of memory

class Interrupted : public std::runtime_error {
public:
  Interrupted() : std::runtime_error("cancelled") {}
};

// What the tiles of a phase read, tile after tile. A thread fetches the beginning of its share before it waits for the
// others, so that memory is not idle meanwhile and the first tile does not start from nothing.
struct Stream {
  const uint8_t* base = nullptr;
  size_t tiles = 0, tile_nbytes = 0;
  size_t there = SIZE_MAX; // only so many tiles lie like that
  size_t each = SIZE_MAX;  // bytes worth fetching of a tile
  size_t most = 8192;      // bytes a thread fetches: as far as the kernels themselves look ahead

  // Where a thread's share begins, null if that is not known.
  const uint8_t* share(size_t worker, size_t threads) const {
    const size_t first = tiles * worker / threads;
    return base && first < there ? base + first * tile_nbytes : nullptr;
  }
};

// Whether this tile is the last of a thread's share, where there are no memory nodes.
inline bool ends_share(size_t tile, size_t tiles, size_t worker, size_t threads) {
  return tile + 1 == tiles * (worker + 1) / threads;
}

// What the next job reads first.
struct Ahead {
  Stream first = {}, second = {};
};

// What is called for each tile; the callable itself stays with the caller, because a heap allocation per phase would
// cost as much as a barrier.
class Work {
public:
  template <class Callable, class = std::enable_if_t<!std::is_same_v<Callable, Work>>>
  Work(const Callable& callable)
      : callable_(&callable),
        call_([](const void* c, size_t tile, int worker) { (*static_cast<const Callable*>(c))(tile, worker); }) {}
  void operator()(size_t tile, int worker) const { call_(callable_, tile, worker); }

private:
  const void* callable_;
  void (*call_)(const void*, size_t, int);
};

// Independent tiles 0 .. tiles - 1; work(tile, worker) with worker < threads(). Which worker gets which tile must not
// change the result.
struct Phase {
  size_t tiles;
  Work work;
  // Where the tiles begin whose data lies in memory node 0, 1, ...: ascending from 0, at most `tiles`. A thread works
  // through its own node's tiles before it helps another node. Empty: all tiles are the same to all threads.
  std::span<const size_t> node_first = {};
  Stream stream = {};
  size_t most_at_once = SIZE_MAX; // tiles a thread takes together: few where some are far more work than others
};

// How many tiles of phases with nodes a thread has run.
struct Tally {
  uint64_t own = 0;    // of its own node
  uint64_t others = 0; // of another, when its own had none left
};

class ThreadPool {
public:
  // threads counts the caller. cpus: one core per thread; cpus[0] is the caller's and is left to it. Pinning that the
  // system refuses is not an error. nodes: the memory node of each thread, counted from 0; empty: one for all.
  // Throws std::invalid_argument for impossible counts.
  explicit ThreadPool(int threads, std::vector<int> cpus = {}, std::vector<int> nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  // Threads beyond those the pool was made with are not pinned, and go round the nodes.
  void resize(int threads);
  // One per thread, since the pool was made or resized. Waits for a running call.
  std::vector<Tally> tallies();
  // Ends the call that is running now, between tiles; without one it does nothing. Any thread may call it.
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  void close();

  // The pool for the length of one public call: others wait, an earlier cancel is forgotten.
  class Call {
  public:
    explicit Call(ThreadPool& pool);
    // Runs the phases one after the other, each finished before the next starts. The caller does single tiles that
    // come first by itself: waking others for them would only cost time.
    // Rethrows the first exception of a tile; throws Interrupted after cancel().
    void run(std::initializer_list<Phase> phases, const Ahead& ahead = {});
    int threads() const { return pool_.threads(); }
    // Memory that lives until the next call, 64-byte aligned, contents undefined. The pool keeps the largest asked for.
    std::byte* scratch(size_t nbytes);
    // Memory that whoever holds the call keeps from one call to the next, because new pages cost time.
    std::vector<Arena>& kept() { return pool_.kept_; }

  private:
    std::unique_lock<std::mutex> lock_;
    ThreadPool& pool_;
  };

private:
  struct Queue;
  struct Stage;
  struct Member;

  void start(int threads);
  void stop();
  void worker_main(int worker);
  void run(std::span<const Phase> phases, const Ahead& ahead);
  void open(std::span<const Phase> phases, const Ahead& ahead);
  void work(int worker);
  std::pair<size_t, size_t> range(const Stage& stage, size_t queue) const;
  std::pair<size_t, size_t> claim(const Stage& stage, Queue& queue, size_t number) const;
  size_t work_stage(const Stage& stage, int worker);
  size_t work_queue(const Stage& stage, size_t number, int worker);
  void fetch(const Stream& stream, int worker) const;
  int node_of(int worker) const;
  bool join_job(uint64_t state);
  void wait_until_left();

  std::mutex call_mutex_;
  std::atomic<int> threads_{1};
  std::vector<int> cpus_, nodes_;
  std::vector<std::thread> workers_;
  std::unique_ptr<Member[]> members_; // one per thread
  std::atomic<bool> cancelled_{false};
  bool closed_ = false;
  bool crowded_ = false; // more threads than cores: spinning would take the core from whoever has work
  Arena scratch_;
  std::vector<Arena> kept_;

  // The job: whoever opens it writes these while nobody is inside.
  std::unique_ptr<Stage[]> stages_;
  size_t stage_count_ = 0;
  Ahead ahead_;
  uint32_t turn_ = 0; // a number for every phase that ever ran
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;

  // generation in the high half, bit 31 "open", workers inside in the low bits. A worker enters only an open job, so a
  // worker that slept through a job is never waited for.
  std::atomic<uint64_t> state_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<int> parked_{0};
  std::mutex park_mutex_;
  std::condition_variable park_;
};

} // namespace greenroom
