// Attention over one split of the keys (online softmax, Milakov and Gimelshein 2018; in blocks, Dao et al. 2022), once
// for every instruction set: each file brings its own `Lanes`, sixteen f32, and the products of attention_products.h or
// its own, and includes this inside its own unnamed namespace, so that no linker ever sees two copies of one name.
//
// What is computed for a row depends on nothing but its query and its keys: the rows beside it only share loads.

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
  }
  return settle(tail, largest, keep_weights(scores, s));
}

// The same bits for rows that all see the whole block, step by step so that no row waits for another's sums across
// lanes: 2 % of the time of prompts. tails are stride apart.
template <int kRows> static inline void weigh_whole(float* scores, float* tails, size_t stride, float* change) {
  float largest[kRows];
  Lanes sums[kRows];
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
    Lanes w[4];
    GREENROOM_UNROLL
    for (size_t v = 0; v < 4; ++v)
      w[v] = weights_of(load(s + 16 * v), largest[r]);
    sums[r] = keep_weights(s, w);
  }
  GREENROOM_UNROLL
  for (int r = 0; r < kRows; ++r)
    change[r] = settle(tails + static_cast<size_t>(r) * stride, largest[r], sums[r]);
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
  // Only keys that all rows see are added for all: with weight 0 the others would spread their NaNs. Keys that are
  // multiplied together stay together.
  const size_t shared_begin = (begin[kRows - 1] + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
  const size_t until = end[0] / kKeysAtOnce * kKeysAtOnce, shared_end = until > shared_begin ? until : shared_begin;
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
