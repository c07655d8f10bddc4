/* SPDX-License-Identifier: Apache-2.0
 * test_vec.c - what kerncheck does not reach of the small vector ops: rows as long as vocabularies, orders that are
 * hard for top_k, far angles, sums near the end of f32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/ops.h"
#include <math.h>
#include <stdlib.h>

#define VOCAB 262144

static proa_ctx contexts[PROA_ISA_COUNT];
static float *logits;
static uint64_t seed = 5;

static float random_unit(void) /* [-1, 1) */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(uint32_t)(seed >> 33) * 0x1p-30f - 1.0f;
}

static int open_all(void **state)
{
    PROA_UNUSED(state);
    const proa_ctx_need need = {.rows = 4, .inputs = 64, .heads = 1, .head_dim = 64, .columns = VOCAB};
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        const proa_ops *ops = proa_ops_cpu((proa_isa)isa);
        if (ops && proa_ctx_init(&contexts[isa], ops, proa_pool_new(2), &need, NULL) != PROA_OK) return 1;
    }
    logits = malloc(2 * VOCAB * sizeof *logits);
    return logits == NULL;
}

static int close_all(void **state)
{
    PROA_UNUSED(state);
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        if (!contexts[isa].ops) continue;
        proa_pool_free(contexts[isa].pool);
        proa_ctx_release(&contexts[isa]);
    }
    free(logits);
    return 0;
}

/* ---- top_k against a sort ---- */

static int by_rank(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    float x = logits[i], y = logits[j];
    if (isnan(x) != isnan(y)) return isnan(x) ? 1 : -1;
    if (x > y) return -1;
    if (x < y) return 1;
    return i < j ? -1 : 1;
}

static void check_top(int64_t columns)
{
    static int32_t order[VOCAB], ids[VOCAB];
    static float values[VOCAB];
    static const int64_t ks[] = {1, 2, 7, 50, 1000, VOCAB};
    for (int32_t i = 0; i < columns; i++) order[i] = i;
    qsort(order, (size_t)columns, sizeof *order, by_rank);
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++)
        for (size_t i = 0; i < PROA_COUNT(ks); i++) {
            int64_t k = ks[i] < columns ? ks[i] : columns;
            proa_ctx *c = &contexts[isa];
            if (!c->ops || (isa == PROA_ISA_GENERIC && k * columns > 1 << 24)) continue;
            c->ops->top_k(c, proa_view_2d(values, PROA_DTYPE_F32, 1, k), ids,
                          proa_view_2d(logits, PROA_DTYPE_F32, 1, columns), k);
            assert_memory_equal(ids, order, (size_t)k * sizeof *ids);
            for (int64_t j = 0; j < k; j++)
                assert_true(values[j] == logits[ids[j]] || (isnan(values[j]) && isnan(logits[ids[j]])));
        }
}

static void top_k_random(void **state)
{
    PROA_UNUSED(state);
    static const int64_t columns[] = {VOCAB, 50257, 1000, 65, 64, 17, 1};
    for (size_t n = 0; n < PROA_COUNT(columns); n++) {
        for (int64_t i = 0; i < columns[n]; i++) logits[i] = random_unit();
        check_top(columns[n]);
    }
}

static void top_k_hard_orders(void **state)
{
    PROA_UNUSED(state);
    for (int32_t i = 0; i < 30000; i++) logits[i] = (float)i; /* every column beats all before it */
    check_top(30000);
    for (int32_t i = 0; i < 30000; i++) logits[i] = (float)-i;
    check_top(30000);
    for (int32_t i = 0; i < 30000; i++) logits[i] = (float)(i * 7919 % 11); /* ties */
    check_top(30000);
    for (int32_t i = 0; i < 3000; i++) logits[i] = i % 2 ? 0.0f : -0.0f; /* equal, whatever the sign */
    check_top(3000);
}

static void top_k_not_numbers(void **state)
{
    PROA_UNUSED(state);
    for (int32_t i = 0; i < 5000; i++) logits[i] = NAN;
    check_top(5000);
    for (int32_t i = 3000; i < 5000; i += 3) logits[i] = -INFINITY; /* stands before NaN */
    check_top(5000);
    for (int32_t i = 0; i < 5000; i += 5) logits[i] = i % 2 ? INFINITY : random_unit();
    check_top(5000);
}

