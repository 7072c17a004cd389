#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>

#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#elif defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(GREENROOM_X86) && defined(_MSC_VER)
#include <intrin.h>
#endif

namespace greenroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint64_t kInside = kOpen - 1;
constexpr int kMaxNodes = 64;
constexpr int kMaxThreads = 1024;
constexpr auto kSpinTime = std::chrono::milliseconds(1);

void relax() {
#if defined(GREENROOM_X86) && defined(_MSC_VER)
  _mm_pause();
#elif defined(GREENROOM_X86)
  __asm__ volatile("pause");
#elif defined(__aarch64__) && !defined(_MSC_VER)
  __asm__ volatile("yield");
#endif
}

// Spins a few microseconds, then lets others have the core, then sleeps in slices: whoever holds the last tile may have
// lost its core to us.
class Patience {
public:
  explicit Patience(bool crowded) : spins_(crowded ? 0 : 4000) {}
  void wait() {
    if (turns_ < spins_) {
      relax();
    } else if (turns_ < spins_ + 2000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ++turns_;
  }

private:
  int spins_;
  int turns_ = 0;
};

void pin(std::thread& thread, int cpu) {
#ifdef _WIN32
  if (cpu < 64)
    SetThreadAffinityMask(thread.native_handle(), DWORD_PTR{1} << cpu);
#elif defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
#else
  (void)thread;
  (void)cpu;
#endif
}

// Cores this process may use, not those the machine has.
int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void check_threads(int threads) {
  if (threads < 1 || threads > kMaxThreads)
    throw std::invalid_argument("threads must be 1 to " + std::to_string(kMaxThreads) + ", not " +
                                std::to_string(threads));
}

} // namespace

// Tiles that lie together: one per phase, or one per phase and memory node.
struct alignas(64) ThreadPool::Queue {
  std::atomic<size_t> next{0};
  size_t last = 0;
};

struct alignas(64) ThreadPool::Member {
  int node = 0;
  size_t peers = 1; // threads of the same node, itself included
  Tally tally;
};

struct ThreadPool::Job {
  struct alignas(64) Stage {
    std::atomic<size_t> done{0};
    size_t first_queue = 0, queues = 0;
  };
  explicit Job(std::vector<Phase> list);

  std::vector<Phase> phases;
  std::vector<Stage> stages;
  std::vector<Queue> queues;
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;
};

ThreadPool::Job::Job(std::vector<Phase> list) : phases(std::move(list)), stages(phases.size()) {
  size_t count = 0;
  for (size_t p = 0; p < phases.size(); ++p) {
    stages[p].first_queue = count;
    stages[p].queues = std::max<size_t>(1, phases[p].node_first.size());
    count += stages[p].queues;
  }
  queues = std::vector<Queue>(count);
  for (size_t p = 0; p < phases.size(); ++p) {
    const std::vector<size_t>& starts = phases[p].node_first;
    for (size_t n = 0; n < stages[p].queues; ++n) {
      Queue& queue = queues[stages[p].first_queue + n];
      queue.next.store(starts.empty() ? 0 : starts[n], std::memory_order_relaxed);
      queue.last = n + 1 < starts.size() ? starts[n + 1] : phases[p].tiles;
    }
  }
}

ThreadPool::ThreadPool(int threads, std::vector<int> cpus, std::vector<int> nodes)
    : cpus_(std::move(cpus)), nodes_(std::move(nodes)) {
  check_threads(threads);
  if (!cpus_.empty() && cpus_.size() != static_cast<size_t>(threads))
    throw std::invalid_argument("cpus must name one core per thread: " + std::to_string(threads) + " threads, " +
                                std::to_string(cpus_.size()) + " cores");
  for (int cpu : cpus_)
    if (cpu < 0 || cpu >= 1024)
      throw std::invalid_argument("no such core: " + std::to_string(cpu));
  if (!nodes_.empty() && nodes_.size() != static_cast<size_t>(threads))
    throw std::invalid_argument("nodes must name one memory node per thread: " + std::to_string(threads) +
                                " threads, " + std::to_string(nodes_.size()) + " nodes");
  for (int node : nodes_)
    if (node < 0 || node >= kMaxNodes)
      throw std::invalid_argument("no such memory node: " + std::to_string(node));
  start(threads);
}

