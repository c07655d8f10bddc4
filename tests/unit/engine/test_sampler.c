/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "choose.h"
#include "draws.h"
#include "engine/decode/row.h"
#include "engine/decode/sampler.h"

#include <math.h>
#include <string.h>

enum { ROW = 300 };

static uint64_t random_state = 88172645463325252ull;

static double random_unit(void) /* xorshift64 of Marsaglia; nothing to do with the sampler's own */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Brute force: probabilities of the whole row in f64 by sorting, as the warpers are described. */
static void exact(double *p, const float *logits, int n, const proa_options *o)
{
    double x[ROW];
    int order[ROW]; /* rising, stable */
    for (int i = 0; i < n; i++) {
        x[i] = (double)(logits[i] / o->temperature);
        int at = i;
        for (; at > 0 && x[order[at - 1]] > x[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    double least = o->top_k > 0 && o->top_k < n ? x[order[n - o->top_k]] : -HUGE_VAL;
    double sum = 0, running = 0, rest = 0;
    for (int i = 0; i < n; i++) sum += p[i] = x[i] < least ? 0 : exp(x[i] - x[order[n - 1]]);
    for (int i = 0; i < n - 1 && o->top_p > 0 && o->top_p < 1; i++) {
        running += p[order[i]] / sum;
        if (running <= 1 - (double)o->top_p) p[order[i]] = 0;
    }
    for (int i = 0; i < n; i++) rest += p[i];
    for (int i = 0; i < n; i++) p[i] /= rest;
}

static void draw_many(const float *logits, int n, proa_options options)
{
    enum { DRAWS = 20000 };
    proa_sampler_scratch s;
    proa_sampler_init(&s, n);
    double p[ROW];
    int seen[ROW] = {0};
    exact(p, logits, n, &options);
    for (int i = 0; i < DRAWS; i++) {
        proa_sample got = choose(&s, logits, n, i, &options);
        assert_in_range(got.id, 0, n - 1);
        seen[got.id]++;
    }
    expect_distribution(seen, p, n, DRAWS);
    proa_sampler_release(&s);
}

static void test_distribution(void **state)
{
    (void)state;
    float row[ROW];
    for (int i = 0; i < ROW; i++) row[i] = (float)(6 * random_unit() - 3 + (i % 11 == 0 ? 2 : 0));
    const proa_options options[] = {
        {.temperature = 1, .seed = 1},
        {.temperature = 0.5F, .seed = 2},
        {.temperature = 2, .seed = 3, .top_k = 7},
        {.temperature = 1, .seed = 1ull << 40, .top_p = 0.9F},
        {.temperature = 0.7F, .seed = 5, .top_k = 50, .top_p = 0.6F},
        {.temperature = 1, .seed = 6, .top_p = 0.01F},
        {.temperature = 1, .seed = 7, .top_k = 1},
    };
    for (size_t i = 0; i < PROA_COUNT(options); i++) {
        draw_many(row, ROW, options[i]);
        draw_many(row, 17, options[i]);
        draw_many(row, 1, options[i]);
    }
}

/* The histograms against sorting, on rows with many ties, of all sizes and signs. */
static void test_filter_against_sorting(void **state)
{
    (void)state;
    proa_sampler_scratch s;
    proa_sampler_init(&s, ROW);
    for (int trial = 0; trial < 4000; trial++) {
        float row[ROW];
        double p[ROW];
        int n = 1 + (int)(random_unit() * (trial % 4 ? 20 : ROW));
        double spread = pow(10, 4 * random_unit() - 2);
        for (int i = 0; i < n; i++) {
            double v = spread * (random_unit() - 0.5);
            row[i] = trial % 3 ? (float)v : (float)rint(v);
        }
        proa_options o = {.temperature = trial % 2 ? 1 : 0.5F, .top_k = (int)(random_unit() * 1.2 * n)};
        o.top_p = trial % 5 ? (float)random_unit() : 0;
        exact(p, row, n, &o);
        int64_t count = proa_sampler_filter(&s, row, n, &o, NULL);
        double sum = 0;
        for (int64_t i = 0; i < count; i++) sum += (double)s.weight[i];
        int64_t at = 0;
        for (int i = 0; i < n; i++) {
            bool kept = at < count && s.id[at] == i;
            /* weights below e^-87 are zero in f32 */
            if (kept != (p[i] > 0) && p[i] > 1e-30)
                fail_msg("trial %d: token %d of %d, p %g, top_k %d, top_p %g", trial, i, n, p[i], o.top_k,
                         (double)o.top_p);
            if (kept) assert_true(fabs((double)s.weight[at++] / sum - p[i]) < 1e-6);
        }
        assert_int_equal(at, count);
    }
    proa_sampler_release(&s);
}

static int read_row(float *row, const proa_json *array)
{
    int n = (int)proa_json_len(array);
    assert_in_range(n, 1, ROW);
    for (int i = 0; i < n; i++) row[i] = (float)proa_json_double(proa_json_at(array, i));
    return n;
}

static void check_golden(proa_sampler_scratch *s, const proa_json *c)
{
    float row[ROW];
    int n = read_row(row, proa_json_get(c, "logits"));
    proa_options o = {.temperature = (float)proa_json_double(proa_json_get(c, "temperature")),
                      .top_k = (int32_t)proa_json_int(proa_json_get(c, "top_k")),
                      .top_p = (float)proa_json_double(proa_json_get(c, "top_p"))};
    const proa_json *kept = proa_json_get(c, "kept"), *probability = proa_json_get(c, "probability");
    int64_t count = proa_sampler_filter(s, row, n, &o, NULL);
    assert_int_equal(count, proa_json_len(kept));
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)s->weight[i];
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(s->id[i], proa_json_int(proa_json_at(kept, i)));
        assert_true(fabs((double)s->weight[i] / sum - proa_json_double(proa_json_at(probability, i))) < 1e-6);
    }
    o = (proa_options){.logprobs = true};
    proa_sample got = choose(s, row, n, 0, &o);
    assert_int_equal(got.id, proa_json_int(proa_json_get(c, "greedy")));
    assert_true(fabs((double)got.logprob - proa_json_double(proa_json_get(c, "greedy_logprob"))) < 2e-6);
}

static void test_goldens(void **state)
{
    (void)state;
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, PROA_SOURCE_DIR "/tests/golden/sampler.json", PROA_MIB, &err))
        fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(root, "cases");
    assert_int_equal(proa_json_len(cases), 150);
    proa_sampler_scratch s;
    proa_sampler_init(&s, ROW);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_golden(&s, proa_json_at(cases, i));
    proa_sampler_release(&s);
    proa_json_free(root);
}

