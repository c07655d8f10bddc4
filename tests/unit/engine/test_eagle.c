/* SPDX-License-Identifier: Apache-2.0
 * test_eagle.c - EAGLE heads guess what the published forward passes give (tools/golden_eagle.py); their drafts change
 *                no token; what they keep in their pages; folders that must be refused. */
#include "golden_rows.h"

#include "draft_runs.h"
#include "draws.h"
#include "joint_draws.h"

#include "base/checked.h"
#include "engine/decode/tree_search.h"
#include "engine/engine.h"
#include "model/heads/eagle.h"

#include <sys/stat.h>
#include <unistd.h>

#define HEADS  GOLDEN "eagle/"
#define TARGET GOLDEN "arch/llama"

/* ---- guesses ---- */

enum { TOP = 8, ROWS = 128 };

/* Target and head over the same pages, from an empty context. */
typedef struct pair {
    proa_device *device;
    proa_pool *pool;
    proa_model *m;
    proa_eagle *h;
    proa_kv_pages pages, attached;
} pair;

static proa_batch batch_of(const int32_t *ids, int64_t first, int64_t rows, const proa_span *span)
{
    static int32_t positions[ROWS];
    static const int32_t page[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    proa_batch b = {.rows = rows, .ids = ids, .positions = positions};
    for (int64_t i = 0; i < rows; i++) positions[i] = (int32_t)(first + i);
    b.self = b.cross = (proa_spans){.span = span, .count = 1, .pages = page};
    return b;
}

/* Rows [first, first + rows) of the head; `states` are the numbers of the states. */
static void run_head(pair *p, const int32_t *ids, int64_t first, int64_t rows, const int32_t *states, bool own)
{
    proa_kv kv = proa_kv_pages_layer(&p->attached, 0);
    const proa_span span = {.rows = (int32_t)rows, .context = (int32_t)(first + rows)};
    proa_batch b = batch_of(ids, first, rows, &span);
    b.state_rows = states;
    proa_eagle_decode(p->h, &kv, &b, own);
}

static void check_step(pair *p, int32_t row, const proa_json *want)
{
    int32_t ids[TOP];
    float logprobs[TOP];
    proa_eagle_top_k(p->h, &row, 1, TOP, ids, logprobs);
    for (int k = 0; k < TOP; k++) {
        assert_int_equal(ids[k], proa_json_int(proa_json_at(proa_json_get(want, "ids"), k)));
        double logprob = proa_json_double(proa_json_at(proa_json_get(want, "logprobs"), k));
        assert_true(fabs((double)logprobs[k] - logprob) < 2e-3);
    }
}

/* The head over the whole prompt in two passes, then over its own first guesses. */
static void check_case(pair *p, const proa_json *c)
{
    int64_t n;
    int32_t *ids = golden_read_ids(proa_json_get(c, "input_ids"), &n), shifted[ROWS], rows[ROWS], states[ROWS];
    const proa_json *steps = proa_json_get(c, "steps");
    proa_kv kv[16];
    for (int32_t i = 0; i < p->m->kv_layers; i++) kv[i] = proa_kv_pages_layer(&p->pages, i);
    const proa_span span = {.rows = (int32_t)n, .context = (int32_t)n};
    proa_batch b = batch_of(ids, 0, n, &span);
    proa_model_decode(p->m, kv, &b);
    for (int32_t i = 0; i < n; i++) rows[i] = i, states[i] = i + 7;
    proa_eagle_keep(p->h, 7, rows, n);
    for (int64_t i = 0; i + 1 < n; i++) shifted[i] = ids[i + 1];
    shifted[n - 1] = (int32_t)proa_json_int(proa_json_get(c, "next"));
    run_head(p, shifted, 0, n - 1, states, false);
    run_head(p, shifted + n - 1, n - 1, 1, states + n - 1, false);
    for (int64_t i = 0; i < proa_json_len(steps); i++) {
        const int32_t last = 0, own = (int32_t)p->h->own_first + (int32_t)i;
        check_step(p, last, proa_json_at(steps, i));
        int32_t id = (int32_t)proa_json_int(proa_json_at(proa_json_get(proa_json_at(steps, i), "ids"), 0));
        proa_eagle_keep_own(p->h, i, &last, 1);
        run_head(p, &id, n + i, 1, &own, true);
    }
    free(ids);
}

static void golden(void **state)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    proa_err err = {.status = PROA_OK};
    pair p = {.pool = proa_pool_new(2)};
    proa_json *json = NULL;
    const char *name = getenv("PROA_TEST_DEVICE");
    const proa_model_options options = {
        .dtype = "f32", .kv_dtype = "f32", .rows_max = ROWS, .head_rows = 2, .sampled_rows = 8};
    snprintf(folder, sizeof folder, HEADS "%s", (const char *)*state);
    snprintf(path, sizeof path, "%s/golden.json", folder);
    assert_int_equal(proa_device_open(&p.device, name ? name : "cpu", &err), PROA_OK);
    assert_int_equal(proa_model_prepare(&p.m, TARGET, &options, p.device, p.pool, &err), PROA_OK);
    const proa_eagle_options kept = {.model = &options, .kept_max = 2 * ROWS, .own_max = ROWS};
    if (proa_eagle_prepare(&p.h, folder, p.m, &kept, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_int_equal(proa_model_load(p.m, NULL, NULL, &err), PROA_OK);
    assert_int_equal(proa_eagle_load(p.h, NULL, NULL, &err), PROA_OK);
    assert_int_equal(proa_kv_pages_init(&p.pages, p.device, 8, proa_kv_shape_of(p.m), &err), PROA_OK);
    assert_int_equal(
        proa_kv_pages_init_attached(&p.attached, &p.pages, p.device, proa_kv_shape_of(p.h->model), &err),
        PROA_OK);
    if (proa_json_load(&json, path, 1 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(json, "cases");
    assert_true(proa_json_len(cases) > 0);
    for (int64_t i = 0; i < proa_json_len(cases); i++) check_case(&p, proa_json_at(cases, i));
    proa_json_free(json);
    proa_kv_pages_detach(&p.pages, &p.attached);
    proa_kv_pages_release(&p.attached);
    proa_eagle_free(p.h);
    proa_kv_pages_release(&p.pages);
    proa_model_free(p.m);
    proa_device_close(p.device);
    proa_pool_free(p.pool);
}

/* ---- dynamic trees ---- */

static void add(proa_tree_search *t, int32_t parent, int32_t id, float p, float q)
{
    const int32_t ids[] = {id, id + 1};
    const float logprobs[] = {logf(p), logf(q)};
    proa_tree_search_add(t, parent, 2, ids, logprobs);
}

/* The likeliest candidates are run first, and the tree has the likeliest of all. */
static void trees_grow_where_guesses_are_sure(void **state)
{
    PROA_UNUSED(state);
    static proa_tree_search t;
    static proa_draft_tree tree;
    int32_t chosen[PROA_GUESSES];
    proa_tree_search_begin(&t, 4, PROA_TREE_DEPTH_MAX);
    add(&t, -1, 10, 0.6F, 0.3F);
    assert_int_equal(proa_tree_search_next(&t, chosen, 1, 0.1F), 1);
    assert_int_equal(chosen[0], 0);
    add(&t, 0, 20, 0.9F, 0.05F); /* 0.54, 0.03 */
    assert_int_equal(proa_tree_search_next(&t, chosen, 2, 0.1F), 2);
    assert_int_equal(chosen[0], 2), assert_int_equal(chosen[1], 1);
    assert_true(t.seen[1] == 3 && t.seen[2] == 4);
    add(&t, 2, 30, 0.5F, 0.4F);                                      /* 0.27, 0.216 */
    add(&t, 1, 40, 0.97F, 0.01F);                                    /* 0.291 */
    assert_int_equal(proa_tree_search_next(&t, chosen, 8, 0.6F), 0); /* too little together */
    assert_int_equal(proa_tree_search_next(&t, chosen, 8, 0.1F), 1); /* the size bounds the rows */
    proa_tree_search_finish(&t, &tree, 100);
    assert_int_equal(tree.count, 4);
    const int32_t ids[] = {10, 20, 11, 40}, parents[] = {-1, 0, -1, 2}, depths[] = {1, 2, 1, 2};
    for (int j = 0; j < 4; j++) {
        assert_int_equal(tree.id[j], ids[j]);
        assert_int_equal(tree.parent[j], parents[j]);
        assert_int_equal(tree.depth[j], depths[j]);
    }
    assert_true(tree.seen[3] == 0xC && tree.first == 100);
    const float nothing[] = {-INFINITY, NAN};
    const int32_t two[] = {1, 2};
    proa_tree_search_begin(&t, 4, 2);
    proa_tree_search_add(&t, -1, 2, two, nothing);
    assert_int_equal(t.count, 0);
}

/* ---- texts ---- */

/* A device samples sequences_max rows in a pass, draft tokens among them. */
static const proa_engine_options roomy = {.threads = 2, .sequences_max = 64, .kv_tokens = 32768};
static const proa_engine_options few = {.threads = 1, .sequences_max = 16, .kv_tokens = 8192, .draft_tokens = 3};
static const proa_engine_options tight = {.threads = 2, .sequences_max = 16, .kv_tokens = 448, .step_tokens = 40};

/* With heads and without. The kind of the heads is found by itself. */
static proa_stats compare(const char *heads, proa_engine_options options)
{
    options.draft_model = heads;
    proa_stats stats = compare_with_none(TARGET, options);
    assert_true(stats.drafted > stats.accepted);
    return stats;
}

static void drafts_change_no_token(void **state)
{
    PROA_UNUSED(state);
    assert_true(compare(HEADS "one", roomy).accepted > 20);
    assert_true(compare(HEADS "three", roomy).accepted > 20);
    assert_true(compare(HEADS "one_published", roomy).accepted > 20);
    assert_true(compare(HEADS "three_published", roomy).accepted > 20);
    compare(HEADS "one", few);
    assert_true(compare(HEADS "one", tight).preemptions > 0);
    compare(HEADS "three", tight);
}

static void tokens_in_flight_wait(void **state)
{
    PROA_UNUSED(state);
    setenv("PROA_AHEAD", "1", 1);
    assert_true(compare(HEADS "one", roomy).accepted > 0);
    assert_true(compare(HEADS "three", roomy).accepted > 0);
    compare(HEADS "one", tight);
    unsetenv("PROA_AHEAD");
}

/* ---- pages ---- */

static proa_engine *open_with(const char *heads, proa_engine_options options)
{
    options.draft_model = heads;
    return open_or_fail(TARGET, &options);
}

static void fill_prompt(int32_t *ids, int64_t count, int32_t seed)
{
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)((seed + i * i * 7 + i * 13) % 90 + 3);
}

/* The head's keys and values in the first page, after a sequence of this request has ended. */
static char *run_and_copy(proa_engine *e, proa_request r, outcome *o)
{
    run_with_drafts(e, r, o);
    const proa_kv_pages *p = e->pages.attached;
    char *copy = malloc((size_t)(2 * p->layers * p->block_bytes));
    for (int64_t i = 0; i < 2 * p->layers; i++)
        memcpy(copy + i * p->block_bytes, p->memory + i * p->count * p->block_bytes, (size_t)p->block_bytes);
    return copy;
}

/* What is behind wrong draft tokens is run again: after many of them the head has what it has after a prompt with these
 * tokens. */
static void pages_hold_the_right_tokens(void **state)
{
    enum { FIRST = 20, ALL = 80 };
    static const char *const heads[] = {HEADS "one", HEADS "three"};
    PROA_UNUSED(state);
    if (getenv("PROA_TEST_DEVICE")) skip(); /* it reads the pages, which are the device's there */
    for (size_t i = 0; i < PROA_COUNT(heads); i++) {
        outcome drafted = {0}, given = {0};
        int32_t ids[ALL];
        proa_stats stats;
        fill_prompt(ids, FIRST, 1);
        proa_request r = {.ids = ids, .ids_count = FIRST};
        r.options.max_tokens = ALL - FIRST, r.options.ignore_eos = true;
        proa_engine *e = open_with(heads[i], roomy);
        char *a = run_and_copy(e, r, &drafted);
        proa_engine_stats(e, &stats);
        assert_true(stats.accepted > 0 && stats.drafted > stats.accepted);
        assert_int_equal(stats.pages_cached, 1);
        int64_t bytes = 2 * e->pages.attached->layers * e->pages.attached->block_bytes;
        proa_engine_close(e);
        memcpy(ids + FIRST, drafted.ids, (ALL - FIRST) * sizeof *ids);
        r.ids_count = ALL, r.options.max_tokens = 1;
        e = open_with(heads[i], roomy);
        char *b = run_and_copy(e, r, &given);
        assert_memory_equal(a, b, (size_t)bytes);
        proa_engine_close(e);
        free(a), free(b);
        outcome_release(&drafted), outcome_release(&given);
    }
}

/* A prompt whose pages are cached, also one that ends with a page, drafts as before; so do sequences of one prompt. */
static void cached_prompts_draft(void **state)
{
    static const int64_t counts[] = {70, 64};
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(counts); i++) {
        int32_t ids[70];
        outcome without = {0}, o[3] = {{0}};
        proa_stats stats, before;
        fill_prompt(ids, counts[i], 4);
        proa_request r = {.ids = ids, .ids_count = counts[i]};
        r.options.max_tokens = 20, r.options.ignore_eos = true, r.options.logprobs = true;
        proa_engine *e = open_with(HEADS "three", roomy);
        r.options.speculation = "none";
        run_with_drafts(e, r, &without);
        r.options.speculation = NULL;
        for (int k = 0; k < 3; k++) {
            proa_engine_stats(e, &before);
            r.options.n = k == 2 ? 4 : 0;
            run_with_drafts(e, r, &o[k]);
            proa_engine_stats(e, &stats);
            assert_true(stats.drafted > before.drafted);
            for (int s = 0; s < (k == 2 ? 4 : 1); s++)
                assert_memory_equal(k == 2 ? o[k].beam_ids[s] : o[k].ids, without.ids, 20 * sizeof(int32_t));
        }
        assert_true(counts[i] == 64 || stats.prefix_hits >= 64);
        assert_int_equal(stats.pages_used, 0);
        proa_engine_close(e);
        outcome_release(&without);
        for (int k = 0; k < 3; k++) outcome_release(&o[k]);
    }
}

/* Sequences that do not draft leave states behind, which are run in pieces; a try after a long time finds them. */
static void a_pause_loses_no_state(void **state)
{
    PROA_UNUSED(state);
    int32_t ids[8];
    outcome o = {0};
    fill_prompt(ids, 8, 2);
    proa_engine *e = open_with(HEADS "one", few);
    proa_request r = {.ids = ids, .ids_count = 8};
    r.options.max_tokens = 80, r.options.ignore_eos = true;
    submit_or_fail(e, r, &o);
    for (int step = 0; proa_engine_step(e); step++) {
        const proa_engine_request *req = e->running.first;
        double ns = step < 40 ? 1 : 1e15; /* a pass without drafts seems to take no time at first */
        e->speculation.times.ns[1] = ns;
        for (int i = 2; i < PROA_DRAFT_SLOTS; i++) e->speculation.times.ns[i] = 1e15;
        if (!req) continue;
        assert_int_equal(req->seq[0].draft_length + req->seq[0].states->count, req->seq[0].length);
        assert_true(req->seq[0].states->count <= 17);
    }
    proa_stats stats;
    proa_engine_stats(e, &stats);
    assert_true(o.done && stats.drafted > 0);
    outcome_release(&o);
    proa_engine_close(e);
}

static void drafted_samples_have_their_distribution(void **state)
{
    int32_t ids[8];
    proa_stats stats;
    PROA_UNUSED(state);
    if (getenv("PROA_TEST_TP") || getenv("PROA_TEST_PP")) skip(); /* thousands of draws, of the same logits */
    proa_engine *e = open_with(HEADS "three", few);
    fill_prompt(ids, 5, 30); /* behind which the head is right at times */
    expect_joint_distribution(e, ids, run_with_drafts);
    proa_engine_stats(e, &stats);
    assert_true(stats.accepted > JOINT_DRAWN / 8 && stats.drafted > JOINT_DRAWN / 2);
    proa_engine_close(e);
}

/* ---- options of a request ---- */

static uint64_t drafted_by(proa_engine *e, proa_request r)
{
    proa_stats before, after;
    outcome o = {0};
    proa_engine_stats(e, &before);
    run_with_drafts(e, r, &o);
    proa_engine_stats(e, &after);
    outcome_release(&o);
    return after.drafted - before.drafted;
}

static void requests_choose(void **state)
{
    PROA_UNUSED(state);
    int32_t ids[10];
    outcome o = {0};
    proa_err err = {.status = PROA_OK};
    fill_prompt(ids, 10, 2);
    proa_request r = {.ids = ids, .ids_count = 10};
    r.options.max_tokens = 30, r.options.ignore_eos = true;
    proa_engine_options options = roomy;
    options.speculation = "none";
    proa_engine *e = open_with(HEADS "one", options);
    assert_int_equal(drafted_by(e, r), 0);
    r.options.speculation = "eagle";
    uint64_t all = drafted_by(e, r);
    r.options.draft_tokens = 2;
    uint64_t two = drafted_by(e, r);
    assert_true(two > 0 && two <= 60 && all > two);
    r.options.speculation = "medusa", r.on_event = collect, r.arg = &o;
    assert_int_equal(proa_engine_submit(e, &r, NULL, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "the model has no Medusa heads"));
    proa_engine_close(e);
    e = open_or_fail(TARGET, &roomy);
    r.options.speculation = "eagle", err.status = PROA_OK;
    assert_int_equal(proa_engine_submit(e, &r, NULL, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "option 'speculation' is 'eagle', but the model has no EAGLE heads"));
    proa_engine_close(e);
}

/* ---- what is refused ---- */

static void refused(const char *model, const char *speculation, const char *heads, const char *why)
{
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    const proa_engine_options options = {.speculation = speculation, .draft_model = heads};
    assert_int_not_equal(proa_engine_open(&engine, model, &options, &err), PROA_OK);
    if (!strstr(err.text, why)) fail_msg("'%s' is not in '%s'", why, err.text);
}

static void open_and_close(const char *model, const char *heads)
{
    const proa_engine_options options = {.draft_model = heads, .kv_tokens = 1024};
    proa_engine_close(open_or_fail(model, &options));
}

/* A safetensors file of zeros but for d2t, whose third number is given: an EAGLE-3 head of 8 tokens. */
static void write_heads(const char *path, int64_t third, bool d2t)
{
    static const struct {
        const char *name, *shape;
        int64_t count;
    } t[] = {{"fc.weight", "64,192", 64 * 192},
             {"midlayer.hidden_norm.weight", "64", 64},
             {"midlayer.input_layernorm.weight", "64", 64},
             {"midlayer.post_attention_layernorm.weight", "64", 64},
             {"midlayer.self_attn.q_proj.weight", "64,128", 64 * 128},
             {"midlayer.self_attn.k_proj.weight", "64,128", 64 * 128},
             {"midlayer.self_attn.v_proj.weight", "64,128", 64 * 128},
             {"midlayer.self_attn.o_proj.weight", "64,64", 64 * 64},
             {"midlayer.mlp.gate_proj.weight", "96,64", 96 * 64},
             {"midlayer.mlp.up_proj.weight", "96,64", 96 * 64},
             {"midlayer.mlp.down_proj.weight", "64,96", 96 * 64},
             {"norm.weight", "64", 64},
             {"lm_head.weight", "8,64", 8 * 64}};
    char header[4096] = "{";
    int64_t at = 0, ids[8] = {0, 0, third, 3, 3, 3, 3, 3};
    static const char zeros[4096];
    size_t size = 1;
    for (size_t i = 0; i < PROA_COUNT(t); i++) {
        size += (size_t)snprintf(header + size, sizeof header - size,
                                 "\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%lld,%lld]},",
                                 t[i].name, t[i].shape, (long long)at, (long long)(at + 4 * t[i].count));
        at += 4 * t[i].count;
    }
    size += (size_t)snprintf(header + size, sizeof header - size,
                             "\"%s\":{\"dtype\":\"I64\",\"shape\":[8],\"data_offsets\":[%lld,%lld]}}",
                             d2t ? "d2t" : "t2d", (long long)at, (long long)at + 64);
    uint64_t length = size;
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(&length, 8, 1, f), fwrite(header, 1, size, f);
    for (int64_t left = at; left > 0; left -= (int64_t)sizeof zeros)
        fwrite(zeros, 1, (size_t)proa_min64(left, (int64_t)sizeof zeros), f);
    fwrite(ids, 1, sizeof ids, f);
    fclose(f);
}

/* %s: more keys, which come after those that they replace. */
static void write_config(const char *path, const char *vocab, const char *more)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
            "\"intermediate_size\": 96, "
            "\"vocab_size\": %s, \"draft_vocab_size\": 8%s}",
            vocab, more);
    fclose(f);
}