ThreadPool::~ThreadPool() {
  close();
}

void ThreadPool::start(int threads) {
  stopping_ = false;
  crowded_ = threads > usable_cores();
  threads_ = threads;
  members_ = std::make_unique<Member[]>(static_cast<size_t>(threads));
  for (int worker = 0; worker < threads; ++worker) {
    members_[worker].node = node_of(worker);
    members_[worker].peers = 0;
    for (int other = 0; other < threads; ++other)
      members_[worker].peers += node_of(other) == members_[worker].node;
  }
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { worker_main(worker); });
      if (static_cast<size_t>(worker) < cpus_.size())
        pin(workers_.back(), cpus_[static_cast<size_t>(worker)]);
    }
  } catch (...) {
    stop();
    throw;
  }
}

void ThreadPool::stop() {
  {
    std::lock_guard lock(park_mutex_);
    stopping_ = true;
  }
  park_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
  workers_.clear();
  threads_ = 1;
}

int ThreadPool::node_of(int worker) const {
  return nodes_.empty() ? 0 : nodes_[static_cast<size_t>(worker) % nodes_.size()];
}

std::vector<Tally> ThreadPool::tallies() {
  std::lock_guard lock(call_mutex_);
  std::vector<Tally> all;
  for (int worker = 0; worker < threads_; ++worker)
    all.push_back(members_[worker].tally);
  return all;
}

void ThreadPool::resize(int threads) {
  check_threads(threads);
  std::lock_guard lock(call_mutex_);
  if (closed_)
    throw std::runtime_error("the thread pool is closed");
  if (threads == threads_)
    return;
  stop();
  start(threads);
}

void ThreadPool::close() {
  std::lock_guard lock(call_mutex_);
  if (closed_)
    return;
  closed_ = true;
  stop();
  scratch_ = Arena();
}

bool ThreadPool::join_job(uint64_t state) {
  while (state & kOpen) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel))
      return true;
  }
  return false;
}

