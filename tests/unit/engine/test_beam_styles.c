/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "table_model.h"

static const proa_json *get(const proa_json *c, const char *name)
{
    const proa_json *value = proa_json_get(c, name);
    if (!value) fail_msg("no '%s' in a case", name);
    return value;
}

static proa_early early_of(const proa_json *c)
{
    proa_str early = proa_json_str(get(c, "early"));
    if (proa_str_is(early, "true")) return PROA_EARLY_TRUE;
    return proa_str_is(early, "never") ? PROA_EARLY_NEVER : PROA_EARLY_FALSE;
}

/* What all cases have. */
static proa_beam_options options_of(const proa_json *c, int32_t end_ids[PROA_EOS_MAX])
{
    const proa_json *ends = get(c, "end_ids");
    for (int64_t i = 0; i < proa_json_len(ends); i++)
        end_ids[i] = (int32_t)proa_json_int(proa_json_at(ends, i));
    return (proa_beam_options){.beams = (int32_t)proa_json_int(get(c, "beams")),
                               .vocab = proa_json_int(get(c, "vocab")),
                               .max_new = proa_json_int(get(c, "max_new")),
                               .length_penalty = (float)proa_json_double(get(c, "length_penalty")),
                               .early = early_of(c),
                               .end_ids = end_ids,
                               .end_ids_count = (int32_t)proa_json_len(ends),
                               .returned = (int32_t)proa_json_int(get(c, "returned"))};
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-5 * fmax(1, fabs(want)))) fail_msg("%.9g instead of %.9g", got, want);
}

/* transformers 4 writes the first end id, whichever came. */
static void assert_ids(proa_beam_result got, const proa_json *want, const model *m)
{
    assert_int_equal(got.count, proa_json_len(want));
    for (int64_t j = 0; j < got.count; j++) {
        int32_t id = (int32_t)proa_json_int(proa_json_at(want, j));
        bool both_end = j + 1 == got.count && is_end(m, id) && is_end(m, got.ids[j]);
        if (!both_end) assert_int_equal(got.ids[j], id);
    }
    assert_int_equal(got.finish, is_end(m, got.ids[got.count - 1]) ? PROA_FINISH_END : PROA_FINISH_LENGTH);
}

static void check_case(const proa_json *c, const proa_beam_options *o)
{
    model m = {.seed = (uint32_t)proa_json_int(get(c, "seed")),
               .vocab = (int)o->vocab,
               .grain = (int)proa_json_int(get(c, "grain")),
               .end_eighths = (int)proa_json_int(get(c, "end_eighths")),
               .end_ids = o->end_ids,
               .end_ids_count = o->end_ids_count};
    const proa_json *ids = get(c, "ids"), *sums = proa_json_get(c, "sums");
    proa_beam *b;
    proa_err err = {0};
    if (proa_beam_new(&b, o, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_true(proa_beam_candidates(b) <= VOCAB && o->beams <= WIDTH);
    assert_int_equal(run_search(b, &m, o->beams, o->max_new), proa_json_int(get(c, "steps")));
    assert_int_equal(proa_beam_finish(b), proa_json_len(ids));
    for (int32_t i = 0; i < proa_json_len(ids); i++) {
        proa_beam_result got = proa_beam_get(b, i);
        assert_ids(got, proa_json_at(ids, i), &m);
        assert_near((double)got.score, proa_json_double(proa_json_at(get(c, "scores"), i)));
        if (sums) assert_near(got.logprob_sum, proa_json_double(proa_json_at(sums, i)));
    }
    proa_beam_free(b);
}

static proa_json *load(const char *path, int64_t count)
{
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, path, PROA_MIB, &err)) fail_msg("%s", err.text);
    assert_int_equal(proa_json_len(proa_json_get(root, "cases")), count);
    return root;
}

