// Runs a launch of a CUDA kernel on the CPU and checks every access to memory.
//
// `cargo test -p ember-kernels-cubecl --features text --test text` does so with what the tests of tests/suite launch.
// A kernel is compiled by g++ with the headers beside this file in place of CUDA's, to a library. This program takes one,
// reads a launch from its standard input and writes the buffers to its standard output. Blocks run one after another;
// the threads of a block are fibers that take turns at barriers and warp functions.
//
// The kernel is compiled with -fsanitize=thread, whose calls before loads and stores end in this file instead of the
// sanitizer's library. So these are errors: what lies outside the buffers of the launch or is not aligned; reading
// shared memory that no thread of the block wrote; two threads of a block that touch the same memory, one of them
// writing, without a barrier between them; two blocks that do so; threads that wait at different barriers, or leave while
// others wait. Shared memory starts as NaN. What is not modelled: time, the order of blocks, L1 and L2, approximations
// of fast math, and rounding of sums within the matrix units.
#include "emulator.h"
#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

namespace emulator {

Builtins builtins;

namespace {

constexpr size_t STACK = 256 << 10;
constexpr uint32_t NOBODY = 0, MANY = ~0u;

enum class State { ready, at_block_barrier, at_warp_barrier, done };

struct Thread {
    ucontext_t start;
    jmp_buf resume;
    bool started;
    State state;
    int line;
    Action act;
    void *argument;
    uint3 index;
};

std::vector<Thread> threads;
char *stacks;
size_t current;
// Advances at each barrier and with each block.
uint32_t epoch;
jmp_buf scheduler;
Arguments arguments;

// Of the kernel's library.
void (*run_thread)(Arguments);
char *shared_memory;
unsigned shared_bytes;

// Who touched a granule of memory: threads are numbered from 1 through all blocks.
struct Cell {
    uint32_t writer, write_epoch, reader, read_epoch, reader_block;
};

struct Region {
    const char *name;
    uintptr_t start;
    size_t size;
    unsigned granule;
    // Zeros, of which the system provides what is touched.
    Cell *cells;
    // What a launch may touch, from the start; all where it is empty.
    std::vector<std::pair<size_t, size_t>> bound;

    bool contains(uintptr_t address) const { return address - start < size; }