static void test_greedy(void **state)
{
    (void)state;
    const float ties[] = {1, 3, -2, 3, 3};
    const proa_options o = {0};
    proa_sampler_scratch s;
    proa_sample got;
    proa_sampler_init(&s, ROW);
    got = choose(&s, ties, 5, 0, &o);
    assert_int_equal(got.id, 1);
    float row[ROW];
    for (int n = 1; n < ROW; n++)
        for (int at = 0; at < n; at += 1 + n / 7) {
            for (int i = 0; i < n; i++) row[i] = -1e30F;
            row[at] = -5;
            assert_true(proa_row_largest(row, n) == -5);
            got = choose(&s, row, n, 0, &o);
            assert_int_equal(got.id, at);
            assert_false(proa_row_has_nan(row, n));
            row[at] = NAN;
            assert_true(proa_row_has_nan(row, n));
        }
    proa_sampler_release(&s);
}

static void test_logprob(void **state)
{
    (void)state;
    float row[ROW];
    for (int n = 1; n <= ROW; n += 13) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            row[i] = (float)(100 + 30 * random_unit());
            sum += exp((double)row[i] - 100);
        }
        for (int i = 0; i < n; i += 3)
            assert_true(fabs((double)proa_sampler_logprob(row, n, i) - ((double)row[i] - 100 - log(sum))) < 4e-6);
    }
    const float masked[] = {-INFINITY, 2, -INFINITY};
    assert_true(proa_sampler_logprob(masked, 3, 1) == 0);
    assert_true(proa_sampler_logprob(masked, 3, 0) == -INFINITY);
}

