// The yardstick for decode: how fast memory can be read here.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "thread_pool.h"

namespace greenroom {

// Bytes per second of a plain read loop over a fresh anonymous buffer, one figure per repeat.
// Throws std::invalid_argument for less than 1 MB or no repeats.
std::vector<double> read_bandwidth(ThreadPool& pool, long long nbytes, long long repeats);

// Seconds a cache line takes from one thread of the pool to another, one way: tells whether two threads share a
// last-level cache. Nothing with one thread, or when no second thread came in time.
std::optional<double> handover_seconds(ThreadPool& pool);

} // namespace greenroom
