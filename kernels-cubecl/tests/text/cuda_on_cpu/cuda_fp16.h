// Half precision.
#pragma once
#include "cuda_runtime.h"

struct __half {
    _Float16 value;

    __half() = default;
    // CUDA rounds to nearest, ties to even, as the compiler's own type does.
    __half(float value) : value(static_cast<_Float16>(value)) {}
    __half(double value) : value(static_cast<_Float16>(value)) {}
    operator float() const { return static_cast<float>(value); }
};

struct __align__(4) __half2 {
    __half x, y;
};
