#include "rope.h"

#include <cmath>

namespace greenroom {

void rope_turns(const std::vector<double>& frequencies, double magnitude, size_t start, size_t tokens, float* turns) {
  for (size_t position = start; position < start + tokens; ++position)
    for (double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      *turns++ = static_cast<float>(magnitude * std::cos(angle));
      *turns++ = static_cast<float>(magnitude * std::sin(angle));
    }
}

} // namespace greenroom
