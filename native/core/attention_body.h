// Attention over one split of the keys (online softmax, Milakov and Gimelshein 2018; in blocks, Dao et al. 2022), once
// for every instruction set: each file brings its own `Lanes`, sixteen f32, and includes this inside its own unnamed
// namespace, so that no linker ever sees two copies of one name.
//
// What is computed for a row depends on nothing but its query and its keys: the rows beside it only share loads.

// The file says as well how many rows share the loads of a block: kMostRows when there are no more, else kManyRows; and
// how many vectors of keys or values these take at once, vectors_at_once(rows): a divisor of 4.

constexpr size_t element_nbytes(KvType type) {
  return type == kKvF32 ? 4 : type == kKvQ8 ? 1 : 2;
}

// Of kKeyBlock keys or values, with their scales if they have any.
template <KvType kType> static inline size_t block_nbytes(size_t width) {
  return kKeyBlock * (width * element_nbytes(kType) + (kType == kKvQ8 ? sizeof(float) : 0));
}

constexpr float kNegligible = -87.0f; // e^x is 1e-38 there, and beyond it the exponential's own range ends

// out [kRows, 64]: q . k for the keys of one block. Fetches what lies `ahead`.
// (An int8 key counts as it is until the end, where its scale comes to the sum.)
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
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = 16 * (part * kVectors + static_cast<size_t>(v));
      Lanes scale;
      if (kType == kKvQ8)
        scale = load(reinterpret_cast<const float*>(keys + kKeyBlock * head_dim) + at);
      GREENROOM_UNROLL
      for (int r = 0; r < kRows; ++r)
        store(out + kKeyBlock * static_cast<size_t>(r) + at, kType == kKvQ8 ? multiply(acc[r][v], scale) : acc[r][v]);
    }
  }
}

static inline Lanes weights_of(Lanes scores, float largest) {
  return exponential(at_least(kNegligible, subtract(scores, broadcast(largest))));
}

static inline float weight_of(float score, float largest) {
  return first_lane(weights_of(broadcast(score), largest));
}

// Weights join a row's sum; returns what the sums of values so far are to be multiplied by.
static inline float settle(float* tail, float largest, Lanes weights) {
  const float before = tail[kStateLargest];
  // e^0 is exactly 1, so the usual case needs no exponential.
  const float change = largest == before ? 1.0f : weight_of(before, largest);
  tail[kStateLargest] = largest;
  tail[kStateSum] = tail[kStateSum] * change + sum_of(weights);
  return change;
}

// Scores [64] to weights, 0 outside begin .. end - 1; returns what the sums so far are to be multiplied by.
static inline float weigh(float* scores, size_t begin, size_t end, float* tail) {
  const bool all = begin == 0 && end == kKeyBlock;
  const auto kept = [&](Lanes x, size_t v, float others) {
    const size_t from = begin > 16 * v ? begin - 16 * v : 0, to = end > 16 * v ? end - 16 * v : 0;
    return keep_between(x, from < 16 ? from : 16, to < 16 ? to : 16, others);
  };
  Lanes s[4];
  GREENROOM_UNROLL
  for (size_t v = 0; v < 4; ++v) {
    s[v] = load(scores + 16 * v);
    if (!all)
      s[v] = kept(s[v], v, -INFINITY);
  }
  const float here = largest_of(larger(larger(s[0], s[1]), larger(s[2], s[3]))), before = tail[kStateLargest];
  const float largest = here > before ? here : before;
  GREENROOM_UNROLL
  for (size_t v = 0; v < 4; ++v) {
    s[v] = weights_of(s[v], largest);
    if (!all)
      s[v] = kept(s[v], v, 0.0f);
    store(scores + 16 * v, s[v]);
  }
  return settle(tail, largest, add(add(s[0], s[1]), add(s[2], s[3])));
}