#define TAPS(ids) ", \"eagle_aux_hidden_state_layer_ids\": " ids

static void other_heads_are_refused(void **state)
{
    PROA_UNUSED(state);
    char folder[] = "/tmp/proa-eagle-XXXXXX", config[64], file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    refused(TARGET, "eagle", folder, "there is no checkpoint with a tensor 'fc.weight'");
    write_config(config, "200", TAPS("[0, 1, 2]"));
    write_heads(file, 3, true);
    open_and_close(TARGET, folder);
    write_heads(file, 198, true);
    refused(TARGET, NULL, folder, "tensor 'd2t' has 198 at 2: the token would be outside of 0 to 199");
    write_heads(file, -3, true);
    refused(TARGET, NULL, folder, "tensor 'd2t' has -3 at 2");
    write_heads(file, 3, false);
    refused(TARGET, NULL, folder, "tensor 'd2t' is missing: 'draft_vocab_size' is 8, 'vocab_size' 200");
    write_heads(file, 3, true);
    write_config(config, "201", TAPS("[0, 1, 2]"));
    refused(TARGET, NULL, folder, "'vocab_size' is 201, that of the model is 200");
    write_config(config, "200", "");
    refused(TARGET, NULL, folder, "'eagle_aux_hidden_state_layer_ids' is needed for a model of 2 layers");
    write_config(config, "200", TAPS("[0, 1, 3]"));
    refused(TARGET, NULL, folder, "'eagle_aux_hidden_state_layer_ids' has 3, the model has 2 layers");
    write_config(config, "200", TAPS("[0, 1]"));
    refused(TARGET, NULL, folder, "'eagle_aux_hidden_state_layer_ids' has 2 entries, must have 3");
    write_config(config, "200", TAPS("[0, 1, 2], \"target_hidden_size\": 32"));
    refused(TARGET, NULL, folder, "tensor 'fc.weight' is [64, 192], expected [64, 96]");
    write_config(config, "200", TAPS("[0, 1, 2], \"norm_output\": true"));
    refused(TARGET, NULL, folder, "'norm_output' is true, which is not supported");
    refused(MODELS "classics-10m", NULL, HEADS "one", "'vocab_size' is 200, that of the model is 8192");
    refused(GOLDEN "arch/t5", "eagle", HEADS "one", "they need a causal decoder, this is a t5");
    refused(TARGET, "draft", HEADS "one", "option 'speculation' is 'draft'");
    refused(TARGET, "eagle", NULL, "needs option 'draft-model'");
    refused(HEADS "three", NULL, NULL, "holds draft heads (eagle3), which need a model");
    unlink(config), unlink(file), rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "golden one", .test_func = golden, .initial_state = (void *)(uintptr_t) "one"},
        {.name = "golden three", .test_func = golden, .initial_state = (void *)(uintptr_t) "three"},
        {.name = "golden one_published", .test_func = golden, .initial_state = (void *)(uintptr_t) "one_published"},
        {.name = "golden three_published", .test_func = golden, .initial_state = (void *)(uintptr_t) "three_published"},
        cmocka_unit_test(trees_grow_where_guesses_are_sure),
        cmocka_unit_test(drafts_change_no_token),
        cmocka_unit_test(tokens_in_flight_wait),
        cmocka_unit_test(pages_hold_the_right_tokens),
        cmocka_unit_test(cached_prompts_draft),
        cmocka_unit_test(a_pause_loses_no_state),
        cmocka_unit_test(drafted_samples_have_their_distribution),
        cmocka_unit_test(requests_choose),
        cmocka_unit_test(other_heads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
