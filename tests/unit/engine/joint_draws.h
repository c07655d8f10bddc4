/* SPDX-License-Identifier: Apache-2.0
 * joint_draws.h - whether three tokens that are sampled with drafts have their joint distribution. For tests of who
 *                 drafts; after engine_test.h and draws.h. */
#ifndef PROA_TESTS_JOINT_DRAWS_H
#define PROA_TESTS_JOINT_DRAWS_H

enum { JOINT_KINDS = 3, JOINT_DRAWN = PART_OF(20000, 2000), JOINT_EACH = 16 };

/* The likeliest tokens after these ids with their probabilities among themselves, as top_k = 3 draws. */
static inline void joint_likeliest(proa_engine *e, const int32_t *ids, int64_t count, int32_t *top, double *p)
{
    outcome o = {0};
    proa_request r = {.ids = ids, .ids_count = count, .task = PROA_TASK_ROWS};
    run_request(e, r, &o);
    const float *row = o.rows + (count - 1) * o.columns;
    double sum = 0;
    for (int k = 0; k < JOINT_KINDS; k++) {
        top[k] = -1;
        for (int32_t v = 0; v < o.columns; v++) {
            bool used = false;
            for (int j = 0; j < k; j++) used = used || top[j] == v;
            if (!used && (top[k] < 0 || row[v] > row[top[k]])) top[k] = v;
        }
    }
    for (int k = 0; k < JOINT_KINDS; k++) sum += p[k] = exp((double)row[top[k]]);
    for (int k = 0; k < JOINT_KINDS; k++) p[k] /= sum;
    outcome_release(&o);
}

static inline int joint_index(const int32_t *top, int32_t id)
{
    int k = 0;
    while (k < JOINT_KINDS && top[k] != id) k++;
    assert_true(k < JOINT_KINDS);
    return k;
}

/* The joint distribution of three tokens after ids [5 of 8], over JOINT_DRAWN sequences that `run` runs with
 * drafts. */
static inline void expect_joint_distribution(proa_engine *e, int32_t ids[8],
                                             void (*run)(proa_engine *e, proa_request r, outcome *o))
{
    int32_t top[3][9][JOINT_KINDS] = {{{0}}};
    double p1[JOINT_KINDS], p2[JOINT_KINDS], p3[JOINT_KINDS], p[27];
    int seen[27] = {0}, draws = 0;
    joint_likeliest(e, ids, 5, top[0][0], p1);
    for (int a = 0; a < JOINT_KINDS; a++) {
        ids[5] = top[0][0][a];
        joint_likeliest(e, ids, 6, top[1][a], p2);
        for (int b = 0; b < JOINT_KINDS; b++) {
            ids[6] = top[1][a][b];
            joint_likeliest(e, ids, 7, top[2][3 * a + b], p3);
            for (int c = 0; c < JOINT_KINDS; c++) p[9 * a + 3 * b + c] = p1[a] * p2[b] * p3[c];
        }
    }
    for (int i = 0; i < JOINT_DRAWN / JOINT_EACH; i++) {
        outcome o = {0};
        proa_request r = {.ids = ids, .ids_count = 5};
        r.options = (proa_options){.max_tokens = 3, .temperature = 1, .top_k = JOINT_KINDS, .n = JOINT_EACH};
        r.options.seed = (uint64_t)i, r.options.ignore_eos = true;
        run(e, r, &o);
        for (int32_t k = 0; k < o.beams; k++) {
            int a = joint_index(top[0][0], o.beam_ids[k][0]), b = joint_index(top[1][a], o.beam_ids[k][1]);
            seen[9 * a + 3 * b + joint_index(top[2][3 * a + b], o.beam_ids[k][2])]++;
        }
        outcome_release(&o);
    }
    for (int i = 0; i < 27; i++) draws += seen[i];
    assert_int_equal(draws, JOINT_DRAWN);
    expect_distribution(seen, p, 27, draws);
}

#endif