static void test_ft_and_trtllm(void **state)
{
    (void)state;
    proa_json *root = load(PROA_SOURCE_DIR "/tests/golden/beam_styles.json", 420);
    for (int64_t i = 0; i < 420; i++) {
        const proa_json *c = proa_json_at(proa_json_get(root, "cases"), i);
        int32_t end_ids[PROA_EOS_MAX];
        proa_beam_options o = options_of(c, end_ids);
        o.style = proa_str_is(proa_json_str(get(c, "style")), "ft") ? PROA_STYLE_FT : PROA_STYLE_TRTLLM;
        o.pool = proa_json_bool(get(c, "with_pool"));
        o.diversity_rate = (float)proa_json_double(get(c, "diversity_rate"));
        o.prompt_tokens = proa_json_int(get(c, "prompt_tokens"));
        check_case(c, &o);
    }
    proa_json_free(root);
}

static void test_groups(void **state)
{
    (void)state;
    proa_json *root = load(PROA_SOURCE_DIR "/tests/golden/beam_groups.json", 160);
    for (int64_t i = 0; i < 160; i++) {
        const proa_json *c = proa_json_at(proa_json_get(root, "cases"), i);
        int32_t end_ids[PROA_EOS_MAX];
        proa_beam_options o = options_of(c, end_ids);
        o.groups = (int32_t)proa_json_int(get(c, "groups"));
        o.diversity_penalty = (float)proa_json_double(get(c, "diversity_penalty"));
        o.pad_id = (int32_t)proa_json_int(get(c, "pad_id"));
        check_case(c, &o);
    }
    proa_json_free(root);
}

/* All groups see the same list and the penalty is high: each must come down to what the others left, and the list is
 * just long enough for the last one. */
static void test_groups_go_down_the_list(void **state)
{
    (void)state;
    proa_beam_options o = {.beams = 12, .vocab = 100, .max_new = 5, .groups = 4, .diversity_penalty = 100};
    proa_beam *b;
    bool more;
    int32_t parent[12], token[12], tokens[15];
    float logprobs[15];
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(proa_beam_candidates(b), 6 + 9);
    for (int32_t i = 0; i < 15; i++) tokens[i] = 90 - i, logprobs[i] = -1 - (float)i;
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, logprobs, NULL}, NULL),
        PROA_OK);
    for (int32_t i = 0; i < 12; i++) {
        assert_int_equal(token[i], 90 - i);
        assert_int_equal(parent[i], i / 3 * 3);
    }
    proa_beam_free(b);
}

/* ---- wide: every choice of a step against a sort of all candidates ---- */

typedef struct flat {
    float key;
    int32_t parent, tie, token;
} flat;

static int by_rank(const void *x, const void *y)
{
    const flat *a = x, *b = y;
    if (a->key > b->key || a->key < b->key) return a->key > b->key ? -1 : 1;
    if (a->parent != b->parent) return a->parent < b->parent ? -1 : 1;
    return (a->tie > b->tie) - (a->tie < b->tie);
}

static void fill_lists(int32_t *tokens, float *logprobs, int64_t K, int64_t M, uint32_t seed)
{
    for (int64_t i = 0; i < K; i++) {
        float value = 0;
        for (int64_t j = 0; j < M; j++) {
            uint32_t x = mix(seed ^ (uint32_t)(i * 70001 + j));
            value -= (float)(x % 7) / 64;
            tokens[i * M + j] = (int32_t)(31999 - (i * 577 + j * 31) % 32000);
            logprobs[i * M + j] = value;
        }
    }
}

