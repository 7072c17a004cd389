#include "thread_pool.h"

#include <algorithm>
#include <chrono>
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
constexpr size_t kMostPhases = 4; // of a job
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

void prefetch(const uint8_t* p) {
#if defined(GREENROOM_X86) && defined(_MSC_VER)
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
#elif defined(GREENROOM_X86)
  // GCC takes a function of __builtin_prefetch alone for one without effect, and drops calls of it.
  __asm__ volatile("prefetcht0 %0" : : "m"(*p));
#elif defined(__aarch64__) && !defined(_MSC_VER)
  __asm__ volatile("prfm pldl1keep, %0" : : "Q"(*p));
#else
  (void)p;
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

// How much has been taken of a thread's share of a phase, or of a memory node's that has no thread: the phase's turn in
// the high half, tiles in the low one. Nobody has to set it to zero beforehand: in an older turn nothing is taken.
struct alignas(64) ThreadPool::Queue {
  std::atomic<uint64_t> taken{0};
};

struct alignas(64) ThreadPool::Member {
  int node = 0;
  size_t place = 0, peers = 1; // among the threads of the same node
  Tally tally;
};

struct alignas(64) ThreadPool::Stage {
  std::atomic<size_t> done{0}; // tiles
  // Written by nobody while the job is open.
  alignas(64) const Phase* phase = nullptr; // valid until the last tile is done
  size_t tiles = 0, nodes = 1, most_at_once = SIZE_MAX;
  uint32_t turn = 0;
  Stream stream;
  size_t node_first[kMostNodes + 1] = {};
  std::unique_ptr<Queue[]> queues; // one per thread, then one per node
};

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
    if (node < 0 || node >= static_cast<int>(kMostNodes))
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
    for (int other = 0; other < threads; ++other) {
      const bool peer = node_of(other) == members_[worker].node;
      members_[worker].place += peer && other < worker;
      members_[worker].peers += peer;
    }
  }
  stages_ = std::make_unique<Stage[]>(kMostPhases);
  for (size_t p = 0; p < kMostPhases; ++p)
    stages_[p].queues = std::make_unique<Queue[]>(static_cast<size_t>(threads) + kMostNodes);
  turn_ = 0;
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
  kept_.clear();
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
    work(worker);
    state_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::fetch(const Stream& stream, int worker) const {
  if (!stream.base)
    return;
  const size_t count = static_cast<size_t>(threads()), share = static_cast<size_t>(worker);
  const size_t last = std::min(stream.there, stream.tiles * (share + 1) / count),
               each = std::min(stream.each, stream.tile_nbytes);
  size_t left = stream.most;
  for (size_t tile = stream.tiles * share / count; tile < last && left; ++tile) {
    const size_t nbytes = std::min(each, left);
    for (size_t at = 0; at < nbytes; at += 64)
      prefetch(stream.base + tile * stream.tile_nbytes + at);
    left -= nbytes;
  }
}

void ThreadPool::work(int worker) {
  for (size_t p = 0; p < stage_count_; ++p) {
    Stage& stage = stages_[p];
    const size_t ran = work_stage(stage, worker);
    if (ran)
      stage.done.fetch_add(ran, std::memory_order_acq_rel);
    if (p + 1 < stage_count_) {
      fetch(stages_[p + 1].stream, worker);
    } else {
      fetch(ahead_.first, worker);
      fetch(ahead_.second, worker);
    }
    Patience patience(crowded_);
    while (stage.done.load(std::memory_order_acquire) < stage.tiles)
      patience.wait();
  }
}

// First the own share, then what is left of others', those of the own node before the next nodes'; how many tiles.
size_t ThreadPool::work_stage(const Stage& stage, int worker) {
  Member& member = members_[worker];
  const size_t threads = static_cast<size_t>(this->threads());
  size_t all = 0;
  for (size_t turn = 0; turn < stage.nodes; ++turn) {
    const size_t node = (static_cast<size_t>(member.node) + turn) % stage.nodes;
    size_t here = 0;
    for (size_t i = 0; i < threads; ++i) {
      const size_t queue = (static_cast<size_t>(worker) + i) % threads;
      if (stage.nodes == 1 || static_cast<size_t>(members_[queue].node) == node)
        here += work_queue(stage, queue, worker);
    }
    if (stage.nodes > 1)
      here += work_queue(stage, threads + node, worker);
    // Not when nothing was left: then the call may be over, and somebody reading.
    if (here && stage.nodes > 1)
      (turn ? member.tally.others : member.tally.own) += here;
    all += here;
  }
  return all;
}

// The tiles of a queue: an even share for each thread of a node; all of a node's where it has no thread.
std::pair<size_t, size_t> ThreadPool::range(const Stage& stage, size_t queue) const {
  const size_t threads = static_cast<size_t>(this->threads());
  if (stage.nodes == 1)
    return {stage.tiles * queue / threads, stage.tiles * (queue + 1) / threads};
  if (queue < threads) {
    const Member& member = members_[queue];
    const size_t node = static_cast<size_t>(member.node);
    if (node >= stage.nodes)
      return {0, 0};
    const size_t first = stage.node_first[node], tiles = stage.node_first[node + 1] - first;
    return {first + tiles * member.place / member.peers, first + tiles * (member.place + 1) / member.peers};
  }
  const size_t node = queue - threads;
  for (size_t worker = 0; worker < threads; ++worker)
    if (static_cast<size_t>(members_[worker].node) == node)
      return {0, 0};
  return {stage.node_first[node], stage.node_first[node + 1]};
}

