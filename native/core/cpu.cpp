#include "cpu.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#ifdef GREENROOM_X86
#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif
#ifdef __linux__
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace greenroom {

#ifdef GREENROOM_X86
namespace {

enum Register { kEax, kEbx, kEcx, kEdx };

std::array<uint32_t, 4> cpuid(uint32_t leaf, uint32_t subleaf) {
  std::array<uint32_t, 4> r{};
#ifdef _MSC_VER
  int out[4];
  __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
  for (int i = 0; i < 4; ++i)
    r[i] = static_cast<uint32_t>(out[i]);
#else
  __cpuid_count(leaf, subleaf, r[kEax], r[kEbx], r[kEcx], r[kEdx]);
#endif
  return r;
}

uint64_t extended_control_register() {
#ifdef _MSC_VER
  return _xgetbv(0);
#else
  // The intrinsic would need -mxsave for this baseline file.
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
#endif
}

// Linux hands out the 8 KB of tile state only to processes that ask.
bool amx_permitted() {
#ifdef __linux__
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return true;
#endif
}

// Our tests run AMX code where the CPU has none, under a library that carries out each such instruction when the CPU
// refuses it. Without that library in the process the symbol does not exist.
bool amx_emulated() {
#ifdef __linux__
  using Active = int (*)();
  const auto active = reinterpret_cast<Active>(dlsym(RTLD_DEFAULT, "amxtrap_active"));
  return active && active();
#else
  return false;
#endif
}

constexpr uint64_t kNoState = 0, kAvxState = 0x6, kAvx512State = 0xe6, kAmxState = 0x60000;

struct Feature {
  const char* name;
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  uint64_t state; // bits of XCR0 that must be set
};

constexpr Feature kFeatures[] = {
    {"sse2", 1, 0, kEdx, 26, kNoState},          {"avx2", 7, 0, kEbx, 5, kAvxState},
    {"fma", 1, 0, kEcx, 12, kAvxState},          {"f16c", 1, 0, kEcx, 29, kAvxState},
    {"avxvnni", 7, 1, kEax, 4, kAvxState},       {"avx512f", 7, 0, kEbx, 16, kAvx512State},
    {"avx512bw", 7, 0, kEbx, 30, kAvx512State},  {"avx512vl", 7, 0, kEbx, 31, kAvx512State},
    {"avx512dq", 7, 0, kEbx, 17, kAvx512State},  {"avx512vnni", 7, 0, kEcx, 11, kAvx512State},
    {"avx512bf16", 7, 1, kEax, 5, kAvx512State}, {"amx_tile", 7, 0, kEdx, 24, kAmxState},
    {"amx_int8", 7, 0, kEdx, 25, kAmxState},     {"amx_bf16", 7, 0, kEdx, 22, kAmxState},
};

bool has(const Feature& f, uint32_t max_leaf, uint32_t max_subleaf_of_7) {
  if (f.leaf > max_leaf || (f.leaf == 7 && f.subleaf > max_subleaf_of_7))
    return false;
  return (cpuid(f.leaf, f.subleaf)[f.reg] >> f.bit) & 1;
}

std::string brand_string() {
  if (cpuid(0x80000000u, 0)[kEax] < 0x80000004u)
    return {};
  char text[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    auto r = cpuid(0x80000002u + i, 0);
    std::memcpy(text + 16 * i, r.data(), 16);
  }
  std::string s(text);
  s.erase(0, std::min(s.find_first_not_of(' '), s.size()));
  s.erase(s.find_last_not_of(' ') + 1);
  return s;
}

} // namespace

CpuFeatures detect_cpu() {
  CpuFeatures out;
  const auto leaf0 = cpuid(0, 0);
  const uint32_t max_leaf = leaf0[kEax];
  char vendor[13] = {};
  std::memcpy(vendor, &leaf0[kEbx], 4);
  std::memcpy(vendor + 4, &leaf0[kEdx], 4);
  std::memcpy(vendor + 8, &leaf0[kEcx], 4);
  out.vendor = vendor;
  out.brand = brand_string();

  const auto leaf1 = cpuid(1, 0);
  const int base_family = (leaf1[kEax] >> 8) & 15;
  out.family = base_family + (base_family == 15 ? (leaf1[kEax] >> 20) & 255 : 0);
  out.model = (leaf1[kEax] >> 4) & 15;
  if (base_family == 6 || base_family == 15)
    out.model |= static_cast<int>((leaf1[kEax] >> 16) & 15) << 4;

  const bool osxsave = (leaf1[kEcx] >> 27) & 1;
  const uint64_t saved = osxsave ? extended_control_register() : 0;
  const uint32_t max_subleaf = max_leaf >= 7 ? cpuid(7, 0)[kEax] : 0;
  int tile_permission = -1; // not asked yet
  for (const Feature& f : kFeatures) {
    const bool emulated = f.state == kAmxState && amx_emulated();
    if (!emulated && !has(f, max_leaf, max_subleaf))
      continue;
    out.cpu.emplace_back(f.name);
    if (!emulated && (saved & f.state) != f.state)
      continue;
    if (f.state == kAmxState) {
      if (tile_permission < 0)
        tile_permission = amx_permitted() ? 1 : 0;
      if (!tile_permission)
        continue;
    }
    out.usable.emplace_back(f.name);
  }
  return out;
}

#else

CpuFeatures detect_cpu() {
  return {};
}

#endif

} // namespace greenroom
