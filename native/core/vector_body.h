// The vector kernels, once for every instruction set: each file includes its own `Lanes` and then this inside its own
// unnamed namespace, so that no linker ever sees two copies of one name.

// g * sigmoid(x). Beyond the bound the sigmoid is 0 or 1 in f32, and the exponential's range ends.
static inline Lanes times_sigmoid(Lanes g, Lanes x) {
  constexpr float kBound = 87.0f;
  const Lanes power = exponential(at_most(kBound, at_least(-kBound, subtract(broadcast(0.0f), x))));
  return divide(g, add(broadcast(1.0f), power));
}

// gelu(x) = x/2 (1 + tanh z) = x sigmoid(2 z), z = sqrt(2 / pi) (x + 0.044715 x^3)
static inline Lanes gelu_tanh(Lanes x) {
  const Lanes cube = multiply(multiply(x, x), x);
  const Lanes inner = multiply_add(broadcast(0.044715f), cube, x);
  return times_sigmoid(x, multiply(broadcast(1.5957691216057308f), inner));
}

template <GateKind kKind> void gate(const float* gates, const float* ups, size_t n, float limit, float* h) {
  for (size_t i = 0; i < n; i += 16) {
    const Lanes g = at_most(limit, load(gates + i)), u = at_least(-limit, at_most(limit, load(ups + i)));
    if (kKind == kSilu)
      store(h + i, multiply(times_sigmoid(g, g), u));
    else if (kKind == kGeluTanh)
      store(h + i, multiply(gelu_tanh(g), u));
    else
      store(h + i, multiply(times_sigmoid(g, multiply(broadcast(1.702f), g)), add(u, broadcast(1.0f))));
  }
}

static inline void add_weighted(const float* v, size_t columns, size_t n, const float* weight, const uint32_t* token,
                                float* sums, size_t stride) {
  for (size_t i = 0; i < n; ++i) {
    const Lanes w = broadcast(weight[i]);
    float* sum = sums + token[i] * stride;
    for (size_t c = 0; c < columns; c += 16)
      store(sum + c, multiply_add(w, load(v + i * columns + c), load(sum + c)));
  }
}

static inline void rms_norm(float* x, size_t n, const float* weight, float eps) {
  Lanes sums[4] = {broadcast(0.0f), broadcast(0.0f), broadcast(0.0f), broadcast(0.0f)};
  float squares = 0.0f;
  size_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (size_t k = 0; k < 4; ++k) {
      const Lanes v = load(x + i + 16 * k);
      sums[k] = multiply_add(v, v, sums[k]);
    }
  for (; i + 16 <= n; i += 16)
    sums[0] = multiply_add(load(x + i), load(x + i), sums[0]);
  for (; i < n; ++i)
    squares += x[i] * x[i];
  squares += sum_of(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(n) + eps);
  for (i = 0; i + 16 <= n; i += 16) {
    const Lanes y = multiply(load(x + i), broadcast(factor));
    store(x + i, weight ? multiply(y, load(weight + i)) : y);
  }
  for (; i < n; ++i)
    x[i] *= weight ? factor * weight[i] : factor;
}

static inline void rotate(float* x, size_t heads, size_t head_dim, const float* turns, size_t rotated) {
  for (size_t head = 0; head < heads; ++head, x += head_dim) {
    size_t i = 0;
    for (; i + 16 <= rotated; i += 16)
      store(x + i, rotate_pairs(load(x + i), load(turns + i)));
    for (; i < rotated; i += 2) {
      const float a = x[i], b = x[i + 1], cosine = turns[i], sine = turns[i + 1];
      x[i] = a * cosine - b * sine;
      x[i + 1] = a * sine + b * cosine;
    }
  }
}
