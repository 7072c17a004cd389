// The routed experts of one MoE layer: down(act(gate x, up x)), weighted and summed in the order of their numbers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arena.h"
#include "file_rows.h"
#include "packing.h"
#include "vector_kernels.h"

namespace greenroom {

enum class Part { gate, up, down };

// One call's tokens and what the router chose for them.
struct RoutedTokens {
  const float* x; // [tokens, hidden]
  size_t tokens;
  const int32_t* ids;   // [tokens, top_k]; below 0: computed elsewhere
  const float* weights; // [tokens, top_k]
  size_t top_k;
  float* y;        // [tokens, hidden]
  bool accumulate; // add to y instead of overwriting it
};

// What lies between the projections.
struct ExpertActivation {
  std::string name = "silu"; // "silu", "gelu_tanh" or "oai", see vector_kernels.h
  float limit = 0.0f;        // see there; 0 for none
  bool bias = false;         // all three projections have one, zero until it is loaded
};

class Experts {
public:
  // Throws std::invalid_argument for a shape or name that makes no sense, std::bad_alloc.
  // nodes: the system's numbers of the memory nodes to spread over; each gets a slice of the rows of every expert's
  // three matrices. Results do not depend on it. Empty: wherever the system likes.
  Experts(long long experts, long long hidden, long long intermediate, const std::string& gate_format,
          const std::string& up_format, const std::string& down_format, const std::optional<std::string>& recode,
          const std::optional<std::string>& isa, const std::vector<int>& nodes = {},
          const ExpertActivation& activation = {});

  size_t experts() const { return experts_; }
  size_t hidden() const { return hidden_; }
  size_t nbytes() const { return nbytes_; }
  size_t nodes() const { return slices_.size(); }
  static size_t padded_rows(size_t rows) { return (rows + kGroup - 1) / kGroup * kGroup; }
  // Some experts' columns are stored in an order of their own.
  bool reordered() const { return !gate_.columns.empty() || !up_.columns.empty(); }
  // The system agreed to keep every slice on its node.
  bool bound() const { return bound_; }
  // Touches every page of a slice, so that it lies where the calling thread runs: for systems that refuse to bind.
  // Only before anything is loaded.
  void touch(size_t node);
  const Layout& layout(Part part) const;
  // What an expert takes on one node, for whoever copies it elsewhere: pairs of a gate and an up strip, then down
  // strips.
  struct Piece {
    const uint8_t* data;
    size_t nbytes, pairs, downs;
  };
  // Throws std::invalid_argument for an expert that does not exist.
  Piece piece(long long expert, size_t node) const;
  // [experts] of the part.
  const std::vector<float>& factors(Part part) const { return projection(part).factors; }
  // [experts, padded rows of the part], or empty.
  const std::vector<float>& biases(Part part) const { return projection(part).bias; }
  const KernelTable& kernels(Part part) const;
  bool locked() const { return arena_.locked(); }
  bool lock() { return arena_.lock(); }

  void load(ThreadPool& pool, long long expert, Part part, const uint8_t* data, size_t nbytes);
  // What the loaded weights are multiplied by; 1 at first. Throws std::invalid_argument when it is not finite.
  void set_factor(long long expert, Part part, float factor);
  // Gate's or up's columns are stored in another order: column c is that of x's element order[c]. order [hidden] is a
  // permutation, else std::invalid_argument is thrown. (Down's columns stand in the order of gate's and up's rows.)
  void set_columns(long long expert, Part part, const int32_t* order, size_t columns);
  // bias f32 [rows] of the part. Throws std::invalid_argument for another size, or when the layer has none.
  void load_bias(long long expert, Part part, const float* bias, size_t rows);
  // The same from a file, starting at offset.
  void load_file(ThreadPool& pool, long long expert, Part part, const InputFile& file, uint64_t offset, size_t nbytes);
  // Throws std::invalid_argument for an id >= experts before anything is written.
  void forward(ThreadPool& pool, const RoutedTokens& routed) const;
  void forward(ThreadPool::Call& call, const RoutedTokens& routed, const Ahead& ahead = {}) const;
  // What a call with few tokens reads first, if that is known: of a single expert.
  Stream stream() const;
  // out f32 [rows, columns] of the part.
  void dequantise(long long expert, Part part, float* out) const;
  // [experts] how many tokens have gone to each since the layer was made. Any thread may ask, also during a call.
  std::vector<uint64_t> counts() const;

private:
  // A gate+up tile makes one activation group of the intermediate, so requantising it stays inside the tile.
  static constexpr size_t kTileStrips = kGroup / kStripRows;
  struct Projection {
    Layout layout;
    const KernelTable* kernels;
    ActivationForm form;
    size_t strip_stride;
    std::vector<float> factors;   // [experts]
    std::vector<int32_t> columns; // [experts, columns], or empty while all are in order
    std::vector<float> bias;      // [experts, whole groups of rows], or empty

    // x in the order of an expert's columns.
    void turn(size_t expert, const float* x, float* out) const {
      for (size_t c = 0; c < layout.columns; ++c)
        out[c] = x[columns.empty() ? c : static_cast<size_t>(columns[expert * layout.columns + c])];
    }
    const float* bias_of(size_t expert, size_t row) const { return &bias[expert * padded_rows(layout.rows) + row]; }
    StripKernel kernel() const { return kernels->strip[layout.kind]; }
  };
  // What one memory node holds: strips [first, first + strips) of every expert's gate and up, and of its down, in
  // reading order: gate strip, up strip, gate strip, ..., then down.
  struct Slice {
    size_t first_strip, strips, first_down, downs;
    size_t offset, expert_nbytes; // in the arena
  };
  struct Active;
  struct Pass;

  void slice(size_t nodes);
  // Only strips of the slice may be asked for.
  PackedMatrix matrix(size_t expert, Part part, const Slice& slice) const;
  // [first, last) of the part's rows.
  std::pair<size_t, size_t> rows(Part part, const Slice& slice) const;
  const Projection& projection(Part part) const;
  Projection& projection(Part part);
  size_t checked(long long expert) const;
  void check_size(Part part, size_t nbytes) const;
  void forward_chunk(ThreadPool::Call& call, const RoutedTokens& routed, const Ahead& ahead) const;
  // behind: what is read afterwards, null for the next tile.
  void gate_up_tile(const Pass& pass, const Slice& slice, size_t tile, const uint8_t* behind) const;
  void down_tile(const Pass& pass, const Slice& slice, size_t first, size_t strips, float* sums,
                 const uint8_t* behind) const;
  // follower: the block after this one.
  void down_block(const Pass& pass, const PackedMatrix& down, const Active& block, const Active& follower, size_t first,
                  size_t strips, const uint8_t* next, float* sums) const;

  size_t experts_, hidden_, intermediate_, nbytes_ = 0;
  std::vector<Slice> slices_;
  bool bound_ = false;
  Projection gate_, up_, down_;
  const VectorKernels* vectors_;
  GateKind activation_;
  float limit_;
  std::mutex columns_mutex_; // experts are loaded by several threads
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  Arena arena_;
};

} // namespace greenroom