// Takes some of a queue's tiles, wherever it is. Neighbouring tiles are neighbouring memory: runs that shrink towards
// the end keep the streams long and the finish even. An empty range when none is left.
std::pair<size_t, size_t> ThreadPool::claim(const Stage& stage, Queue& queue, size_t number) const {
  const auto [begin, end] = range(stage, number);
  const uint64_t turn = uint64_t{stage.turn} << 32;
  uint64_t seen = queue.taken.load(std::memory_order_relaxed);
  while (true) {
    const size_t first = begin + (seen >> 32 == stage.turn ? seen & UINT32_MAX : 0);
    if (first >= end)
      return {end, end};
    const size_t run = workers_.empty() ? end - first : std::clamp<size_t>((end - first) / 4, 1, stage.most_at_once);
    if (queue.taken.compare_exchange_weak(seen, turn | (first + run - begin), std::memory_order_relaxed))
      return {first, first + run};
  }
}

// Works until none of a queue's tiles is left; how many it took.
size_t ThreadPool::work_queue(const Stage& stage, size_t number, int worker) {
  size_t claimed = 0;
  while (true) {
    const auto [first, last] = claim(stage, stage.queues[number], number);
    if (first == last)
      return claimed;
    for (size_t tile = first; tile < last; ++tile) {
      if (failed_.load(std::memory_order_relaxed) || cancelled_.load(std::memory_order_relaxed))
        break;
      try {
        stage.phase->work(tile, worker);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (!error_)
          error_ = std::current_exception();
        failed_.store(true, std::memory_order_relaxed);
      }
    }
    claimed += last - first;
  }
}

// Workers of the last job may still be on their way out.
void ThreadPool::wait_until_left() {
  Patience patience(crowded_);
  while (state_.load(std::memory_order_acquire) & kInside)
    patience.wait();
}

void ThreadPool::open(std::span<const Phase> phases, const Ahead& ahead) {
  wait_until_left();
  stage_count_ = phases.size();
  ahead_ = ahead;
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  const size_t threads = static_cast<size_t>(this->threads());
  if (turn_ > UINT32_MAX - kMostPhases) {
    turn_ = 0;
    for (size_t p = 0; p < kMostPhases; ++p)
      for (size_t queue = 0; queue < threads + kMostNodes; ++queue)
        stages_[p].queues[queue].taken.store(0, std::memory_order_relaxed);
  }
  for (size_t p = 0; p < phases.size(); ++p) {
    if (phases[p].tiles > UINT32_MAX)
      throw std::length_error("a phase of more than 2^32 tiles");
    Stage& stage = stages_[p];
    const Phase& phase = phases[p];
    stage.phase = &phase;
    stage.done.store(0, std::memory_order_relaxed);
    stage.tiles = phase.tiles;
    stage.most_at_once = phase.most_at_once;
    stage.nodes = std::max<size_t>(1, phase.node_first.size());
    stage.turn = ++turn_;
    stage.stream = phase.stream;
    if (stage.nodes > 1) {
      std::copy(phase.node_first.begin(), phase.node_first.end(), stage.node_first);
      stage.node_first[stage.nodes] = phase.tiles;
    }
  }
}

void ThreadPool::run(std::span<const Phase> phases, const Ahead& ahead) {
  open(phases, ahead);
  if (!workers_.empty()) {
    const uint64_t generation = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store(((generation & 0xffffffffu) << 32) | kOpen, std::memory_order_seq_cst);
    if (parked_.load(std::memory_order_seq_cst) > 0) {
      {
        std::lock_guard lock(park_mutex_);
      }
      park_.notify_all();
    }
  }
  work(0);
  if (!workers_.empty())
    state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if (error_)
    std::rethrow_exception(std::exchange(error_, nullptr));
  if (cancelled_.load(std::memory_order_relaxed))
    throw Interrupted();
}

ThreadPool::Call::Call(ThreadPool& pool) : lock_(pool.call_mutex_), pool_(pool) {
  if (pool.closed_)
    throw std::runtime_error("the thread pool is closed");
  pool.cancelled_.store(false, std::memory_order_relaxed);
}

void ThreadPool::Call::run(std::initializer_list<Phase> phases, const Ahead& ahead) {
  std::span<const Phase> rest(phases.begin(), phases.size());
  while (!rest.empty() && rest.front().tiles <= 1 && rest.front().node_first.size() <= 1) {
    if (pool_.cancelled_.load(std::memory_order_relaxed))
      throw Interrupted();
    if (rest.front().tiles)
      rest.front().work(0, 0);
    rest = rest.subspan(1);
  }
  for (; !rest.empty(); rest = rest.subspan(std::min(rest.size(), kMostPhases)))
    pool_.run(rest.first(std::min(rest.size(), kMostPhases)), rest.size() <= kMostPhases ? ahead : Ahead());
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