void ThreadPool::worker_main(int worker) {
  uint64_t seen = 0;
  auto generation = [this] { return state_.load(std::memory_order_seq_cst) >> 32; };
  while (true) {
    const auto idle_since = Clock::now();
    int turns = 0;
    while (generation() == seen && !stopping_.load(std::memory_order_relaxed)) {
      if (crowded_ || turns > 20000) {
        std::this_thread::yield();
      } else {
        relax();
      }
      if (++turns % 64 == 0 && Clock::now() - idle_since > kSpinTime) {
        std::unique_lock lock(park_mutex_);
        parked_.fetch_add(1, std::memory_order_seq_cst);
        park_.wait(lock, [&] { return generation() != seen || stopping_.load(std::memory_order_relaxed); });
        parked_.fetch_sub(1, std::memory_order_seq_cst);
      }
    }
    if (stopping_.load(std::memory_order_relaxed))
      return;
    const uint64_t state = state_.load(std::memory_order_acquire);
    seen = state >> 32;
    if (!join_job(state))
      continue;
    work(*job_.load(std::memory_order_acquire), worker);
    state_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::work(Job& job, int worker) {
  Member& member = members_[worker];
  for (size_t p = 0; p < job.phases.size(); ++p) {
    Job::Stage& stage = job.stages[p];
    for (size_t turn = 0; turn < stage.queues; ++turn) {
      const size_t node = (static_cast<size_t>(member.node) + turn) % stage.queues;
      Queue& queue = job.queues[stage.first_queue + node];
      const size_t shares = 4 * (stage.queues == 1 ? static_cast<size_t>(threads()) : member.peers);
      const size_t ran = work_queue(job, job.phases[p], queue, shares, worker);
      if (ran)
        stage.done.fetch_add(ran, std::memory_order_acq_rel);
      if (stage.queues > 1)
        (turn ? member.tally.others : member.tally.own) += ran;
    }
    Patience patience(crowded_);
    while (stage.done.load(std::memory_order_acquire) < job.phases[p].tiles)
      patience.wait();
  }
}

// Claims tiles until none is left; how many it claimed.
size_t ThreadPool::work_queue(Job& job, const Phase& phase, Queue& queue, size_t shares, int worker) {
  size_t claimed = 0, first = queue.next.load(std::memory_order_relaxed);
  while (first < queue.last) {
    // Neighbouring tiles are neighbouring memory: runs that shrink towards the end keep the streams long and the
    // finish even.
    const size_t run = std::max<size_t>(1, (queue.last - first) / shares);
    if (!queue.next.compare_exchange_weak(first, first + run, std::memory_order_relaxed))
      continue;
    for (size_t tile = first; tile < first + run; ++tile) {
      if (job.failed.load(std::memory_order_relaxed) || cancelled_.load(std::memory_order_relaxed))
        break;
      try {
        phase.work(tile, worker);
      } catch (...) {
        std::lock_guard lock(job.error_mutex);
        if (!job.error)
          job.error = std::current_exception();
        job.failed.store(true, std::memory_order_relaxed);
      }
    }
    claimed += run;
    first = queue.next.load(std::memory_order_relaxed);
  }
  return claimed;
}

ThreadPool::Call::Call(ThreadPool& pool) : lock_(pool.call_mutex_), pool_(pool) {
  if (pool.closed_)
    throw std::runtime_error("the thread pool is closed");
  pool.cancelled_.store(false, std::memory_order_relaxed);
}

void ThreadPool::Call::run(std::vector<Phase> phases) {
  size_t alone_first = 0;
  while (alone_first < phases.size() && phases[alone_first].tiles <= 1 && phases[alone_first].node_first.size() <= 1)
    ++alone_first;
  if (alone_first && !pool_.workers_.empty()) {
    for (size_t p = 0; p < alone_first; ++p) {
      if (pool_.cancelled_.load(std::memory_order_relaxed))
        throw Interrupted();
      if (phases[p].tiles)
        phases[p].work(0, 0);
    }
    phases.erase(phases.begin(), phases.begin() + static_cast<std::ptrdiff_t>(alone_first));
  }
  Job job(std::move(phases));
  const bool alone = pool_.workers_.empty() || job.phases.empty();
  if (!alone) {
    pool_.job_.store(&job, std::memory_order_release);
    const uint64_t generation = (pool_.state_.load(std::memory_order_relaxed) >> 32) + 1;
    pool_.state_.store(((generation & 0xffffffffu) << 32) | kOpen, std::memory_order_seq_cst);
    if (pool_.parked_.load(std::memory_order_seq_cst) > 0) {
      {
        std::lock_guard lock(pool_.park_mutex_);
      }
      pool_.park_.notify_all();
    }
  }
  pool_.work(job, 0);
  if (!alone) {
    pool_.state_.fetch_and(~kOpen, std::memory_order_acq_rel);
    Patience patience(pool_.crowded_);
    while (pool_.state_.load(std::memory_order_acquire) & kInside)
      patience.wait();
  }
  if (job.error)
    std::rethrow_exception(job.error);
  if (pool_.cancelled_.load(std::memory_order_relaxed))
    throw Interrupted();
}

std::byte* ThreadPool::Call::scratch(size_t nbytes) {
  if (pool_.scratch_.nbytes() < nbytes) {
    pool_.scratch_ = Arena();
    pool_.scratch_ = Arena(nbytes);
  }
  return pool_.scratch_.data();
}

} // namespace greenroom
