/* SPDX-License-Identifier: Apache-2.0
 * branch.h - whose page is whose when beams branch: one rule for the engine's page tables and for those on a device, which
 *            follow the beams before the engine knows them.
 * Threads: any. */
#ifndef PROA_KERNELS_BRANCH_H
#define PROA_KERNELS_BRANCH_H

#include <stdint.h>

#ifdef __CUDACC__
#define PROA_ANYWHERE __host__ __device__
#else
#define PROA_ANYWHERE
#endif

/* Each of the beams (at most 64) had a page of its own; now beam i goes on from parent[i] and gets the page of take[i]. The
 * first to go on from a parent keeps its page (take == parent); the others need a copy and get it, in turn, in the pages of
 * those that nobody goes on from. */
static inline PROA_ANYWHERE void proa_branch_take(int32_t *take, const int32_t *parent, int32_t beams)
{
    uint64_t parents = 0, firsts = 0;
    int32_t spare = 0;
    for (int32_t i = 0; i < beams; i++) {
        uint64_t bit = (uint64_t)1 << parent[i];
        if (parents & bit) continue;
        parents |= bit, firsts |= (uint64_t)1 << i;
        take[i] = parent[i];
    }
    for (int32_t i = 0; i < beams; i++) {
        if (firsts >> i & 1) continue;
        while (parents >> spare & 1) spare++;
        take[i] = spare++;
    }
}

#endif
