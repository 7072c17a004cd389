#!/bin/sh
# Builds the core and its C++ test under AddressSanitizer + UndefinedBehaviorSanitizer, then under ThreadSanitizer, and
# runs both; then plainly, with the AMX kernels on the tiles of tests/native/amx. -O1, because sanitized kernels take the
# compiler ten times as long at -O2. Needs GCC or Clang on Linux. Usage: native/sanitize.sh [build folder]
set -eu
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-"$source_dir/build/sanitize"}
for sanitizers in address,undefined thread; do
  cmake -S "$source_dir" -B "$build/$sanitizers" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" \
    -DGREENROOM_PYTHON=OFF -DGREENROOM_CORE_TEST=ON -DGREENROOM_SANITIZE="$sanitizers" >/dev/null
  cmake --build "$build/$sanitizers" --parallel 2
  "$build/$sanitizers/core_test"
done
cmake -S "$source_dir" -B "$build/plain" -DGREENROOM_PYTHON=OFF -DGREENROOM_CORE_TEST=ON >/dev/null
cmake --build "$build/plain" --parallel 2
cc -O2 -fPIC -shared -o "$build/libamxtrap.so" "$source_dir/tests/native/amx/amxtrap.c" -ldl
LD_PRELOAD="$build/libamxtrap.so" "$build/plain/core_test"
