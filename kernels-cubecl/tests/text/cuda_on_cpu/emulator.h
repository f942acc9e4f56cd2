// What a kernel and the emulator know of each other: see emulator.cpp.
//
// Without the standard library's headers, which take longer to compile than most kernels.
#pragma once

using size_t = decltype(sizeof 0);

struct uint3 {
    unsigned x, y, z;
};

inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

constexpr int warpSize = 32;

// Functions whose accesses to memory are not those of a kernel.
#define EMULATOR_CODE __attribute__((no_sanitize("thread")))

namespace emulator {

struct Builtins {
    uint3 thread_index, block_index, block_size, grid_size;
};
extern Builtins builtins;

// Ends the launch with an error.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Waits for all threads of the block; `line` tells one barrier from another.
void synchronize_block(int line);

// Waits for all lanes of the warp, of which the last calls `act` with what each has passed.
using Action = void (*)(void *const (&arguments)[warpSize]);
void synchronize_warp(void *argument, Action act, int line);

template <class T> struct Exchange {
    T value, result;
    int lane_mask;
};

template <class T> EMULATOR_CODE void exchange(void *const (&arguments)[warpSize]) {
    for (int lane = 0; lane < warpSize; lane++) {
        auto *own = static_cast<Exchange<T> *>(arguments[lane]);
        own->result = static_cast<Exchange<T> *>(arguments[lane ^ own->lane_mask])->value;
    }
}

// Calls a kernel whose parameters are pointers to buffers and a struct of scalars and lengths.
struct Arguments {
    void *const *buffers;
    const void *info;
};

template <class T> struct Parameter {
    EMULATOR_CODE static T next(Arguments &arguments) { return *static_cast<const T *>(arguments.info); }
};

template <class T> struct Parameter<T *> {
    EMULATOR_CODE static T *next(Arguments &arguments) { return static_cast<T *>(*arguments.buffers++); }
};

template <class... T> struct Call {
    // Called with braces, so that arguments are taken from left to right.
    EMULATOR_CODE Call(void (*kernel)(T...), T... values) { kernel(values...); }
};

template <class... T> EMULATOR_CODE void call(void (*kernel)(T...), Arguments arguments) {
    Call<T...>{kernel, Parameter<T>::next(arguments)...};
}

} // namespace emulator

// Follows a kernel, in a library: its entry, and shared memory of the size that a launch asks for.
#define EMULATED_KERNEL(kernel, bytes)                                                                                 \
    asm(".bss\n.balign 4096\n.globl dynamic_shared_mem\ndynamic_shared_mem: .skip " #bytes " + 32\n.text");            \
    extern "C" {                                                                                                       \
    unsigned shared_bytes = bytes;                                                                                     \
    EMULATOR_CODE void run_thread(emulator::Arguments arguments) { emulator::call(&kernel, arguments); }               \
    }
