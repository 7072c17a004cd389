// Scores and sums of values as float32 makes them of every type, once for every instruction set: each file brings its
// own `Lanes`, sixteen f32, and includes this inside its own unnamed namespace, so that no linker ever sees two copies
// of one name; attention_softmax.h comes behind it.

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
// Of these weights and values are multiplied at once.
constexpr size_t kKeysAtOnce = 1;

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

// Writes the weights of 64 keys as they are multiplied; returns their sum in parts.
static inline Lanes keep_weights(float* weights, const Lanes* w) {
  GREENROOM_UNROLL
  for (size_t v = 0; v < 4; ++v)
    store(weights + 16 * v, w[v]);
  return add(add(w[0], w[1]), add(w[2], w[3]));
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