/* ---- log_sum_exp ---- */

static float lse(int isa, int64_t columns)
{
    float out[2];
    proa_ctx *c = &contexts[isa];
    memcpy(logits + columns, logits, (size_t)columns * sizeof *logits);
    c->ops->log_sum_exp(c, out, proa_view_2d(logits, PROA_DTYPE_F32, 2, columns));
    assert_true(out[0] == out[1] || (isnan(out[0]) && isnan(out[1])));
    return out[0];
}

static void log_sum_exp_long(void **state)
{
    PROA_UNUSED(state);
    double sum = 0;
    for (int64_t i = 0; i < VOCAB; i++) {
        logits[i] = 90.0f + 8 * random_unit();
        sum += exp((double)logits[i]);
    }
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++)
        if (contexts[isa].ops) assert_true(fabs((double)lse(isa, VOCAB) - log(sum)) < 1e-5);
}

static void log_sum_exp_limits(void **state)
{
    PROA_UNUSED(state);
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        if (!contexts[isa].ops) continue;
        for (int i = 0; i < 37; i++) logits[i] = -INFINITY;
        assert_true(lse(isa, 37) == -INFINITY);
        logits[36] = NAN;
        assert_true(isnan(lse(isa, 37)));
        logits[36] = -3e38f;
        assert_true(lse(isa, 37) == -3e38f);
        logits[3] = INFINITY;
        assert_true(lse(isa, 37) == INFINITY);
        logits[20] = NAN;
        assert_true(isnan(lse(isa, 37)));
    }
}

/* ---- positions and norms ---- */

static void far_angles(void **state)
{
    PROA_UNUSED(state);
    static const float inv_freq[5] = {1.0f, 0.7498942f, 0.0316228f, 1e-4f, 3.0f};
    const proa_rope_freqs freqs = {.inv_freq = inv_freq, .scale = 1.5f};
    int32_t pos[64];
    float table[64 * 10];
    for (int i = 0; i < 64; i++) pos[i] = i < 32 ? i * 37 : 9999999 - i * 1237;
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        proa_ctx *c = &contexts[isa];
        if (!c->ops) continue;
        c->ops->rope_table(c, proa_view_2d(table, PROA_DTYPE_F32, 64, 10), pos, NULL, &freqs);
        for (int t = 0; t < 64; t++)
            for (int i = 0; i < 5; i++) {
                float angle = (float)pos[t] * inv_freq[i];
                assert_true(fabs((double)table[t * 10 + i] - 1.5 * cos((double)angle)) < 2e-7);
                assert_true(fabs((double)table[t * 10 + 5 + i] - 1.5 * sin((double)angle)) < 2e-7);
            }
    }
}

/* The squares' sum is beyond f32, their mean is not. */
static void norms_near_overflow(void **state)
{
    PROA_UNUSED(state);
    float x[100], w[100], y[100];
    for (int i = 0; i < 100; i++) x[i] = i % 2 ? 1e19f : -1e19f, w[i] = 2.0f;
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        proa_ctx *c = &contexts[isa];
        if (!c->ops) continue;
        proa_view vx = proa_view_2d(x, PROA_DTYPE_F32, 1, 100), vy = proa_view_2d(y, PROA_DTYPE_F32, 1, 100);
        c->ops->rms_norm(c, vy, vx, proa_view_1d(w, PROA_DTYPE_F32, 100), 1e-6f);
        for (int i = 0; i < 100; i++) assert_true(fabsf(y[i] - (i % 2 ? 2.0f : -2.0f)) < 2e-6f);
        c->ops->layer_norm(c, vy, vx, proa_view_1d(w, PROA_DTYPE_F32, 100), (proa_view){0}, 1e-6f);
        for (int i = 0; i < 100; i++) assert_true(fabsf(y[i] - (i % 2 ? 2.0f : -2.0f)) < 2e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_k_random),        cmocka_unit_test(top_k_hard_orders),
        cmocka_unit_test(top_k_not_numbers),   cmocka_unit_test(log_sum_exp_long),
        cmocka_unit_test(log_sum_exp_limits),  cmocka_unit_test(far_angles),
        cmocka_unit_test(norms_near_overflow),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
