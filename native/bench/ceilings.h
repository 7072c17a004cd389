// This machine's ceilings: read bandwidth and arithmetic peaks, timed like everything they are compared with.
#pragma once

#include <functional>
#include <string>

#include "arena.h"
#include "kernels.h"
#include "thread_pool.h"

namespace greenroom_bench {

// One thread is timed by its own CPU clock, which other programs do not disturb; several by the wall.
double seconds(const greenroom::ThreadPool& pool, const std::function<void()>& work);

// Bytes per second of a plain read loop over the buffer, whose size is a multiple of 1 MiB.
double read_rate(greenroom::ThreadPool& pool, const greenroom::Arena& buffer);

struct Peak {
  const char* name;
  int (*chain)(long turns);
  double operations; // per turn
};

// What the kernel of a kind on a tier leans on.
Peak peak_of(greenroom::Kind kind, const std::string& tier);

// Operations per second.
double peak_rate(greenroom::ThreadPool& pool, const Peak& peak);

} // namespace greenroom_bench
