// Arithmetic on f32 vectors between the products: the contract between its ISA-specific files and everything else;
// plain declarations only, as in kernels.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace greenroom {

// What an MLP makes of its gate and up projections.
enum GateKind : uint8_t {
  kSilu,     // gate * sigmoid(gate) * up
  kGeluTanh, // gelu(gate) * up, by the tanh formula (Hendrycks and Gimpel 2016)
  kOai,      // gate * sigmoid(1.702 gate) * (up + 1), gpt-oss's
  kGateKinds
};

struct VectorKernels {
  const char* name;
  // h = the gate's formula over n values, a multiple of 16. Before that gate is cut above at limit, and up on both
  // sides; an infinite limit cuts nothing.
  void (*gate[kGateKinds])(const float* gate, const float* up, size_t n, float limit, float* h);
  // sums[token[i] * stride + c] += weight[i] * v[i * columns + c] for i < n, c < columns, a multiple of 16.
  void (*add_weighted)(const float* v, size_t columns, size_t n, const float* weight, const uint32_t* token,
                       float* sums, size_t stride);
  // x *= weight / sqrt(mean(x^2) + eps), n values; no weight stands for ones.
  void (*rms_norm)(float* x, size_t n, const float* weight, float eps);
  // Each of the heads' pairs (a, b) among the first `rotated` values becomes (a c - b s, a s + b c); turns: the c and s
  // of each pair.
  void (*rotate)(float* x, size_t heads, size_t head_dim, const float* turns, size_t rotated);
};

extern const VectorKernels kPortableVectors;
#ifdef GREENROOM_X86
extern const VectorKernels kAvx2Vectors;
extern const VectorKernels kAvx512Vectors; // F, BW, VL, DQ
#endif

} // namespace greenroom
