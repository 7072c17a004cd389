// Attention over one split of the keys (online softmax, Milakov and Gimelshein 2018; in blocks, Dao et al. 2022), once
// for every instruction set: each file brings its own `Lanes`, sixteen f32, and includes this inside its own unnamed
// namespace, so that no linker ever sees two copies of one name.
//
// What is computed for a row depends on nothing but its query and its keys: the rows beside it only share loads.

// The file says as well how many rows share the loads of a block: kMostRows when there are no more, else kManyRows; and
// how many vectors of keys or values these take at once, vectors_at_once(rows): a divisor of 4.

constexpr size_t element_nbytes(KvType type) {
  return type == kKvF32 ? 4 : 2;
}

constexpr float kNegligible = -87.0f; // e^x is 1e-38 there, and beyond it the exponential's own range ends

// out [kRows, 64]: q . k for the keys of one block. Fetches what lies `ahead`.
template <KvType kType, int kRows>
void score(const float* const* q, size_t head_dim, const uint8_t* keys, size_t ahead, float* out) {
  constexpr int kVectors = vectors_at_once(kRows);
  constexpr size_t kPart = 16 * kVectors * element_nbytes(kType), kStep = kKeyBlock * element_nbytes(kType);
  for (size_t part = 0; part < kKeyBlock / (16 * kVectors); ++part) {
    Lanes acc[kRows][kVectors];
    GREENROOM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v)
        acc[r][v] = broadcast(0.0f);
    }
    const uint8_t* p = keys + part * kPart;
    for (size_t d = 0; d < head_dim; ++d, p += kStep) {
      GREENROOM_UNROLL
      for (size_t line = 0; line < (kPart + 63) / 64; ++line)
        prefetch(p + ahead + 64 * line);
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const Lanes k = load<kType>(p + 16 * element_nbytes(kType) * static_cast<size_t>(v));
        GREENROOM_UNROLL
        for (int r = 0; r < kRows; ++r)
          acc[r][v] = multiply_add(broadcast(q[r][d]), k, acc[r][v]);
      }
    }
    GREENROOM_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GREENROOM_UNROLL
      for (int v = 0; v < kVectors; ++v)
        store(out + kKeyBlock * static_cast<size_t>(r) + 16 * (part * kVectors + static_cast<size_t>(v)), acc[r][v]);
    }
  }
}

static inline Lanes weights_of(Lanes scores, float largest) {
  return exponential(at_least(kNegligible, subtract(scores, broadcast(largest))));
}

static inline float weight_of(float score, float largest) {
  return first_lane(weights_of(broadcast(score), largest));
}

// Scores [64] to weights, 0 beyond the first `seen`; returns what the sums so far are to be multiplied by.
static inline float weigh(float* scores, size_t seen, float* tail) {
  Lanes s[4];
  GREENROOM_UNROLL
  for (size_t v = 0; v < 4; ++v) {
    s[v] = load<kKvF32>(reinterpret_cast<const uint8_t*>(scores + 16 * v));
    if (seen < kKeyBlock)
      s[v] = keep_first(s[v], seen > 16 * v ? seen - 16 * v : 0, -INFINITY);
  }
  const float here = largest_of(larger(larger(s[0], s[1]), larger(s[2], s[3]))), before = tail[kStateLargest];
  const float largest = here > before ? here : before;
  GREENROOM_UNROLL
  for (size_t v = 0; v < 4; ++v) {
    s[v] = weights_of(s[v], largest);
    if (seen < kKeyBlock)
      s[v] = keep_first(s[v], seen > 16 * v ? seen - 16 * v : 0, 0.0f);
    store(scores + 16 * v, s[v]);
  }
  // e^0 is exactly 1, so the usual case needs no exponential.
  const float change = largest == before ? 1.0f : weight_of(before, largest);
  tail[kStateLargest] = largest;
  tail[kStateSum] = tail[kStateSum] * change + sum_of(add(add(s[0], s[1]), add(s[2], s[3])));
  return change;
}

// states [kRows], kVectors of each from `states` on: times change, plus weights . values of keys first .. last - 1.
template <KvType kType, int kRows, int kVectors>
void add_values(const float* weights, const float* change, size_t first, size_t last, const uint8_t* values,
                size_t row_nbytes, size_t ahead, float* states, size_t stride) {
  Lanes acc[kRows][kVectors];
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] =
          multiply(broadcast(change[r]),
                   load<kKvF32>(reinterpret_cast<const uint8_t*>(states + static_cast<size_t>(r) * stride + 16 * v)));
  }
  const uint8_t* p = values + first * row_nbytes;
  for (size_t key = first; key < last; ++key, p += row_nbytes) {
    GREENROOM_UNROLL
    for (size_t line = 0; line < (16 * kVectors * element_nbytes(kType) + 63) / 64; ++line)
      prefetch(p + ahead + 64 * line);
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const Lanes x = load<kType>(p + 16 * element_nbytes(kType) * static_cast<size_t>(v));
      GREENROOM_UNROLL
      for (int r = 0; r < kRows; ++r)
        acc[r][v] = multiply_add(broadcast(weights[kKeyBlock * static_cast<size_t>(r) + key]), x, acc[r][v]);
    }
  }
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GREENROOM_UNROLL
    for (int v = 0; v < kVectors; ++v)
      store(states + static_cast<size_t>(r) * stride + 16 * v, acc[r][v]);
  }
}

