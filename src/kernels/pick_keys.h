/* SPDX-License-Identifier: Apache-2.0
 * pick_keys.h - the choice of op `pick_keys` among the scores of a row, on the host: by the digits of the scores, so
 *               that it takes time in proportion to their number, whatever they are.
 * Owner:   the caller owns both arrays. Threads: one row each. Way in: ops.def, pick_keys. */
#ifndef PROA_KERNELS_PICK_KEYS_H
#define PROA_KERNELS_PICK_KEYS_H

#include "kernels/op_attention.h"
#include <string.h>

/* A number that rises with the score; NaN: 0. */
static inline uint32_t proa_score_order(float score)
{
    uint32_t bits;
    float number = score + 0.0f; /* one zero */
    memcpy(&bits, &number, sizeof bits);
    if (score != score) return 0;
    return bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
}

/* The order of the `most`-th largest of n > most scores; *equal: how many of that order are among the `most`. */
static inline uint32_t proa_pick_threshold(const float *score, int64_t n, int64_t most, int64_t *equal)
{
    uint32_t found = 0, mask = 0;
    *equal = most;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        uint32_t digit = 255;
        for (int64_t i = 0; i < n; i++) {
            uint32_t order = proa_score_order(score[i]);
            if ((order & mask) == found) count[order >> shift & 255]++;
        }
        for (; count[digit] < *equal; digit--) *equal -= count[digit];
        found |= digit << shift, mask |= UINT32_C(255) << shift;
    }
    return found;
}

/* picked [most] = the places of the largest of n scores, rising, and -1 behind them. */
static inline void proa_pick_largest(int32_t *picked, const float *score, int64_t n, int64_t most)
{
    int64_t equal = n, at = 0;
    uint32_t least = n > most ? proa_pick_threshold(score, n, most, &equal) : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t order = n > most ? proa_score_order(score[i]) : 1;
        if (order > least) picked[at++] = (int32_t)i;
        else if (order == least && equal > 0) picked[at++] = (int32_t)i, equal--;
    }
    for (; at < most; at++) picked[at] = -1;
}

#endif
