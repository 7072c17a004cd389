// Rotary positions (Su et al. 2021).
#pragma once

#include <cstddef>
#include <vector>

namespace greenroom {

// Cosine and sine of position * frequency, times magnitude: turns [tokens, frequencies, 2] for positions start ...
void rope_turns(const std::vector<double>& frequencies, double magnitude, size_t start, size_t tokens, float* turns);

} // namespace greenroom