static void check_wide(proa_style style, float rate)
{
    const proa_beam_options o = {
        .beams = 256, .vocab = 32000, .max_new = 4, .style = style, .diversity_rate = rate, .prompt_tokens = 1};
    proa_beam *b;
    bool more;
    int32_t parent[256], token[256];
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    int64_t K = 256, M = proa_beam_candidates(b), n = 0;
    assert_int_equal(M, 512);
    int32_t *tokens = proa_calloc((size_t)(K * M), sizeof *tokens);
    float *logprobs = proa_calloc((size_t)(K * M), sizeof *logprobs);
    float score[256];
    flat *all = proa_calloc((size_t)(K * M), sizeof *all);
    fill_lists(tokens, logprobs, K, M, 1);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, logprobs, NULL}, NULL),
        PROA_OK);
    for (int64_t i = 0; i < K; i++)
        for (int64_t r = 0; r < M; r++)
            if (tokens[r] == token[i]) score[i] = logprobs[r];
    fill_lists(tokens, logprobs, K, M, 2);
    for (int32_t i = 0; i < K; i++)
        for (int32_t r = 0; r < M; r++) {
            int32_t id = tokens[i * M + r];
            float sum = logprobs[i * M + r] + score[i];
            float term = style == PROA_STYLE_TRTLLM ? (float)i : (float)(r % K);
            all[n++] = (flat){sum + rate * term, i, style == PROA_STYLE_HF ? id : r, id};
        }
    qsort(all, (size_t)n, sizeof *all, by_rank);
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, logprobs, NULL}, NULL),
        PROA_OK);
    for (int32_t i = 0; i < K; i++) {
        assert_int_equal(parent[i], all[i].parent);
        assert_int_equal(token[i], all[i].token);
    }
    free(all);
    free(logprobs);
    free(tokens);
    proa_beam_free(b);
}

static void test_wide(void **state)
{
    (void)state;
    check_wide(PROA_STYLE_HF, 0);
    check_wide(PROA_STYLE_FT, 0);
    check_wide(PROA_STYLE_FT, 0.03125F);
    check_wide(PROA_STYLE_FT, -0.03125F);
    check_wide(PROA_STYLE_TRTLLM, 0.125F);
}

/* ---- properties of all styles ---- */

static const struct {
    proa_style style;
    bool pool;
    int32_t groups;
} kinds[] = {{PROA_STYLE_HF, false, 1},
             {PROA_STYLE_HF, false, 4},
             {PROA_STYLE_FT, false, 1},
             {PROA_STYLE_FT, true, 1},
             {PROA_STYLE_TRTLLM, false, 1}};

static void test_one_beam_is_greedy(void **state)
{
    (void)state;
    const int32_t end_ids[] = {3};
    for (uint32_t seed = 0; seed < 400; seed++) {
        model m = {
            .seed = seed, .vocab = 40, .grain = 16, .end_eighths = 2, .end_ids = end_ids, .end_ids_count = 1};
        proa_beam_options o = {.beams = 1,
                               .vocab = 40,
                               .max_new = 50,
                               .length_penalty = 1,
                               .end_ids = end_ids,
                               .end_ids_count = 1,
                               .early = seed % 2 ? PROA_EARLY_TRUE : PROA_EARLY_FALSE,
                               .style = kinds[2 + seed % 3].style,
                               .pool = kinds[2 + seed % 3].pool,
                               .diversity_rate = 0.25F,
                               .prompt_tokens = 1};
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        run_search(b, &m, o.beams, o.max_new);
        assert_int_equal(proa_beam_finish(b), 1);
        proa_beam_result got = proa_beam_get(b, 0);
        uint32_t at = mix(seed);
        int64_t n = 0;
        for (int32_t token = 0; n < o.max_new && !(n && token == 3); n++) {
            float value;
            top_row(&m, at, 1, &token, &value);
            assert_in_range(n, 0, got.count - 1);
            assert_int_equal(token, got.ids[n]);
            at = follow(at, token);
        }
        assert_int_equal(n, got.count);
        assert_near(got.logprob_sum / (double)n, (double)got.score);
        proa_beam_free(b);
    }
}

static proa_beam_options some_options(size_t kind, const int32_t *end_ids)
{
    return (proa_beam_options){.beams = 8,
                               .vocab = 50,
                               .max_new = 200,
                               .length_penalty = 1,
                               .end_ids = end_ids,
                               .end_ids_count = 2,
                               .style = kinds[kind].style,
                               .pool = kinds[kind].pool,
                               .groups = kinds[kind].groups,
                               .diversity_penalty = 0.5F,
                               .diversity_rate = 0.125F,
                               .pad_id = -1,
                               .prompt_tokens = 9};
}

