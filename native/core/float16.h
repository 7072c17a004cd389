// f16 and bf16 in plain integer arithmetic, for the files built for any CPU. ISA files have their own instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace greenroom {

inline float f32_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline uint16_t bf16_from_f32(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40); // NaN stays NaN
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

inline float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// 2^(exponent - 128): half of what an e8m0 scale stands for. The two smallest are subnormal.
inline float half_from_e8m0(uint8_t exponent) {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23);
}

// Half of what an unsigned e4m3 scale stands for: its bits moved up are an f16 number 2^8 times smaller.
inline float half_from_ue4m3(uint8_t bits) {
  return f32_from_f16(static_cast<uint16_t>(bits << 7)) * 128.0f;
}

// NVFP4's scales without what they do not use: the top bit is ignored and 0x7f stands for 0 (only with the top bit
// clear).
inline uint8_t plain_ue4m3(uint8_t bits) {
  return bits == 0x7f ? uint8_t{0} : static_cast<uint8_t>(bits & 0x7f);
}

inline float f32_from_e4m3(uint8_t bits) {
  const float magnitude = f32_from_f16(static_cast<uint16_t>((bits & 0x7f) << 7)) * 256.0f;
  const uint32_t nan = (bits & 0x7f) == 0x7f ? 0x7fc00000u : std::bit_cast<uint32_t>(magnitude);
  return std::bit_cast<float>(nan | (uint32_t{bits & 0x80u} << 24));
}

inline uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u); // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Adding 0.5 leaves the subnormal's bits, rounded to nearest even, at the bottom of the mantissa.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

} // namespace greenroom
