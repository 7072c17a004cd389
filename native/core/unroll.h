// Arrays of vector registers stay in registers only when the loops over them are unrolled.
#pragma once

#if defined(__clang__)
#define GREENROOM_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define GREENROOM_UNROLL _Pragma("GCC unroll 16")
#else
#define GREENROOM_UNROLL
#endif
