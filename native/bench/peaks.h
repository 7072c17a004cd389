// Arithmetic ceilings of one core, by the instruction each tier leans on.
#pragma once

namespace greenroom_bench {

// Each runs `turns` x 16 (256 bits: 12) independent instructions or groups and returns something that depends on them.
int maddubs_chain(long turns);   // vpmaddubsw + vpmaddwd + vpaddd, 256 bits: 64 operations
int fma256_chain(long turns);    // 16 operations
int dpbusd256_chain(long turns); // 256 bits: 64 operations
int dpbusd_chain(long turns);    // 512 bits: 128 operations
int fma512_chain(long turns);    // 32 operations
int dpbf16_chain(long turns);    // 512 bits: 64 operations

} // namespace greenroom_bench
