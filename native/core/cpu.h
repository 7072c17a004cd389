// What this CPU has and what the operating system lets us use.
#pragma once

#include <string>
#include <vector>

namespace greenroom {

struct CpuFeatures {
  std::string vendor;
  std::string brand;
  int family = 0;
  int model = 0;
  std::vector<std::string> cpu;    // what CPUID reports
  std::vector<std::string> usable; // what the operating system saves across task switches as well
};

CpuFeatures detect_cpu();

} // namespace greenroom
