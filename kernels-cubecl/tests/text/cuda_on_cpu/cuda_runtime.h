// What kernels use of CUDA's language, on the CPU.
#pragma once
#include "emulator.h"

#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx emulator::builtins.thread_index
#define blockIdx emulator::builtins.block_index
#define blockDim emulator::builtins.block_size
#define gridDim emulator::builtins.grid_size

inline void __syncthreads(int line = __builtin_LINE()) { emulator::synchronize_block(line); }

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int line = __builtin_LINE()) {
    if (mask != ~0u || lane_mask < 0 || lane_mask >= warpSize) emulator::fail("not all lanes, or beyond them");
    emulator::Exchange<T> own{value, value, lane_mask};
    emulator::synchronize_warp(&own, emulator::exchange<T>, line);
    return own.result;
}

inline float abs(float x) { return __builtin_fabsf(x); }
inline float erf(float x) { return __builtin_erff(x); }
inline float exp(float x) { return __builtin_expf(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }

// A number where one of two is not a number.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
