/* SPDX-License-Identifier: Apache-2.0
 * table_model.h - the made-up language model of the beam search goldens (tools/beam_table_model.py), and a search
 *                 driven over it. For test programs: all static. Include cmocka.h before. */
#ifndef TEST_TABLE_MODEL_H
#define TEST_TABLE_MODEL_H

#include "engine/decode/beam.h"

#include <math.h>
#include <string.h>

typedef struct model {
    uint32_t seed;
    int vocab, grain, end_eighths;
    const int32_t *end_ids;
    int end_ids_count;
} model;

enum { VOCAB = 96, WIDTH = 64 };

static inline uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static inline uint32_t follow(uint32_t state, int32_t token)
{
    return mix(state ^ ((uint32_t)token + 1) * 0x9e3779b9u);
}

static inline bool is_end(const model *m, int32_t token)
{
    for (int i = 0; i < m->end_ids_count; i++)
        if (m->end_ids[i] == token) return true;
    return false;
}

static inline float logprob(const model *m, uint32_t state, int32_t token)
{
    uint32_t steps = (mix(state ^ ((uint32_t)token * 0x7feb352du + 1)) >> 8) % (63u << (m->grain - 3));
    double value = -(0.125 + ldexp(steps, -m->grain));
    return (float)(is_end(m, token) ? value - m->end_eighths / 8.0 : value);
}

/* The `count` likeliest tokens, best first, among equals the lower first, as the kernels' top_k has it. */
static inline void top_row(const model *m, uint32_t state, int64_t count, int32_t *tokens, float *logprobs)
{
    int64_t have = 0;
    for (int32_t t = 0; t < m->vocab; t++) {
        float value = logprob(m, state, t);
        if (have == count && !(value > logprobs[have - 1])) continue;
        int64_t at = have < count ? have++ : have - 1;
        for (; at > 0 && value > logprobs[at - 1]; at--) {
            logprobs[at] = logprobs[at - 1];
            tokens[at] = tokens[at - 1];
        }
        logprobs[at] = value;
        tokens[at] = t;
    }
}

/* Runs a search of K beams to its end, or for steps_max steps; returns the steps. The first has one row only. */
static inline int64_t run_search(proa_beam *b, const model *m, int32_t K, int64_t steps_max)
{
    static int32_t tokens[WIDTH * VOCAB];
    static float logprobs[WIDTH * VOCAB];
    uint32_t state[WIDTH], before[WIDTH];
    int32_t parent[WIDTH], token[WIDTH];
    int64_t M = proa_beam_candidates(b), steps = 0;
    state[0] = mix(m->seed);
    for (bool more = true; more && steps < steps_max; steps++) {
        for (int32_t k = 0; k < (steps ? K : 1); k++)
            top_row(m, state[k], M, tokens + k * M, logprobs + k * M);
        assert_int_equal(proa_beam_advance(b, &more, parent, token,
                                           &(proa_beam_candidate_rows){tokens, logprobs, NULL}, NULL),
                         PROA_OK);
        memcpy(before, state, sizeof state);
        for (int32_t k = 0; k < K; k++) state[k] = follow(steps ? before[parent[k]] : before[0], token[k]);
    }
    return steps;
}

#endif
