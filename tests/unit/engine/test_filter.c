/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "choose.h"
#include "draws.h"
#include "engine/decode/sampler.h"
#include "golden_logits.h"

#include <stdlib.h>

enum { DRAWS = 20000 };

/* Probabilities of a golden case. */
static void read_probabilities(double *p, int n, const proa_json *c)
{
    const proa_json *kept = proa_json_get(c, "kept"), *probability = proa_json_get(c, "probability");
    for (int i = 0; i < n; i++) p[i] = 0;
    for (int64_t i = 0; i < proa_json_len(kept); i++)
        p[proa_json_int(proa_json_at(kept, i))] = proa_json_double(proa_json_at(probability, i));
}

static void check_case(proa_sampler_scratch *s, const proa_json *c, int64_t at)
{
    golden_options g;
    float row[GOLDEN_ROW];
    double p[GOLDEN_ROW], got[GOLDEN_ROW] = {0}, sum = 0;
    golden_read(&g, c);
    int n = golden_row(row, proa_json_get(c, "logits"));
    read_probabilities(p, n, c);
    int64_t count = proa_sampler_filter(s, row, n, &g.o, NULL);
    for (int64_t i = 0; i < count; i++) sum += (double)s->weight[i];
    for (int64_t i = 0; i < count; i++) {
        if (i) assert_true(s->id[i] > s->id[i - 1]);
        got[s->id[i]] = (double)s->weight[i] / sum;
    }
    for (int i = 0; i < n; i++)
        if (fabs(got[i] - p[i]) > 2e-6) /* the goldens have 8 digits of f32 */
            fail_msg("case %d, token %d: probability %g, want %g", (int)at, i, got[i], p[i]);
    assert_int_equal(count, proa_json_len(proa_json_get(c, "kept")));
}

static void test_goldens(void **state)
{
    (void)state;
    proa_json *root = golden_load("logits.json");
    const proa_json *cases = proa_json_get(root, "warpers");
    assert_int_equal(proa_json_len(cases), 140);
    proa_sampler_scratch s;
    proa_sampler_init(&s, GOLDEN_ROW);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_case(&s, proa_json_at(cases, i), i);
    proa_sampler_release(&s);
    proa_json_free(root);
}

/* Every fifth golden: 20,000 draws have its distribution. */
static void test_draws(void **state)
{
    (void)state;
    proa_json *root = golden_load("logits.json");
    const proa_json *cases = proa_json_get(root, "warpers");
    proa_sampler_scratch s;
    proa_sampler_init(&s, GOLDEN_ROW);
    for (int64_t i = 0; i < proa_json_len(cases); i += 5) {
        golden_options g;
        float row[GOLDEN_ROW];
        double p[GOLDEN_ROW];
        int seen[GOLDEN_ROW] = {0};
        golden_read(&g, proa_json_at(cases, i));
        g.o.seed = (uint64_t)i;
        int n = golden_row(row, proa_json_get(proa_json_at(cases, i), "logits"));
        read_probabilities(p, n, proa_json_at(cases, i));
        for (int k = 0; k < DRAWS; k++) {
            proa_sample got = choose(&s, row, n, k, &g.o);
            seen[got.id]++;
        }
        expect_distribution(seen, p, n, DRAWS);
    }
    proa_sampler_release(&s);
    proa_json_free(root);
}

/* Top-p that decays: the value after each token, and draws with it. */
static void check_decay(proa_sampler_scratch *s, const proa_json *c)
{
    golden_options g;
    int32_t said[GOLDEN_IDS];
    golden_read(&g, c);
    proa_history h = {.generated = said};
    int n = golden_ids(said, proa_json_get(c, "generated"));
    const proa_json *want = proa_json_get(c, "top_p");
    g.o.temperature = 1;
    for (h.generated_count = 0; h.generated_count <= n; h.generated_count++) {
        double p = proa_json_double(proa_json_at(want, h.generated_count));
        for (int style = 0; style < 3; style++) {
            g.o.style = (proa_style)style;
            assert_true(fabs((double)proa_sampler_top_p(&g.o, &h) - p) < 1e-6);
        }
        const float flat[10] = {0};
        g.o.style = PROA_STYLE_FT; /* of ten equal ones, as many as p needs */
        if (fabs(p * 10 - rint(p * 10)) > 1e-3)
            assert_int_equal(proa_sampler_filter(s, flat, 10, &g.o, &h), ceil(p * 10));
        g.o.top_k = 10; /* FasterTransformer lets top-p decay only where there is no top-k */
        assert_true(proa_sampler_top_p(&g.o, &h) == g.o.top_p);
        g.o.top_k = 0;
    }
}