// The same for the whole width.
template <KvType kType, int kRows>
void add_rows(const AttentionTask* task, const float* weights, const float* change, size_t first, size_t last,
              const uint8_t* values, size_t ahead, float* states) {
  constexpr size_t kAtOnce = 16 * vectors_at_once(kRows);
  const size_t row_nbytes = task->width * element_nbytes(kType), stride = task->width + kStateExtra;
  size_t column = 0;
  for (; column + kAtOnce <= task->width; column += kAtOnce)
    add_values<kType, kRows, vectors_at_once(kRows)>(weights, change, first, last,
                                                     values + column * element_nbytes(kType), row_nbytes, ahead,
                                                     states + column, stride);
  for (; column < task->width; column += 16)
    add_values<kType, kRows, 1>(weights, change, first, last, values + column * element_nbytes(kType), row_nbytes,
                                ahead, states + column, stride);
}

// Rows row .. row + kRows - 1 over the block of keys that starts at `block`; all of them see its first key.
template <KvType kType, int kRows>
void rows_over_block(const AttentionTask* task, size_t row, size_t block, bool fetch) {
  const size_t key_nbytes = task->head_dim * element_nbytes(kType), value_nbytes = task->width * element_nbytes(kType);
  const uint8_t* values = task->values + block * value_nbytes;
  const size_t stride = task->width + kStateExtra;
  float* states = task->states + row * stride;
  alignas(64) float weights[kRows * kKeyBlock];
  float change[kRows];
  size_t seen[kRows];
  score<kType, kRows>(task->q + row, task->head_dim, task->keys + block * key_nbytes,
                      fetch ? kKeyBlock * key_nbytes : 0, weights);
  for (size_t r = 0; r < kRows; ++r) {
    seen[r] = task->visible + (row + r) / task->group - block;
    seen[r] = seen[r] < kKeyBlock ? seen[r] : kKeyBlock;
    change[r] = weigh(weights + r * kKeyBlock, seen[r], states + r * stride + task->width);
  }
  add_rows<kType, kRows>(task, weights, change, 0, seen[0], values, fetch ? kKeyBlock * value_nbytes : 0, states);
  // Keys that only later rows see: adding them with weight 0 to the others would spread their NaNs.
  const float same = 1.0f;
  for (size_t r = 1; r < kRows; ++r)
    if (seen[r] > seen[0])
      add_rows<kType, 1>(task, weights + r * kKeyBlock, &same, seen[0], seen[r], values, 0, states + r * stride);
}

template <KvType kType, int kRows>
void some_rows_over_block(const AttentionTask* task, size_t rows, size_t row, size_t block, bool fetch) {
  if constexpr (kRows > 1) {
    if (rows < kRows)
      return some_rows_over_block<kType, kRows - 1>(task, rows, row, block, fetch);
  }
  rows_over_block<kType, kRows>(task, row, block, fetch);
}

// The first row that sees this key.
static inline size_t first_row_seeing(const AttentionTask* task, size_t key) {
  return key < task->visible ? 0 : (key + 1 - task->visible) * task->group;
}

template <KvType kType> void attend(const AttentionTask* task) {
  const size_t stride = task->width + kStateExtra;
  for (size_t row = first_row_seeing(task, task->first_key); row < task->rows; ++row) {
    float* state = task->states + row * stride;
    for (size_t i = 0; i < stride; ++i)
      state[i] = 0.0f;
    state[task->width + kStateLargest] = -INFINITY;
  }
  for (size_t block = task->first_key; block < task->last_key; block += kKeyBlock) {
    const size_t begin = first_row_seeing(task, block);
    for (size_t row = begin; row < task->rows;) {
      // Even shares: seven rows are better cut into four and three than into six and one.
      const size_t left = task->rows - row, shares = left <= kMostRows ? 1 : (left + kManyRows - 1) / kManyRows;
      const size_t rows = (left + shares - 1) / shares;
      some_rows_over_block<kType, kMostRows>(task, rows, row, block,
                                             row == begin && block + kKeyBlock < task->last_key);
      row += rows;
    }
  }
}

void merge(float* state, const float* next, size_t width) {
  const float before = state[width + kStateLargest], after = next[width + kStateLargest];
  const float largest = after > before ? after : before;
  const float a = weight_of(before, largest), b = weight_of(after, largest);
  for (size_t i = 0; i < width; i += 16) {
    const Lanes x = multiply(broadcast(b), load<kKvF32>(reinterpret_cast<const uint8_t*>(next + i)));
    store(state + i, multiply_add(broadcast(a), load<kKvF32>(reinterpret_cast<const uint8_t*>(state + i)), x));
  }
  state[width + kStateLargest] = largest;
  state[width + kStateSum] = state[width + kStateSum] * a + next[width + kStateSum] * b;
}

template <KvType kType> void narrow(const float* x, size_t n, void* out) {
  for (size_t i = 0; i < n; i += 16)
    narrow<kType>(load<kKvF32>(reinterpret_cast<const uint8_t*>(x + i)),
                  static_cast<uint8_t*>(out) + i * element_nbytes(kType));
}
