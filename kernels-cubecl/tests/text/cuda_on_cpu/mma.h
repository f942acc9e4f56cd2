// Warp matrix functions: products of 16 x 16 fragments, whose elements are spread over the lanes of a warp.
//
// Which lane holds which element is not specified by CUDA; here lane i holds elements 8 i to 8 i + 7 by rows.
#pragma once
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
template <class Layout> constexpr bool BY_ROWS = false;
template <> constexpr bool BY_ROWS<row_major> = true;
enum layout_t { mem_row_major, mem_col_major };

constexpr int SIZE = 16;
constexpr int HELD = SIZE * SIZE / warpSize;

template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    static_assert(M == SIZE && N == SIZE && K == SIZE);
    float held[HELD];

    // Not a number until it is loaded or filled.
    fragment() {
        for (float &element : held) element = __builtin_nanf("");
    }
};

struct Transfer {
    const void *memory;
    unsigned stride;
};

// What CUDA demands: the same address and stride in all lanes, whole rows of 16 bytes, and fragments at 32.
EMULATOR_CODE inline void check_transfer(void *const (&arguments)[warpSize]) {
    auto *first = static_cast<Transfer *>(arguments[0]);
    for (void *argument : arguments) {
        auto *own = static_cast<Transfer *>(argument);
        if (own->memory != first->memory || own->stride != first->stride) {
            emulator::fail("the lanes of a warp transfer different fragments");
        }
    }
    if (reinterpret_cast<size_t>(first->memory) % 32 || first->stride % 16) {
        emulator::fail("a fragment at %p with rows of %u bytes is not aligned", first->memory, first->stride);
    }
}

// The place of a lane's element `i` in memory.
inline size_t place(int i, bool by_rows, unsigned stride) {
    unsigned linear = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned at = linear % warpSize * HELD + i, row = at / SIZE, column = at % SIZE;
    return by_rows ? row * stride + column : column * stride + row;
}

template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout> &target, const T *memory, unsigned stride,
                      int line = __builtin_LINE()) {
    Transfer transfer{memory, unsigned(stride * sizeof(T))};
    emulator::synchronize_warp(&transfer, check_transfer, line);
    for (int i = 0; i < HELD; i++) {
        target.held[i] = memory[place(i, BY_ROWS<Layout>, stride)];
    }
}

template <int M, int N, int K, class T>
void store_matrix_sync(T *memory, const fragment<accumulator, M, N, K, T> &source, unsigned stride, layout_t layout,
                       int line = __builtin_LINE()) {
    Transfer transfer{memory, unsigned(stride * sizeof(T))};
    emulator::synchronize_warp(&transfer, check_transfer, line);
    for (int i = 0; i < HELD; i++) memory[place(i, layout == mem_row_major, stride)] = source.held[i];
}

template <class Use, int M, int N, int K, class T, class Layout>
void fill_fragment(fragment<Use, M, N, K, T, Layout> &target, T value) {
    for (float &element : target.held) element = value;
}

// The addresses of a lane's parts.
struct Product {
    const float *a, *b, *c;
    float *d;
};

EMULATOR_CODE inline void multiply(void *const (&arguments)[warpSize]) {
    float a[SIZE][SIZE], b[SIZE][SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) {
        auto *lane = static_cast<Product *>(arguments[i / HELD]);
        a[i / SIZE][i % SIZE] = lane->a[i % HELD];
        b[i / SIZE][i % SIZE] = lane->b[i % HELD];
    }
    for (int i = 0; i < SIZE * SIZE; i++) {
        auto *lane = static_cast<Product *>(arguments[i / HELD]);
        float sum = lane->c[i % HELD];
        for (int k = 0; k < SIZE; k++) sum += a[i / SIZE][k] * b[k][i % SIZE];
        lane->d[i % HELD] = sum;
    }
}

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class Sum>
void mma_sync(fragment<accumulator, M, N, K, Sum> &d, const fragment<matrix_a, M, N, K, T, LayoutA> &a,
              const fragment<matrix_b, M, N, K, T, LayoutB> &b, const fragment<accumulator, M, N, K, Sum> &c,
              int line = __builtin_LINE()) {
    Product own{a.held, b.held, c.held, d.held};
    emulator::synchronize_warp(&own, multiply, line);
}

} // namespace nvcuda::wmma