/* Known answers of Random123's kat_vectors for philox4x32-10. */
static void test_philox(void **state)
{
    (void)state;
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    const uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                   pi_key[2] = {0xa4093822, 0x299f31d0};
    const uint32_t want_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t want_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t want_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    uint32_t out[4];
    proa_philox(out, zero, zero);
    assert_memory_equal(out, want_zero, sizeof out);
    proa_philox(out, ones, ones);
    assert_memory_equal(out, want_ones, sizeof out);
    proa_philox(out, pi, pi_key);
    assert_memory_equal(out, want_pi, sizeof out);
    assert_true(proa_sampler_uniform(0, 0) == (double)(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
    assert_true(proa_sampler_uniform(0, 1) != proa_sampler_uniform(0, 0));
    assert_true(proa_sampler_uniform(1ull << 32, 0) != proa_sampler_uniform(0, 0));
}

/* What has no weight is not drawn, at neither end of u. */
static void test_pick_edges(void **state)
{
    (void)state;
    proa_sampler_scratch s;
    proa_sampler_init(&s, 5);
    const float weight[] = {0, 1, 0, 0x1p-30F, 0};
    const int32_t id[] = {10, 11, 12, 13, 14};
    memcpy(s.weight, weight, sizeof weight);
    memcpy(s.id, id, sizeof id);
    assert_int_equal(proa_sampler_pick(&s, 5, 0), 11);
    assert_int_equal(proa_sampler_pick(&s, 5, 1 / (1 + 0x1p-30)), 13); /* the end of 11's share is 13's beginning */
    assert_int_equal(proa_sampler_pick(&s, 5, 1 - 0x1p-29), 11);
    assert_int_equal(proa_sampler_pick(&s, 5, 1 - 0x1p-53), 13);
    proa_sampler_release(&s);
}

/* Draws of the race have their distribution, and two distributions choose the same token as often as is promised. */
static void test_race(void **state)
{
    enum { N = 40, DRAWS = 20000 };
    (void)state;
    proa_sampler_scratch s, other;
    double p[N], q[N], sum = 0, other_sum = 0, common = 0;
    int seen[N] = {0}, same = 0, same_pick = 0;
    proa_sampler_init(&s, N), proa_sampler_init(&other, N);
    for (int i = 0; i < N; i++) {
        s.id[i] = other.id[i] = 3 * i;
        s.weight[i] = i % 9 == 4 ? 0 : (float)exp(3 * random_unit());
        other.weight[i] = s.weight[i] * (float)exp(random_unit() - 0.5);
        sum += (double)s.weight[i], other_sum += (double)other.weight[i];
    }
    for (int i = 0; i < N; i++) {
        p[i] = (double)s.weight[i] / sum, q[i] = (double)other.weight[i] / other_sum;
        common += p[i] < q[i] ? p[i] : q[i];
    }
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = proa_sampler_race(&s, N, 5, i);
        double u = proa_sampler_uniform(5, i);
        seen[id / 3]++;
        same += id == proa_sampler_race(&other, N, 5, i);
        same_pick += proa_sampler_pick(&s, N, u) == proa_sampler_pick(&other, N, u);
        assert_int_equal(id, proa_sampler_race(&s, N, 5, i));
    }
    expect_distribution(seen, p, N, DRAWS);
    assert_true(same > DRAWS * common / (2 - common) && same < DRAWS * (common + 0.02));
    assert_true(same > same_pick + DRAWS / 10);
    proa_sampler_release(&s), proa_sampler_release(&other);
}

/* The draw depends on seed and position alone, not on what the scratch saw before. */
static void test_same_seed(void **state)
{
    (void)state;
    float row[ROW];
    for (int i = 0; i < ROW; i++) row[i] = (float)(4 * random_unit());
    proa_sampler_scratch a, b;
    proa_sampler_init(&a, ROW);
    proa_sampler_init(&b, 2 * ROW);
    proa_options o = {.temperature = 1, .top_p = 0.95F, .seed = 42, .logprobs = true};
    int differ = 0;
    uint64_t allocations = proa_alloc_count();
    for (int i = 0; i < 200; i++) {
        proa_options other = o;
        other.seed = 43;
        proa_sample x = choose(&a, row, ROW, i, &o);
        (void)choose(&b, row, ROW, 199 - i, &other);
        proa_sample y = choose(&b, row, ROW, i, &o);
        assert_memory_equal(&x, &y, sizeof x);
        assert_true(x.logprob == proa_sampler_logprob(row, ROW, x.id));
        proa_sample z = choose(&b, row, ROW, i, &other);
        differ += z.id != x.id;
    }
    assert_int_equal(proa_alloc_count(), allocations);
    assert_true(differ > 150);
    proa_sampler_release(&a);
    proa_sampler_release(&b);
}

static void expect_refused(const float *row, int n, float temperature, const char *text)
{
    proa_sampler_scratch s;
    proa_sampler_init(&s, n);
    proa_err err = {0};
    proa_options o = {.temperature = temperature};
    proa_sampler_row bad = {.logits = row, .position = 9, .options = &o, .err = &err};
    assert_int_equal(proa_sampler_choose(&s, &bad, n), PROA_INTERNAL);
    assert_non_null(strstr(err.text, text));
    proa_sampler_release(&s);
}

static void test_not_numbers(void **state)
{
    (void)state;
    float row[40] = {0};
    for (int at = 0; at < 40; at += 13)
        for (int t = 0; t < 2; t++) {
            char text[64];
            row[at] = NAN;
            snprintf(text, sizeof text, "logits are not numbers: nan at id %d of 40, position 9", at);
            expect_refused(row, 40, (float)t, text);
            row[at] = INFINITY;
            snprintf(text, sizeof text, "logits are not numbers: inf at id %d of 40", at);
            expect_refused(row, 40, (float)t, text);
            row[at] = 0;
        }
    const float none[3] = {-INFINITY, -INFINITY, -INFINITY}, mixed[3] = {-INFINITY, NAN, -INFINITY};
    expect_refused(none, 3, 1, "all 3 of position 9 are -inf");
    expect_refused(mixed, 3, 1, "nan at id 1");
}

/* The op that a device draws with: its reference gives the tokens that the sampler gives. */
static void test_choice(void **state)
{
    (void)state;
    enum { COLS = 3000, ROWS = 400 };
    static const proa_options all[] = {
        {.temperature = 0},
        {.temperature = 1},
        {.temperature = 0.8F, .top_k = 50},
        {.temperature = 1.3F, .top_k = 2500},
        {.temperature = 0.7F, .top_p = 0.9F},
        {.temperature = 1, .top_p = 0.8F, .top_k = 30, .min_p = 0.02F},
        {.temperature = 1, .min_p = 0.1F},
        {.style = PROA_STYLE_FT, .top_k = 7},
        {.style = PROA_STYLE_FT, .top_p = 0.4F},
        {.style = PROA_STYLE_TRTLLM, .top_k = 90, .top_p = 0.75F},
        /* the edges of the ranges */
        {.temperature = 1, .given = {[PROA_OPTION_top_p] = true}},
        {.temperature = 1, .top_p = 1e-6F},
        {.temperature = 1, .top_p = 0.99999994F},
        {.temperature = 1, .min_p = 1e-45F},
        {.temperature = 1, .min_p = 1},
        {.temperature = 1e-45F},
        {.temperature = 1e-38F, .top_p = 0.9F},
        {.temperature = 1e4F, .top_k = 50},
        {.temperature = 1, .top_k = PROA_VOCAB_MAX},
        {.style = PROA_STYLE_FT, .top_p = 1e-6F},
        {.style = PROA_STYLE_FT, .top_p = 0.99999994F},
        {.style = PROA_STYLE_TRTLLM, .top_k = 20, .top_p = 1e-45F},
    };
    static float row[COLS];
    proa_sampler_scratch s;
    proa_sampler_init(&s, COLS);
    proa_ctx c = {.ops = proa_ops_cpu(PROA_ISA_GENERIC)};
    for (int i = 0; i < ROWS; i++) {
        proa_options o = all[(size_t)i % PROA_COUNT(all)];
        proa_sample right;
        proa_sample_params how;
        int32_t id;
        float sum;
        o.seed = (uint64_t)i;
        for (int j = 0; j < COLS; j++)
            row[j] = (float)(random_unit() * 12 + random_unit() * random_unit() * 6);
        for (int j = 0; j < COLS && i % 3 == 0; j++) row[j] = rintf(row[j] * 2); /* ties */
        assert_true(proa_sampler_choice(&how, &o));
        how.uniform = proa_sampler_uniform(o.seed, i);
        right = choose(&s, row, COLS, i, &o);
        c.ops->decode->sample(&c, &id, &sum, proa_view_2d(row, PROA_DTYPE_F32, 1, COLS), &how);
        if (id != right.id) fail_msg("row %d: id %d, not %d", i, (int)id, (int)right.id);
    }
    proa_sample_params how;
    assert_false(proa_sampler_choice(&how, &(proa_options){.temperature = 1, .typical_p = 0.5F}));
    assert_false(
        proa_sampler_choice(&how, &(proa_options){.temperature = 1, .top_p = 0.9F, .top_p_decay = 0.9F}));
    proa_sampler_release(&s);
}

/* Values at the ends of f32, and temperatures at both. */
static void test_extremes(void **state)
{
    (void)state;
    const float row[] = {-INFINITY, 3e38F, -3e38F, 1e-40F, -1e-40F, 0, 2.9e38F, 3e38F};
    const float small[] = {-9, -INFINITY, -8, -8.5F};
    proa_sampler_scratch s;
    proa_sampler_init(&s, 8);
    for (int i = 0; i < 500; i++) {
        proa_sample got;
        proa_options o = {.temperature = 1, .seed = (uint64_t)i, .top_p = i % 3 ? 0.99F : 0, .top_k = i % 5};
        got = choose(&s, row, 8, i, &o);
        assert_true(got.id == 1 || got.id == 7);
        o.temperature = 1e-45F;
        got = choose(&s, small, 4, i, &o);
        assert_int_equal(got.id, 2);
        o.temperature = 3e38F;
        got = choose(&s, small, 4, i, &o);
        assert_int_not_equal(got.id, 1);
        o.temperature = 1;
        o.top_p = 1e-12F; /* its threshold rounds to 1: the likeliest alone stays */
        got = choose(&s, small, 4, i, &o);
        assert_int_equal(got.id, 2);
    }
    proa_sampler_release(&s);
}

/* Of a sampled beam: pairs drawn without replacement, (i, j) with the probability p_i p_j / (1 - p_i). */
static void test_candidates(void **state)
{
    (void)state;
    enum { N = 4, DRAWS = 20000 };
    const double p[N] = {0.5, 0.3, 0.15, 0.05};
    proa_options o = {.beams = 2, .temperature = 2};
    int seen[N][N] = {{0}};
    proa_sampler_scratch s;
    proa_sampler_init(&s, N);
    for (int d = 0; d < DRAWS; d++) {
        int32_t ids[2];
        float row[N], values[2], numbers[2];
        for (int i = 0; i < N; i++) row[i] = (float)(2 * log(p[i])); /* over the temperature: log p */
        const proa_drawn_candidates out = {ids, values, numbers, 2};
        const proa_sampler_row how = {.position = 7, .options = &o, .seed = (uint64_t)d};
        assert_int_equal(proa_sampler_candidates(&s, &out, row, N, &how), PROA_OK);
        assert_true(values[0] + numbers[0] >= values[1] + numbers[1]);
        assert_float_equal(values[0], log(p[ids[0]]), 1e-5);
        assert_float_equal(row[ids[1]], values[1], 0);
        seen[ids[0]][ids[1]]++;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double expected = i == j ? 0 : DRAWS * p[i] * p[j] / (1 - p[i]);
            assert_true(fabs(seen[i][j] - expected) <= 5 * sqrt(expected));
        }
    proa_sampler_release(&s);
}

/* transformers' min_tokens_to_keep: a filter that would leave one token leaves 1 + the number of end tokens to a beam,
 * and the list is filled up with values of -infinity. */
static void test_candidates_kept(void **state)
{
    (void)state;
    enum { N = 6, M = 5 };
    const proa_options filters[] = {{.top_k = 1},         {.top_p = 0.1F},          {.min_p = 0.99F},
                                    {.typical_p = 0.01F}, {.epsilon_cutoff = 0.9F}, {.eta_cutoff = 0.9F}};
    proa_sampler_scratch s;
    proa_sampler_init(&s, N);
    for (size_t f = 0; f < PROA_COUNT(filters); f++) {
        proa_options o = filters[f];
        int32_t ids[M];
        float row[N] = {3, 2, 1, 0, -1, -2}, values[M], numbers[M];
        int kept = 0;
        o.beams = 2, o.temperature = 1, o.end_ids_count = 2;
        const proa_drawn_candidates out = {ids, values, numbers, M};
        const proa_sampler_row how = {.options = &o, .seed = 1};
        assert_int_equal(proa_sampler_candidates(&s, &out, row, N, &how), PROA_OK);
        for (int i = 0; i < N; i++) kept += row[i] > -INFINITY;
        if (kept != 3) fail_msg("filter %zu leaves %d tokens", f, kept);
        for (int i = 0; i < M; i++) assert_true((values[i] > -INFINITY) == (i < 3));
    }
    float bad[N] = {0, NAN}, none_left[N], values[M], numbers[M];
    int32_t ids[M];
    proa_options o = {.beams = 2, .temperature = 1};
    const proa_drawn_candidates out = {ids, values, numbers, M};
    const proa_sampler_row how = {.options = &o, .seed = 1};
    for (int i = 0; i < N; i++) none_left[i] = -INFINITY;
    assert_int_equal(proa_sampler_candidates(&s, &out, bad, N, &how), PROA_INTERNAL);
    assert_int_equal(proa_sampler_candidates(&s, &out, none_left, N, &how), PROA_OK);
    for (int i = 0; i < M; i++) assert_true(values[i] == -INFINITY && ids[i] >= 0 && ids[i] < N);
    proa_sampler_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_logprob),
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_filter_against_sorting),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_pick_edges),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_candidates_kept),
        cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_not_numbers),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