static void test_decay(void **state)
{
    (void)state;
    proa_json *root = golden_load("logits.json");
    const proa_json *cases = proa_json_get(root, "decay");
    proa_sampler_scratch s;
    proa_sampler_init(&s, GOLDEN_ROW);
    assert_int_equal(proa_json_len(cases), 5);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_decay(&s, proa_json_at(cases, i));
    const int32_t said[] = {0, 0, 0};
    proa_history h = {.generated = said, .generated_count = 3};
    proa_options o = {.top_p_decay = 0.5F}; /* hf: 0 is all, and decays; id 0 resets only if given */
    assert_true(proa_sampler_top_p(&o, &h) == 0.125F);
    o.given[PROA_OPTION_top_p_reset_id] = true;
    assert_true(proa_sampler_top_p(&o, &h) == 1);
    o = (proa_options){.top_p = 0.5F};
    assert_true(proa_sampler_top_p(&o, &h) == 0.5F);
    proa_sampler_release(&s);
    proa_json_free(root);
}

static void test_greedy_styles(void **state)
{
    (void)state;
    const proa_options greedy[] = {{.temperature = 0, .top_k = 5},
                                   {.style = PROA_STYLE_FT},
                                   {.style = PROA_STYLE_FT, .temperature = 2, .top_k = 1, .top_p = 0.5F},
                                   {.style = PROA_STYLE_TRTLLM, .temperature = 1}};
    const proa_options drawn[] = {{.temperature = 1, .top_k = 1},
                                  {.style = PROA_STYLE_FT, .top_k = 2},
                                  {.style = PROA_STYLE_TRTLLM, .top_p = 0.5F}};
    for (size_t i = 0; i < PROA_COUNT(greedy); i++) assert_true(proa_sampler_greedy(&greedy[i]));
    for (size_t i = 0; i < PROA_COUNT(drawn); i++) assert_false(proa_sampler_greedy(&drawn[i]));
}

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static double random_unit(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float random_logit(void)
{
    return (float)(random_unit() + random_unit() + random_unit() + random_unit() - 2) * 8;
}

/* Large rows, where the quick ways are taken: the k best by the kernel against histograms, and top-p and min-p with
 * most of the row passed over against all of it. */
static void test_large_rows(void **state)
{
    (void)state;
    enum { LONG = 5000 };
    static float row[LONG];
    proa_sampler_scratch s, slow;
    proa_sampler_init(&s, LONG);
    proa_sampler_init(&slow, LONG);
    slow.ctx.ops = proa_ops_cpu(PROA_ISA_GENERIC);
    for (int trial = 0; trial < 60; trial++) {
        for (int i = 0; i < LONG; i++) row[i] = trial % 3 ? random_logit() : rintf(random_logit() * 2);
        proa_options o = {.temperature = trial % 2 ? 1 : 0.7F,
                          .top_k = trial % 4 ? 1 + (int)(random_unit() * 200) : 0,
                          .top_p = trial % 5 ? (float)random_unit() : 0,
                          .min_p = trial % 7 ? 0 : 0.01F,
                          .style = (proa_style)(trial % 3)};
        if (o.style != PROA_STYLE_HF && !o.top_k && o.top_p <= 0) o.top_p = 0.5F;
        int64_t n = proa_sampler_filter(&s, row, LONG, &o, NULL);
        assert_int_equal(proa_sampler_filter(&slow, row, LONG, &o, NULL), n);
        assert_memory_equal(s.id, slow.id, (size_t)n * sizeof *s.id);
        assert_memory_equal(s.weight, slow.weight, (size_t)n * sizeof *s.weight);
        if (o.style != PROA_STYLE_HF && o.top_k) assert_true(n <= o.top_k);
    }
    proa_sampler_release(&s);
    proa_sampler_release(&slow);
}

/* By definition: the sum over a sorted row. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void test_nucleus_of_large_rows(void **state)
{
    (void)state;
    enum { LONG = 3000 };
    static float row[LONG];
    static double p[LONG];
    proa_sampler_scratch s;
    proa_sampler_init(&s, LONG);
    for (int trial = 0; trial < 20; trial++) {
        double sum = 0, above = 0;
        for (int i = 0; i < LONG; i++) row[i] = random_logit();
        for (int i = 0; i < LONG; i++) sum += p[i] = exp((double)row[i]);
        qsort(p, LONG, sizeof *p, by_value);
        proa_options o = {.temperature = 1,
                          .top_p = (float)(0.05 + 0.9 * random_unit()),
                          .style = trial % 2 ? PROA_STYLE_FT : PROA_STYLE_HF};
        int64_t want = 0;
        while (above < (double)o.top_p * sum) above += p[want++];
        int64_t n = proa_sampler_filter(&s, row, LONG, &o, NULL);
        assert_in_range(n, want - 1, want + 1); /* the decision may be within rounding */
        double mass = 0;
        for (int64_t i = 0; i < n; i++) mass += (double)s.weight[i];
        float top = -INFINITY;
        for (int i = 0; i < LONG; i++) top = fmaxf(top, row[i]);
        if (o.style == PROA_STYLE_FT) /* exactly p of the mass */
            assert_true(fabs(mass * exp((double)top) / sum - (double)o.top_p) < 1e-5);
    }
    proa_sampler_release(&s);
}