static void test_no_allocation(void **state)
{
    (void)state;
    const int32_t end_ids[] = {5, 9};
    model m = {.seed = 4, .vocab = 50, .grain = 18, .end_eighths = 40, .end_ids = end_ids, .end_ids_count = 2};
    for (size_t k = 0; k < PROA_COUNT(kinds); k++) {
        proa_beam_options o = some_options(k, end_ids);
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        uint64_t allocations = proa_alloc_count();
        assert_int_equal(run_search(b, &m, o.beams, 1000), 200);
        assert_int_equal(proa_beam_finish(b), 8);
        assert_int_equal(proa_beam_finish(b), 8); /* again the same */
        assert_int_equal(proa_alloc_count(), allocations);
        proa_beam_free(b);
    }
}

/* Stopped after 4 steps: as if four had been the limit. */
static void test_stopped_early(void **state)
{
    (void)state;
    const int32_t end_ids[] = {5, 9};
    for (uint32_t seed = 0; seed < 100; seed++) {
        size_t k = 1 + seed % 4; /* hf without groups ends differently at the limit: test_beam.c */
        model m = {
            .seed = seed, .vocab = 50, .grain = 18, .end_eighths = -8, .end_ids = end_ids, .end_ids_count = 2};
        proa_beam_options o = some_options(k, end_ids);
        proa_beam *b, *whole;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_int_equal(proa_beam_finish(b), 0);
        o.max_new = 4;
        assert_int_equal(proa_beam_new(&whole, &o, NULL), PROA_OK);
        assert_int_equal(run_search(b, &m, o.beams, 4), run_search(whole, &m, o.beams, 4));
        int32_t count = proa_beam_finish(b);
        assert_int_equal(count, 8);
        assert_int_equal(proa_beam_finish(whole), count);
        for (int32_t i = 0; i < count; i++) {
            proa_beam_result x = proa_beam_get(b, i), y = proa_beam_get(whole, i);
            assert_int_equal(x.count, y.count);
            assert_memory_equal(x.ids, y.ids, (size_t)x.count * sizeof *x.ids);
            assert_true(x.score == y.score && x.logprob_sum == y.logprob_sum);
        }
        proa_beam_free(whole);
        proa_beam_free(b);
    }
}

/* ---- what random cases seldom meet ---- */

typedef struct list {
    int32_t tokens[6];
    float values[6];
} list;

static bool give(proa_beam *b, const list *lists, int32_t count)
{
    int32_t tokens[WIDTH], parent[WIDTH], token[WIDTH];
    float values[WIDTH];
    int64_t M = proa_beam_candidates(b);
    bool more;
    for (int32_t i = 0; i < count; i++) {
        memcpy(tokens + i * M, lists[i].tokens, (size_t)M * sizeof *tokens);
        memcpy(values + i * M, lists[i].values, (size_t)M * sizeof *values);
    }
    assert_int_equal(
        proa_beam_advance(b, &more, parent, token, &(proa_beam_candidate_rows){tokens, values, NULL}, NULL),
        PROA_OK);
    return more;
}

/* One that is as good as the worst of a full pool takes its place. */
static void test_equal_enters_full_pool(void **state)
{
    (void)state;
    const int32_t end_ids[] = {0};
    const list first = {{1, 0, 2, 3}, {-1, -4, -4, -5}};
    const list then[] = {{{0, 4, 5, 6}, {-2, -9, -9, -9}}, {{0, 4, 5, 6}, {0, -9, -9, -9}}};
    for (int i = 0; i < 2; i++) {
        proa_beam_options o = {.beams = 2, .vocab = 9, .max_new = 9, .end_ids = end_ids, .end_ids_count = 1};
        o.style = i ? PROA_STYLE_TRTLLM : PROA_STYLE_FT;
        o.early = PROA_EARLY_TRUE;
        o.pool = true;
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_true(give(b, &first, 1));
        assert_false(give(b, then, 2));
        assert_int_equal(proa_beam_finish(b), 2);
        assert_true(proa_beam_get(b, 0).score == -3 && proa_beam_get(b, 1).score == -4);
        assert_int_equal(proa_beam_get(b, 1).count, 2);
        assert_int_equal(proa_beam_get(b, 1).ids[0], 2);
        proa_beam_free(b);
    }
}

