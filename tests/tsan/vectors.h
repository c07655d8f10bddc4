/* SPDX-License-Identifier: Apache-2.0
 * vectors.h - what ThreadSanitizer checks of a vector that a kernel reads. CMakeLists.txt includes it before the vector
 * kernels in builds with -fsanitize=thread.
 *
 * For vectors of 32 and 64 bytes GCC calls the functions for ranges, which walk over the shadow of every word. Those
 * for reads took three quarters of the time of the engine's tests. Here a read looks at one word in each 32 bytes,
 * always at a multiple of 32, so every vector has one. Writes are checked in full: two threads that write the same byte
 * are found, and a reader of what another thread writes is found where they share such a word. */
#ifndef PROA_TESTS_TSAN_VECTORS_H
#define PROA_TESTS_TSAN_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

/* From here on the compiler's own calls go to the function of this file. */
extern void __tsan_read_range(void *address, long bytes) __asm__("proa_tsan_read");

/* Of libtsan; pc: the access that reports name. */
extern void __tsan_read_range_pc(void *address, long bytes, void *pc);
extern void __tsan_read8_pc(void *address, void *pc);
extern void __tsan_read4_pc(void *address, void *pc);
extern void __tsan_read1_pc(void *address, void *pc);

static __attribute__((no_sanitize("thread"), noinline, used)) void proa_tsan_read(
    void *address, long bytes) __asm__("proa_tsan_read");

static void proa_tsan_read(void *address, long bytes)
{
    void *pc = __builtin_return_address(0);
    char *at = address;
    if (bytes == 32 || bytes == 64) {
        for (char *word = at + (-(uintptr_t)at & 31); word < at + bytes; word += 32) {
            /* A vector without alignment may end in its last word. */
            if (word + 8 <= at + bytes) __tsan_read8_pc(word, pc);
            else __tsan_read1_pc(word, pc);
        }
    } else if (bytes == 4 && ((uintptr_t)at & 3) == 0) { /* a number that a kernel spreads over a vector */
        __tsan_read4_pc(at, pc);
    } else { /* structures, words without alignment */
        __tsan_read_range_pc(at, bytes, pc);
    }
}

#endif