    bool allows(size_t from, size_t bytes) const {
        for (auto [first, last] : bound) {
            if (from >= first && from + bytes <= last) return true;
        }
        return bound.empty() && from + bytes <= size;
    }
};

// Shared memory, then buffers.
std::vector<Region> regions;

uint32_t block_number() {
    return builtins.block_index.x +
           builtins.grid_size.x * (builtins.block_index.y + builtins.grid_size.y * builtins.block_index.z);
}

uint32_t block_of(uint32_t thread) { return (thread - 1) / threads.size(); }

[[noreturn]] void race(const Region &region, size_t at, uint32_t other, const char *what) {
    if (other == MANY) fail("%s byte %zu: a race, %s several threads", region.name, at, what);
    fail("%s byte %zu: a race, %s thread %zu of block %u", region.name, at, what, (other - 1) % threads.size(),
         block_of(other));
}

void check_cell(Region &region, size_t at, bool write) {
    Cell &cell = region.cells[at / region.granule];
    const uint32_t block = block_number(), me = block * threads.size() + current + 1;
    const bool shared = &region == &regions[0];
    if (cell.writer != NOBODY && cell.writer != me) {
        if (cell.write_epoch == epoch || block_of(cell.writer) != block) {
            race(region, at, cell.writer, write ? "writes after" : "reads what was written by");
        }
    }
    if (write) {
        bool elsewhere = cell.reader != NOBODY && cell.reader_block != block;
        if (elsewhere || (cell.reader != NOBODY && cell.read_epoch == epoch && cell.reader != me)) {
            race(region, at, elsewhere && cell.reader_block == MANY ? MANY : cell.reader, "overwrites what was read by");
        }
        cell.writer = me;
        cell.write_epoch = epoch;
        return;
    }
    if (shared && cell.writer == NOBODY) fail("%s byte %zu is read, but was never written", region.name, at);
    cell.reader_block = cell.reader == NOBODY || cell.reader_block == block ? block : MANY;
    cell.reader = cell.reader == NOBODY || cell.read_epoch != epoch || cell.reader == me ? me : MANY;
    cell.read_epoch = epoch;
}

void check(const volatile void *pointer, size_t bytes, bool write, bool aligned) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const auto is_in = [&](const volatile void *start, size_t size) {
        return address - reinterpret_cast<uintptr_t>(start) < size;
    };
    if (is_in(stacks, threads.size() * STACK) || is_in(&builtins, sizeof builtins)) return;
    for (Region &region : regions) {
        if (!region.contains(address)) continue;
        const size_t at = address - region.start;
        if (!region.allows(at, bytes)) {
            fail("%s has %zu bytes: %s %zu at byte %zu", region.name, region.size, write ? "writes" : "reads", bytes, at);
        }
        if (aligned && at % bytes) fail("%s byte %zu: %zu bytes are not aligned", region.name, at, bytes);
        for (size_t i = at; i < at + bytes; i += region.granule) check_cell(region, i, write);
        return;
    }
    fail("%s %zu bytes at %p, outside all buffers", write ? "writes" : "reads", bytes, const_cast<void *>(pointer));
}

// Leaves the current fiber until it is resumed.
void wait() {
    if (!_setjmp(threads[current].resume)) _longjmp(scheduler, 1);
}

// What a fiber does: the same thread of one block after another.
void fiber() {
    while (true) {
        run_thread(arguments);
        threads[current].state = State::done;
        wait();
    }
}

void start_threads() {
    const uint3 size = builtins.block_size;
    threads.resize(size.x * size.y * size.z);
    void *memory = mmap(nullptr, threads.size() * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for stacks");
    stacks = static_cast<char *>(memory);
    for (unsigned i = 0; i < threads.size(); i++) {
        Thread &thread = threads[i];
        thread.index = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        getcontext(&thread.start);
        thread.start.uc_stack = {};
        thread.start.uc_stack.ss_sp = stacks + i * STACK;
        thread.start.uc_stack.ss_size = STACK;
        makecontext(&thread.start, fiber, 0);
    }
}

// Runs a fiber until it waits or is done.
void resume(size_t i) {
    current = i;
    Thread &thread = threads[i];
    builtins.thread_index = thread.index;
    if (_setjmp(scheduler)) return;
    if (thread.started) _longjmp(thread.resume, 1);
    thread.started = true;
    setcontext(&thread.start);
}

// Ends the wait for a block barrier when all threads are there.
void release_block() {
    for (const Thread &thread : threads) {
        if (thread.state != State::at_block_barrier || thread.line != threads[0].line) {
            const char *states[] = {"is ready", "waits for the block", "waits for its warp", "is done"};
            fail("threads 0 and %zu do not meet: one %s at line %d, the other %s at line %d", &thread - &threads[0],
                 states[int(threads[0].state)], threads[0].line, states[int(thread.state)], thread.line);
        }
    }
    epoch++;
    for (Thread &thread : threads) thread.state = State::ready;
}

void run_block() {
    epoch++;
    Region &shared = regions[0];
    std::fill_n(shared.cells, shared.size / shared.granule + 1, Cell{});
    memset(shared_memory, 0xff, shared_bytes);
    for (Thread &thread : threads) thread.state = State::ready;
    while (true) {
        bool any = false, done = true;
        for (size_t i = 0; i < threads.size(); i++) {
            if (threads[i].state == State::ready) {
                resume(i);
                any = true;
            }
            done &= threads[i].state == State::done;
        }
        if (done) return;
        if (!any) release_block();
    }
}

template <class T> T *symbol(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address) fail("%s", dlerror());
    return reinterpret_cast<T *>(address);
}

void open_kernel(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) fail("%s", dlerror());
    run_thread = symbol<void(Arguments)>(library, "run_thread");
    shared_memory = symbol<char>(library, "dynamic_shared_mem");
    shared_bytes = *symbol<unsigned>(library, "shared_bytes");
}