/* hf with groups: one that is only as good as the worst of a full group stays out (BeamHypotheses.add takes what is
 * above worst_score). Both groups see the same lists, without a penalty. */
static void test_equal_stays_out_of_full_group(void **state)
{
    (void)state;
    const int32_t end_ids[] = {0};
    const list first = {{1, 0, 2, 3, 4, 5}, {-1, -2, -2.5F, -6, -7, -8}};
    const list second[] = {{{3, 0, 4, 5, 6, 7}, {-0.5F, -2, -2.5F, -20, -21, -22}},
                           {{3, 0, 4, 5, 6, 7}, {-30, -31, -32, -33, -34, -35}}};
    const list third[] = {{{0, 5, 4, 3, 6, 7}, {-1.5F, -1.75F, -20, -21, -22, -23}},
                          {{0, 5, 4, 3, 6, 7}, {-30, -31, -32, -33, -34, -35}}};
    proa_beam_options o = {
        .beams = 4, .vocab = 10, .max_new = 9, .end_ids = end_ids, .end_ids_count = 1, .groups = 2};
    proa_beam *b;
    assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
    assert_int_equal(proa_beam_candidates(b), 6);
    assert_true(give(b, &first, 1));
    assert_true(give(b, (const list[]){second[0], second[1], second[0], second[1]}, 4));
    assert_false(give(b, (const list[]){third[0], third[1], third[0], third[1]}, 4));
    assert_int_equal(proa_beam_finish(b), 4);
    for (int32_t i = 0; i < 4; i++) {
        proa_beam_result got = proa_beam_get(b, i);
        assert_true(got.score == (i < 2 ? -2 : -3));
        assert_int_equal(got.count, i < 2 ? 1 : 2); /* the equal one of the third step would have 3 */
    }
    proa_beam_free(b);
}

/* trtllm: a worse ended candidate ends the walk with TRUE; else it is passed over, and a better one may follow, since
 * the diversity term is in the rank and not in the score. */
static void test_worse_ends_the_walk(void **state)
{
    (void)state;
    const int32_t end_ids[] = {0};
    const list first = {{0, 1, 2, 3, 4, 5}, {-1, -2, -3, -4, -5, -6}};
    const list second[] = {{{6, 7, 4, 5, 3, 2}, {-1, -90, -91, -92, -93, -94}},
                           {{8, 9, 4, 5, 3, 2}, {-1, -2, -91, -92, -93, -94}},
                           {{0, 7, 4, 5, 3, 2}, {-5, -90, -91, -92, -93, -94}}};
    const list third[] = {{{0, 7, 4, 5, 3, 2}, {-1, -90, -91, -92, -93, -94}},
                          {{0, 7, 4, 5, 3, 2}, {-0.5F, -90, -91, -92, -93, -94}},
                          {{0, 7, 4, 5, 3, 2}, {-7, -90, -91, -92, -93, -94}}};
    for (int i = 0; i < 3; i++) {
        proa_beam_options o = {.beams = 3, .vocab = 10, .max_new = 9, .end_ids = end_ids, .end_ids_count = 1};
        o.style = PROA_STYLE_TRTLLM;
        o.early = (proa_early)i;
        o.diversity_rate = 4;
        proa_beam *b;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_true(give(b, &first, 1));
        assert_true(give(b, second, 3));
        give(b, third, 3);
        assert_int_equal(proa_beam_finish(b), 3);
        float scores[] = {proa_beam_get(b, 0).score, proa_beam_get(b, 1).score, proa_beam_get(b, 2).score};
        assert_true(scores[0] == -1);
        if (i == PROA_EARLY_TRUE) assert_true(scores[1] == -5.5F && scores[2] == -9);
        else assert_true(scores[1] == -5 && scores[2] == -5.5F);
        proa_beam_free(b);
    }
}