enum { N = 999, ROWS = 37, TOP = 5, BAD = 30 };

typedef struct batch {
    float logits[ROWS][N], raw[N];
    proa_sampler_row rows[ROWS];
    proa_logprob top[ROWS][TOP];
    proa_options o[ROWS];
    proa_err err;
} batch;

static void fill_batch(batch *b)
{
    for (int i = 0; i < N; i++) b->raw[i] = random_logit();
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < N; i++) b->logits[r][i] = random_logit();
        b->o[r] = (proa_options){.temperature = (float)(r % 3),
                                 .top_k = r % 4 * 20,
                                 .top_p = r % 5 ? 0.8F : 0,
                                 .min_p = r % 7 ? 0 : 0.1F,
                                 .typical_p = r % 6 ? 0 : 0.5F,
                                 .seed = 5,
                                 .logprobs = r % 2,
                                 .top_logprobs = TOP};
        b->rows[r] = (proa_sampler_row){.logits = b->logits[r],
                                        .raw = r % 4 ? NULL : b->raw,
                                        .position = r,
                                        .options = &b->o[r],
                                        .seed = b->o[r].seed,
                                        .logprobs = b->o[r].logprobs,
                                        .top = b->top[r]};
    }
    b->logits[BAD][7] = NAN; /* one bad row leaves the others alone */
    b->rows[BAD].err = &b->err;
}

static void expect_as_alone(proa_sampler_scratch *s, const batch *b, int r)
{
    proa_logprob expected[TOP];
    const proa_sampler_row *row = &b->rows[r];
    const float *from = row->raw ? row->raw : row->logits;
    assert_int_equal(row->status, PROA_OK);
    proa_sample one = choose(s, row->logits, N, r, row->options);
    assert_int_equal(one.id, row->out.id);
    assert_true(row->out.logprob == (row->options->logprobs ? proa_sampler_logprob(from, N, one.id) : 0));
    assert_int_equal(proa_sampler_top(expected, TOP, from, N), TOP);
    assert_memory_equal(b->top[r], expected, sizeof expected);
}

/* Many rows on a pool are as many calls for one. */
static void test_rows(void **state)
{
    (void)state;
    static batch b;
    proa_pool *pool = proa_pool_new(3);
    proa_sampler_scratch s[3];
    for (int i = 0; i < 3; i++) proa_sampler_init(&s[i], N);
    fill_batch(&b);
    uint64_t allocations = proa_alloc_count();
    proa_sampler_choose_rows(pool, s, b.rows, ROWS, N);
    assert_int_equal(proa_alloc_count(), allocations);
    for (int r = 0; r < ROWS; r++)
        if (r != BAD) expect_as_alone(&s[r % 3], &b, r);
    assert_int_equal(b.rows[BAD].status, PROA_INTERNAL);
    assert_non_null(strstr(b.err.text, "nan at id 7"));
    for (int i = 0; i < 3; i++) proa_sampler_release(&s[i]);
    proa_pool_free(pool);
}

/* The likeliest first, of equals the lower id, against counting how many stand before. */
static void test_top(void **state)
{
    (void)state;
    float row[200];
    for (int trial = 0; trial < 300; trial++) {
        proa_logprob top[20];
        int n = 1 + (int)(random_unit() * 199), count = 1 + (int)(random_unit() * 20);
        for (int i = 0; i < n; i++) row[i] = trial % 2 ? random_logit() : rintf(random_logit());
        if (trial % 7 == 0) row[n / 2] = -INFINITY;
        int got = proa_sampler_top(top, count, row, n);
        assert_int_equal(got, count < n ? count : n);
        for (int k = 0; k < count; k++) {
            if (k >= got) {
                assert_int_equal(top[k].id, -1);
                continue;
            }
            int before = 0, id = top[k].id;
            for (int i = 0; i < n; i++) before += row[i] > row[id] || (row[i] == row[id] && i < id);
            assert_int_equal(before, k);
            if (row[id] > -INFINITY)
                assert_true(fabsf(top[k].logprob - proa_sampler_logprob(row, n, id)) < 1e-5F);
        }
    }
    assert_int_equal(proa_sampler_top(NULL, 0, row, 5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),    cmocka_unit_test(test_draws),
        cmocka_unit_test(test_decay),      cmocka_unit_test(test_greedy_styles),
        cmocka_unit_test(test_large_rows), cmocka_unit_test(test_nucleus_of_large_rows),
        cmocka_unit_test(test_rows),       cmocka_unit_test(test_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
