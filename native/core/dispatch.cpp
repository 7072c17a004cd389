#include "dispatch.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>

#include "cpu.h"

namespace greenroom {
namespace {

// Every name a cap may use, worst first; names without kernels of their own yet still cap.
constexpr const char* kOrder[] = {"portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"};

int rank_of(const std::string& name, const char* where) {
  int rank = 0;
  std::string known;
  for (const char* tier : kOrder) {
    if (name == tier)
      return rank;
    known += (rank++ ? ", " : "") + std::string(tier);
  }
  throw std::invalid_argument("unknown instruction set \"" + name + "\" in " + where + "; known are " + known);
}

struct Tier {
  const KernelTable* table;
  bool integer, floating, bf16; // kinds it has its own kernels for; bf16 stands for e4m3 too
  std::vector<const char*> needs;
};

std::vector<Tier> built_tiers() {
  std::vector<Tier> all;
#ifdef GREENROOM_X86
  const std::vector<const char*> vnni = {"avx2",     "fma",      "f16c",     "avx512f",
                                         "avx512bw", "avx512vl", "avx512dq", "avx512vnni"};
  auto bf16 = vnni;
  bf16.push_back("avx512bf16");
#ifdef GREENROOM_AMX
  auto amx = bf16;
  amx.insert(amx.end(), {"amx_tile", "amx_int8", "amx_bf16"});
  all.push_back({&kAmxKernels, true, false, true, amx});
#endif
  all.push_back({&kAvx512Bf16Kernels, false, false, true, bf16});
  all.push_back({&kAvx512VnniKernels, true, true, true, vnni});
#ifdef GREENROOM_AVXVNNI
  all.push_back({&kAvxVnniKernels, true, false, false, {"avx2", "fma", "f16c", "avxvnni"}});
#endif
  all.push_back({&kAvx2Kernels, true, true, true, {"avx2", "fma", "f16c"}});
#endif
  all.push_back({&kPortableKernels, true, true, true, {}});
  return all;
}

// The rank of the best tier allowed.
int cap_of(const std::optional<std::string>& isa) {
  int cap = static_cast<int>(std::size(kOrder));
  if (isa)
    cap = rank_of(*isa, "isa");
  if (const char* env = std::getenv("GREENROOM_ISA"); env && *env)
    cap = std::min(cap, rank_of(env, "GREENROOM_ISA"));
  return cap;
}

bool has_all(const std::vector<std::string>& usable, const std::vector<const char*>& needs) {
  return std::all_of(needs.begin(), needs.end(), [&](const char* feature) {
    return std::find(usable.begin(), usable.end(), feature) != usable.end();
  });
}

// Asking the CPU takes a virtual machine some 0.1 ms, and its answer does not change.
const std::vector<std::string>& usable_features() {
  static const std::vector<std::string> features = detect_cpu().usable;
  return features;
}

std::vector<Tier> runnable(const std::optional<std::string>& isa) {
  const int cap = cap_of(isa);
  const std::vector<std::string>& usable = usable_features();
  std::vector<Tier> out;
  for (const Tier& tier : built_tiers())
    if (has_all(usable, tier.needs) && rank_of(tier.table->name, "this build") <= cap)
      out.push_back(tier);
  return out;
}

} // namespace

std::vector<std::string> tiers() {
  std::vector<std::string> names;
  for (const Tier& tier : runnable({}))
    names.emplace_back(tier.table->name);
  return names;
}

const KernelTable& kernels_for(Kind kind, const std::optional<std::string>& isa) {
  for (const Tier& tier : runnable(isa)) {
    const bool own = kind == kBf16 || kind == kE4m3   ? tier.bf16
                     : (kind == kF16 || kind == kF32) ? tier.floating
                                                      : tier.integer;
    if (own)
      return *tier.table;
  }
  return kPortableKernels;
}

namespace {

// For kernels that come in three tiers: those with VNNI and the like add nothing to them.
template <class Table>
const Table& of_three(const std::optional<std::string>& isa, const Table& portable, const Table* avx2,
                      const Table* avx512) {
  const int cap = cap_of(isa);
  const std::vector<std::string>& usable = usable_features();
  if (!avx2 || cap < rank_of("avx2", "this build") || !has_all(usable, {"avx2", "fma", "f16c"}))
    return portable;
  if (cap < rank_of("avx512", "this build") || !has_all(usable, {"avx512f", "avx512bw", "avx512vl", "avx512dq"}))
    return *avx2;
  return *avx512;
}

} // namespace

const AttentionKernels& attention_kernels(KvType type, const std::optional<std::string>& isa) {
#ifdef GREENROOM_X86
  const AttentionKernels& found = of_three(isa, kPortableAttention, &kAvx2Attention, &kAvx512Attention);
  const bool pairs = type == kKvBf16 && &found == &kAvx512Attention && has_all(usable_features(), {"avx512bf16"});
  return pairs && cap_of(isa) >= rank_of("avx512bf16", "this build") ? kAvx512Bf16Attention : found;
#else
  static_cast<void>(type);
  return of_three<AttentionKernels>(isa, kPortableAttention, nullptr, nullptr);
#endif
}

const VectorKernels& vector_kernels(const std::optional<std::string>& isa) {
#ifdef GREENROOM_X86
  return of_three(isa, kPortableVectors, &kAvx2Vectors, &kAvx512Vectors);
#else
  return of_three<VectorKernels>(isa, kPortableVectors, nullptr, nullptr);
#endif
}

const RecodeKernels& recode_kernels() {
#ifdef GREENROOM_X86
  return of_three({}, kPortableRecode, &kAvx2Recode, &kAvx512Recode);
#else
  return of_three<RecodeKernels>({}, kPortableRecode, nullptr, nullptr);
#endif
}

const char* code_name(Kind kind) {
  switch (kind) {
  case kInt4F16:
  case kInt4F16Min:
  case kInt4K:
  case kInt4Nl:
  case kInt4Mx:
  case kInt4Nv:
  case kInt4Xs:
  case kInt2K:
  case kInt3K:
  case kInt4Block:
  case kInt4BlockZero:
  case kInt4Halves:
  case kInt4HalvesZero:
    return "int4";
  case kE4m3:
    return "e4m3";
  case kBf16:
    return "bf16";
  case kF16:
    return "f16";
  case kF32:
  case kKinds:
    return "f32";
  default:
    return "int8";
  }
}

Kind kind_of_code(std::string_view code) {
  if (code == "int4")
    return kInt4F16;
  if (code == "int8")
    return kInt8F16;
  if (code == "e4m3")
    return kE4m3;
  if (code == "bf16")
    return kBf16;
  if (code == "f16")
    return kF16;
  if (code == "f32")
    return kF32;
  throw std::invalid_argument("unknown weight code \"" + std::string(code) +
                              "\"; known are int4, int8, e4m3, bf16, f16, f32");
}

ActivationForm form_of(Kind kind, const KernelTable& table) {
  if (kind == kBf16 || kind == kE4m3)
    return table.bf16_form;
  return kind == kF16 || kind == kF32 ? kActF32 : kActInt8;
}

} // namespace greenroom