/* Two tokens can come; beams that never lived are not shown, and nothing turns into a NaN. */
static void test_few_tokens(void **state)
{
    (void)state;
    const int32_t tokens[] = {4, 7, 1, 0, 2, 3, 5, 6};
    const float masked[] = {-1, -2, -HUGE_VALF, -HUGE_VALF, -HUGE_VALF, -HUGE_VALF, -HUGE_VALF, -HUGE_VALF};
    for (size_t k = 0; k < PROA_COUNT(kinds); k++) {
        const int32_t end_ids[] = {7};
        proa_beam_options o = some_options(k, end_ids);
        o.vocab = 8;
        o.end_ids_count = 1;
        o.max_new = 3;
        proa_beam *b;
        bool more = true;
        int32_t parent[8], token[8];
        int32_t all_tokens[64];
        float all[64];
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        assert_int_equal(proa_beam_candidates(b), 8);
        for (int i = 0; i < 64; i++) all_tokens[i] = tokens[i % 8], all[i] = masked[i % 8];
        for (int step = 0; more && step < 3; step++)
            assert_int_equal(proa_beam_advance(b, &more, parent, token,
                                               &(proa_beam_candidate_rows){all_tokens, all, NULL}, NULL),
                             PROA_OK);
        assert_in_range(proa_beam_finish(b), 1, 8);
        for (int32_t i = 0; i < proa_beam_finish(b); i++) {
            proa_beam_result got = proa_beam_get(b, i);
            assert_true(isfinite(got.score) && isfinite(got.logprob_sum));
            for (int64_t j = 0; j < got.count; j++) assert_true(got.ids[j] == 4 || got.ids[j] == 7);
        }
        proa_beam_free(b);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        proa_beam_options o;
        const char *text;
    } bad[] = {
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 3}, "groups is 3, must divide the 4 beams"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 5}, "groups is 5, must lie in 0..4"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = -1}, "groups is -1"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 2, .style = PROA_STYLE_TRTLLM}, "groups is 2"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 2, .diversity_penalty = -1},
         "diversity penalty is -1, must lie in 0..1e+06"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 2, .diversity_penalty = NAN}, "penalty is"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .groups = 2, .pad_id = 9}, "padding token is 9"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .style = (proa_style)3}, "style is 3, must lie in 0..2"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .style = PROA_STYLE_TRTLLM, .diversity_rate = NAN},
         "diversity rate is"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .style = PROA_STYLE_FT, .pool = true, .diversity_rate = 2e6F},
         "diversity rate is 2e+06, must lie in -1e+06..1e+06"},
        {{.beams = 4, .vocab = 9, .max_new = 1, .style = PROA_STYLE_FT}, "prompt tokens is 0"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_beam *b = (proa_beam *)(void *)&state;
        proa_err err = {0};
        assert_int_equal(proa_beam_new(&b, &bad[i].o, &err), PROA_INVALID);
        assert_null(b);
        if (!strstr(err.text, bad[i].text)) fail_msg("'%s' instead of '%s'", err.text, bad[i].text);
        assert_int_equal(proa_beam_bytes(&bad[i].o), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ft_and_trtllm),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_go_down_the_list),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_one_beam_is_greedy),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_stopped_early),
        cmocka_unit_test(test_equal_enters_full_pool),
        cmocka_unit_test(test_equal_stays_out_of_full_group),
        cmocka_unit_test(test_worse_ends_the_walk),
        cmocka_unit_test(test_few_tokens),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