// The same bits for rows that all see the whole block, step by step so that no row waits for another's sums across
// lanes: 2 % of the time of prompts. tails are stride apart.
template <int kRows> static inline void weigh_whole(float* scores, float* tails, size_t stride, float* change) {
  float largest[kRows];
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float* s = scores + kKeyBlock * static_cast<size_t>(r);
    const float here = largest_of(larger(larger(load(s), load(s + 16)), larger(load(s + 32), load(s + 48))));
    const float before = tails[static_cast<size_t>(r) * stride + kStateLargest];
    largest[r] = here > before ? here : before;
  }
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* s = scores + kKeyBlock * static_cast<size_t>(r);
    GREENROOM_UNROLL
    for (size_t v = 0; v < 4; ++v)
      store(s + 16 * v, weights_of(load(s + 16 * v), largest[r]));
  }
  for (int r = 0; r < kRows; ++r) {
    const float* s = scores + kKeyBlock * static_cast<size_t>(r);
    const Lanes sums = add(add(load(s), load(s + 16)), add(load(s + 32), load(s + 48)));
    change[r] = settle(tails + static_cast<size_t>(r) * stride, largest[r], sums);
  }
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
      acc[r][v] = multiply(broadcast(change[r]), load(states + static_cast<size_t>(r) * stride + 16 * v));
  }
  const uint8_t* p = values + first * row_nbytes;
  for (size_t key = first; key < last; ++key, p += row_nbytes) {
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

// Rows row .. row + kRows - 1 over the block of keys that starts at `block`; each of them sees some of these.
template <KvType kType, int kRows>
void rows_over_block(const AttentionTask* task, size_t row, size_t block, bool fetch) {
  const size_t key_nbytes = block_nbytes<kType>(task->head_dim), value_nbytes = block_nbytes<kType>(task->width);
  const size_t slot = block / kKeyBlock % task->blocks;
  const uint8_t* values = task->values + slot * value_nbytes;
  const size_t stride = task->width + kStateExtra;
  float* states = task->states + row * stride;
  alignas(64) float weights[kRows * kKeyBlock];
  float change[kRows];
  size_t begin[kRows], end[kRows];
  score<kType, kRows>(task->q + row, task->head_dim, task->keys + slot * key_nbytes, fetch ? key_nbytes : 0, weights);
  const bool whole =
      task->first[(row + kRows - 1) / task->group] <= block && task->visible + row / task->group >= block + kKeyBlock;
  if (whole)
    weigh_whole<kRows>(weights, states + task->width, stride, change);
  for (size_t r = 0; r < kRows; ++r) {
    const size_t token = (row + r) / task->group, first = task->first[token];
    begin[r] = first > block ? first - block : 0;
    end[r] = task->visible + token - block;
    end[r] = end[r] < kKeyBlock ? end[r] : kKeyBlock;
    float* of_row = weights + r * kKeyBlock;
    if (!whole)
      change[r] = weigh(of_row, begin[r], end[r], states + r * stride + task->width);
    if (kType == kKvQ8)
      for (size_t i = 0; i < kKeyBlock; i += 16) {
        const float* scales = reinterpret_cast<const float*>(values + kKeyBlock * task->width);
        store(of_row + i, multiply(load(of_row + i), load(scales + i)));
      }
  }
  // Only keys that all rows see are added for all: with weight 0 the others would spread their NaNs.
  const size_t shared_begin = begin[kRows - 1], shared_end = end[0] > shared_begin ? end[0] : shared_begin;
  const auto alone = [&](size_t r, size_t from, size_t to) {
    if (from >= to)
      return;
    add_rows<kType, 1>(task, weights + r * kKeyBlock, change + r, from, to, values, 0, states + r * stride);
    change[r] = 1.0f;
  };
  for (size_t r = 0; r < kRows; ++r)
    alone(r, begin[r], end[r] < shared_begin ? end[r] : shared_begin);
  if (shared_begin < shared_end) {
    add_rows<kType, kRows>(task, weights, change, shared_begin, shared_end, values, fetch ? value_nbytes : 0, states);
    for (float& c : change)
      c = 1.0f;
  }
  for (size_t r = 0; r < kRows; ++r)
    alone(r, begin[r] > shared_end ? begin[r] : shared_end, end[r]);
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

// One behind the last row that sees any key of the block.
static inline size_t last_row_seeing(const AttentionTask* task, size_t block) {
  size_t tokens = task->rows / task->group;
  while (tokens > 0 && task->first[tokens - 1] >= block + kKeyBlock)
    --tokens;
  return tokens * task->group;
}

template <KvType kType> void attend(const AttentionTask* task) {
  const size_t stride = task->width + kStateExtra;
  for (size_t row = 0; row < task->rows; ++row) {
    float* state = task->states + row * stride;
    for (size_t i = 0; i < stride; ++i)
      state[i] = 0.0f;
    state[task->width + kStateLargest] = -INFINITY;
  }
  const size_t seen = task->first[0] / kKeyBlock * kKeyBlock;
  for (size_t block = task->first_key > seen ? task->first_key : seen; block < task->last_key; block += kKeyBlock) {
    const size_t begin = first_row_seeing(task, block), end = last_row_seeing(task, block);
    for (size_t row = begin; row < end;) {
      // Even shares: seven rows are better cut into four and three than into six and one.
      const size_t left = end - row, shares = left <= kMostRows ? 1 : (left + kManyRows - 1) / kManyRows;
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
  for (size_t i = 0; i < width; i += 16)
    store(state + i, multiply_add(broadcast(a), load(state + i), multiply(broadcast(b), load(next + i))));
  state[width + kStateLargest] = largest;
  state[width + kStateSum] = state[width + kStateSum] * a + next[width + kStateSum] * b;
}

template <KvType kType> void narrow(const float* x, size_t n, void* out) {
  for (size_t i = 0; i < n; i += 16)
    narrow<kType>(load(x + i), static_cast<uint8_t*>(out) + i * element_nbytes(kType));
}

// To int8 with one scale, which follows the codes; a NaN or an infinity makes the scale NaN.
template <> void narrow<kKvQ8>(const float* x, size_t n, void* out) {
  Lanes largest = broadcast(0.0f), spoilt = broadcast(0.0f);
  for (size_t i = 0; i < n; i += 16) {
    const Lanes v = load(x + i);
    largest = larger(largest, larger(v, subtract(broadcast(0.0f), v)));
    spoilt = add(spoilt, multiply(v, broadcast(0.0f)));
  }
  const float magnitude = largest_of(largest), nothing = sum_of(spoilt);
  const bool usable = nothing == 0.0f && magnitude >= 1e-30f;
  const float scale = usable ? magnitude / 127.0f : nothing, inverse = usable ? 127.0f / magnitude : 0.0f;
  int8_t* codes = static_cast<int8_t*>(out);
  for (size_t i = 0; i < n; i += 16) {
    // Beyond 2^23 the last bit of the mantissa counts ones: the sum is rounded to nearest even, its low byte the code.
    float sums[16];
    store(sums, multiply_add(load(x + i), broadcast(inverse), broadcast(12582912.0f)));
    for (size_t k = 0; k < 16; ++k) {
      int32_t bits;
      memcpy(&bits, sums + k, sizeof bits);
      codes[i + k] = static_cast<int8_t>(usable ? bits : 0);
    }
  }
  memcpy(codes + n, &scale, sizeof scale);
}
