/* SPDX-License-Identifier: Apache-2.0
 * clock.c - monotonic time and the CPU time of a thread. */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t proa_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t proa_clock_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
