// Our own workers: the caller works too, tiles are claimed from one counter, idle workers sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "arena.h"

namespace greenroom {

class Interrupted : public std::runtime_error {
public:
  Interrupted() : std::runtime_error("cancelled") {}
};

// Independent tiles 0 .. tiles - 1; work(tile, worker) with worker < threads(). Which worker gets which tile must not
// change the result.
struct Phase {
  size_t tiles;
  std::function<void(size_t tile, int worker)> work;
  // Where the tiles begin whose data lies in memory node 0, 1, ...: ascending from 0, at most `tiles`. A thread works
  // through its own node's tiles before it helps another node. Empty: all tiles are the same to all threads.
  std::vector<size_t> node_first = {};
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
    void run(std::vector<Phase> phases);
    int threads() const { return pool_.threads(); }
    // Memory that lives until the next call, 64-byte aligned, contents undefined. The pool keeps the largest asked for.
    std::byte* scratch(size_t nbytes);

  private:
    std::unique_lock<std::mutex> lock_;
    ThreadPool& pool_;
  };

private:
  struct Job;
  struct Queue;
  struct Member;

  void start(int threads);
  void stop();
  void worker_main(int worker);
  void work(Job& job, int worker);
  size_t work_queue(Job& job, const Phase& phase, Queue& queue, size_t shares, int worker);
  int node_of(int worker) const;
  bool join_job(uint64_t state);

  std::mutex call_mutex_;
  std::atomic<int> threads_{1};
  std::vector<int> cpus_, nodes_;
  std::vector<std::thread> workers_;
  std::unique_ptr<Member[]> members_; // one per thread
  std::atomic<bool> cancelled_{false};
  bool closed_ = false;
  bool crowded_ = false; // more threads than cores: spinning would take the core from whoever has work
  Arena scratch_;

  // generation in the high half, bit 31 "open", workers inside in the low bits. A worker enters only an open job, so a
  // worker that slept through a job is never waited for.
  std::atomic<uint64_t> state_{0};
  std::atomic<Job*> job_{nullptr};
  std::atomic<bool> stopping_{false};
  std::atomic<int> parked_{0};
  std::mutex park_mutex_;
  std::condition_variable park_;
};

} // namespace greenroom
