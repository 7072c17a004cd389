// Arrays of vector registers stay in registers only when the loops over them are unrolled, and when no call takes them.
#pragma once

#if defined(__clang__)
#define GREENROOM_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define GREENROOM_UNROLL _Pragma("GCC unroll 16")
#else
#define GREENROOM_UNROLL
#endif

// GCC counts callers: with panels beside strips it made calls of products, and int4 with AVX2 fell from 87 to 75 % of
// the read bandwidth.
#if defined(__GNUC__)
#define GREENROOM_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define GREENROOM_INLINE __forceinline
#else
#define GREENROOM_INLINE inline
#endif
