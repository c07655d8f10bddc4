/* SPDX-License-Identifier: Apache-2.0
 * reorder_kv.h - which page each beam writes to after a step of a beam search: one rule for the engine's page tables
 * and for a device, whose tables follow the beams before the host has seen them.
 * Threads: any. */
#ifndef PROA_KERNELS_REORDER_KV_H
#define PROA_KERNELS_REORDER_KV_H

#include "base/compiler.h"
#include <stdint.h>

/* Each of the beams (at most 64) had a page of its own. Now beam i continues parent[i] and writes to the page of beam
 * take[i]: the first beam to continue a parent keeps its page (take == parent); each other one needs a copy and gets
 * the page of a beam that is not continued, in rising order. */
static inline PROA_HOST_DEVICE void proa_reorder_pages(int32_t *take, const int32_t *parent, int32_t beams)
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