void add_region(const char *name, char *start, size_t bytes, unsigned granule) {
    auto *cells = static_cast<Cell *>(calloc(bytes / granule + 1, sizeof(Cell)));
    regions.push_back({name, reinterpret_cast<uintptr_t>(start), bytes, granule, cells, {}});
}

// What is read from standard input: numbers of 64 bits, scalars and lengths, and memory.
void read_exactly(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) fail("the launch is incomplete");
}

uint64_t read_number() {
    uint64_t number;
    read_exactly(&number, sizeof number);
    return number;
}

uint3 read_size() {
    const unsigned x = read_number(), y = read_number(), z = read_number();
    return {x, y, z};
}

} // namespace

void fail(const char *format, ...) {
    const uint3 block = builtins.block_index;
    fprintf(stderr, "block (%u, %u, %u), thread %zu: ", block.x, block.y, block.z, current);
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    exit(1);
}

void synchronize_block(int line) {
    Thread &thread = threads[current];
    thread.line = line;
    thread.state = State::at_block_barrier;
    wait();
}

void synchronize_warp(void *argument, Action act, int line) {
    Thread &thread = threads[current];
    thread.line = line;
    thread.act = act;
    thread.argument = argument;
    thread.state = State::at_warp_barrier;
    const size_t first = current / warpSize * warpSize;
    if (first + warpSize > threads.size()) fail("the warp has fewer lanes than take part");
    for (size_t i = first; i < first + warpSize; i++) {
        if (threads[i].state != State::at_warp_barrier) return wait();
    }
    void *all[warpSize];
    for (int i = 0; i < warpSize; i++) {
        if (threads[first + i].line != line || threads[first + i].act != act) {
            fail("lanes of a warp are at lines %d and %d", line, threads[first + i].line);
        }
        all[i] = threads[first + i].argument;
    }
    act(all);
    for (size_t i = first; i < first + warpSize; i++) threads[i].state = State::ready;
}

int run(const char *kernel) {
    open_kernel(kernel);
    const uint3 grid = builtins.grid_size = read_size();
    builtins.block_size = read_size();
    start_threads();
    add_region("shared memory", shared_memory, shared_bytes, 2);
    std::vector<uint64_t> info(read_number());
    read_exactly(info.data(), info.size() * sizeof(uint64_t));
    const size_t allocations = read_number();
    for (size_t i = 0; i < allocations; i++) {
        const size_t bytes = read_number();
        auto *start = static_cast<char *>(aligned_alloc(512, (bytes + 511) / 512 * 512 + 512));
        read_exactly(start, bytes);
        add_region("global memory", start, bytes, 4);
    }
    std::vector<void *> buffers(read_number());
    for (void *&buffer : buffers) {
        Region &region = regions.at(1 + read_number());
        const size_t first = read_number(), bytes = read_number();
        region.bound.push_back({first, first + bytes});
        buffer = reinterpret_cast<void *>(region.start + first);
    }

    arguments = {buffers.data(), info.data()};
    uint3 &block = builtins.block_index;
    for (block.z = 0; block.z < grid.z; block.z++) {
        for (block.y = 0; block.y < grid.y; block.y++) {
            for (block.x = 0; block.x < grid.x; block.x++) run_block();
        }
    }
    for (size_t i = 1; i < regions.size(); i++) {
        fwrite(reinterpret_cast<void *>(regions[i].start), 1, regions[i].size, stdout);
    }
    return fflush(stdout);
}

} // namespace emulator

// What -fsanitize=thread calls.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
#define ACCESS(bytes)                                                                                                  \
    void __tsan_read##bytes(void *at) { emulator::check(at, bytes, false, true); }                                     \
    void __tsan_write##bytes(void *at) { emulator::check(at, bytes, true, true); }                                     \
    void __tsan_unaligned_read##bytes(void *at) { emulator::check(at, bytes, false, false); }                          \
    void __tsan_unaligned_write##bytes(void *at) { emulator::check(at, bytes, true, false); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *at, size_t bytes) { emulator::check(at, bytes, false, false); }
void __tsan_write_range(void *at, size_t bytes) { emulator::check(at, bytes, true, false); }
}

int main(int, char **arguments) { return emulator::run(arguments[1]); }
