/* SPDX-License-Identifier: Apache-2.0
 * peak.h - the peaks of this machine, measured: read bandwidth and arithmetic rates. Speeds are
 * stated as shares of these, measured in the same run.
 * Threads: all of the pool's; one call at a time. Nothing else should run meanwhile. */
#ifndef PROA_KERNELS_PEAK_H
#define PROA_KERNELS_PEAK_H

#include "base/cpu.h"
#include "base/thread.h"

/* share 0..1 of the work that is done; called from the calling thread. */
typedef void proa_peak_progress_fn(void *arg, double share);

/* Bytes a second that all threads together read, each its part of one buffer in 64-byte loads, best of 5 passes.
 * bytes: size of the buffer, 0: 1 GiB; at most a quarter of the free memory is taken. Takes about a second.
 * progress may be NULL. Returns 0 if there is no memory for it. */
double proa_peak_read_bandwidth(proa_pool *pool, int64_t bytes, proa_peak_progress_fn *progress, void *arg);

/* Operations a second (a multiply-add counts two) of register-only loops on all threads; 0: the level has no such
 * instruction. Takes about 0.2 s. */
typedef struct proa_peak_rates {
    double f32;  /* fused multiply-adds */
    double i8;   /* vpdpbusd, or tiles (AMX) */
    double bf16; /* vdpbf16ps, or tiles */
} proa_peak_rates;
proa_peak_rates proa_peak_compute(proa_pool *pool, proa_isa isa);

#endif
