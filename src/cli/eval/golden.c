/* SPDX-License-Identifier: Apache-2.0
 * golden.c - compares with a reference implementation's outputs, case by case.
 * A golden file is {"cases":[...]} (tiny models), {"greedy":[...],"nll":[...]} (language models with text), or a plain
 * list (translators). A case says by its keys what it wants compared; tests/golden/README.md lists them.
 * Way in:  proa_eval_golden, check_case. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "cli/eval/cmd_eval.h"
#include "cli/eval/golden.h"
#include "cli/lines.h"
#include "cli/result.h"
#include <math.h>
#include <string.h>

enum { GOLDEN_BYTES_MAX = 64 << 20, PENDING_TOKENS = 32 };

static proa_status read_ids(int32_t **ids, int64_t *count, const proa_json *array, const char *what, proa_err *err)
{
    *count = proa_json_len(array);
    *ids = proa_malloc((size_t)(*count + 1) * sizeof **ids);
    for (int64_t i = 0; i < *count; i++) {
        int64_t id = proa_json_int(proa_json_at(array, i));
        if (id < 0 || id > INT32_MAX)
            return PROA_FAIL(err, CORRUPT, "%s[%lld] is not a token id", what, (long long)i);
        (*ids)[i] = (int32_t)id;
    }
    return PROA_OK;
}

/* The length up to and including the first end token; the rest is padding. */
static int64_t unpadded_count(const int32_t *ids, int64_t count, int32_t eos)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == eos) return i + 1;
    return count;
}

static void compare_row(proa_golden_case *c, const proa_json *golden, const float *row, int64_t columns)
{
    if (proa_json_len(golden) != columns || !row) {
        c->diff = (double)INFINITY;
        return;
    }
    for (int64_t i = 0; i < columns; i++) {
        double want = proa_json_double(proa_json_at(golden, i)), diff = fabs(want - (double)row[i]);
        if (!(diff <= c->diff)) c->diff = isnan(diff) ? (double)INFINITY : diff;
        if (fabs(want) > c->largest) c->largest = fabs(want);
    }
    c->has_rows = true;
}

static void compare_rows(proa_golden_case *c, const proa_json *golden, const proa_result *r)
{
    if (!golden) return;
    bool nested = proa_json_kind(proa_json_at(golden, 0)) == PROA_JSON_ARRAY;
    int64_t count = nested ? proa_json_len(golden) : 1;
    if (count != r->rows_count) c->diff = (double)INFINITY, c->has_rows = true;
    for (int64_t i = 0; i < count && i < r->rows_count; i++)
        compare_row(c, nested ? proa_json_at(golden, i) : golden, r->rows + i * r->columns, r->columns);
}

/* The case's token types, if it has some. */
static proa_status read_types(int32_t **types, const proa_golden_case *c, const proa_json *j, proa_err *err)
{
    int64_t count = 0;
    if (!proa_json_get(j, "token_type_ids")) return PROA_OK;
    PROA_TRY(read_ids(types, &count, proa_json_get(j, "token_type_ids"), "token_type_ids", err));
    if (count == c->ids_count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "token_type_ids and input_ids have different lengths");
}

/* Runs one forward pass over the given ids and compares every row that the reference has. */
static proa_status check_rows(proa_golden *g, proa_golden_case *c, const proa_json *j, proa_err *err)
{
    const proa_json *first = proa_json_get(j, "logits_first"), *last = proa_json_get(j, "logits_last");
    const proa_json *all = proa_json_get(j, "logits"), *hidden = proa_json_get(j, "last_hidden_state");
    const proa_json *pooler = proa_json_get(j, "pooler");
    if (!first && !last && !all && !hidden && !pooler) return PROA_OK;
    int32_t *decoder_ids = NULL, *type_ids = NULL;
    proa_request request = {.task = PROA_TASK_ROWS, .ids = c->ids, .ids_count = c->ids_count};
    proa_result r;
    proa_result_init(&r);
    proa_status status = PROA_OK;
    if (proa_json_get(j, "decoder_input_ids")) {
        status = read_ids(&decoder_ids, &request.decoder_ids_count, proa_json_get(j, "decoder_input_ids"),
                          "decoder_input_ids", err);
        request.decoder_ids = decoder_ids;
    }
    if (status == PROA_OK) status = read_types(&type_ids, c, j, err);
    request.type_ids = type_ids;
    if (status == PROA_OK) status = proa_result_run(g->session->engine, &request, &r, err);
    if (status == PROA_OK && r.rows_count > 0) {
        if (first) compare_row(c, first, r.rows, r.columns);
        if (last) compare_row(c, last, r.rows + (r.rows_count - 1) * r.columns, r.columns);
        compare_rows(c, all, &r);
        compare_rows(c, hidden, &r);
        if (pooler) compare_row(c, pooler, r.pooled, r.columns);
    }
    proa_result_release(&r);
    free(decoder_ids);
    free(type_ids);
    return status;
}

/* Measures how close the choice was where two token lists differ: the gap between the two best logits after
 * the common part. */
static proa_status measure_gap(proa_golden *g, proa_golden_case *c, const int32_t *tokens, int64_t common,
                               proa_err *err)
{
    bool s2s = g->session->info.kind == PROA_KIND_ENCODER_DECODER;
    int64_t head = s2s ? 1 : c->ids_count, count = head + common;
    int32_t *ids = proa_malloc((size_t)(count + 1) * sizeof *ids);
    if (s2s) ids[0] = g->session->info.decoder_start_id;
    else memcpy(ids, c->ids, (size_t)head * sizeof *ids);
    memcpy(ids + head, tokens, (size_t)common * sizeof *ids);
    proa_request request = {
        .task = PROA_TASK_ROWS, .ids = s2s ? c->ids : ids, .ids_count = s2s ? c->ids_count : count};
    if (s2s) request.decoder_ids = ids, request.decoder_ids_count = count;
    proa_result r;
    proa_result_init(&r);
    proa_status status = proa_result_run(g->session->engine, &request, &r, err);
    float best = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < r.columns && status == PROA_OK && r.rows_count; i++) {
        float x = r.rows[(r.rows_count - 1) * r.columns + i];
        if (x > best) second = best, best = x;
        else if (x > second) second = x;
    }
    c->gap = (double)(best - second);
    proa_result_release(&r);
    free(ids);
    return status;
}

static void compare_logprobs(proa_golden_case *c, const proa_json *golden, const proa_result *r, int64_t common)
{
    c->has_logprobs = golden != NULL;
    for (int64_t i = 0; i < common && i < proa_json_len(golden); i++) {
        double diff = fabs(proa_json_double(proa_json_at(golden, i)) - (double)r->logprobs[i]);
        if (!(diff <= c->logprob_diff)) c->logprob_diff = isnan(diff) ? (double)INFINITY : diff;
    }
}

static void compare_text(proa_golden_case *c, const proa_json *golden, proa_str text)
{
    if (golden && !proa_str_eq(proa_json_str(golden), text)) c->text_differs = true;
}

/* Greedy tokens: all of them, end tokens included, as the reference wrote them. */
static proa_status check_greedy(proa_golden *g, proa_golden_case *c, const proa_json *tokens,
                                const proa_json *logprobs, const proa_json *text, proa_err *err)
{
    if (!tokens) return PROA_OK;
    int32_t *want;
    proa_result r;
    proa_result_init(&r);
    proa_status status = read_ids(&want, &c->greedy_count, tokens, "greedy tokens", err);
    proa_request request = {.ids = c->ids, .ids_count = c->ids_count};
    request.options = (proa_options){.max_tokens = (int32_t)c->greedy_count, .ignore_eos = true, .logprobs = true};
    if (status == PROA_OK) status = proa_result_run(g->session->engine, &request, &r, err);
    if (status == PROA_OK) {
        int64_t same = 0;
        while (same < r.count && same < c->greedy_count && r.ids[same] == want[same]) same++;
        c->greedy_same = same;
        compare_logprobs(c, logprobs, &r, same);
        if (same == c->greedy_count) compare_text(c, text, proa_buf_view(&r.text));
        else {
            c->greedy_want = want[same];
            c->greedy_got = same < r.count ? r.ids[same] : -1;
            status = measure_gap(g, c, want, same, err);
        }
    }
    proa_result_release(&r);
    free(want);
    return status;
}

/* The beam keys: "beam4_lp0.6", "beam4", "beam4_ids". */
typedef struct beam_key {
    int beams;
    double penalty;
} beam_key;

static bool read_beam_key(beam_key *key, proa_str name)
{
    char text[32];
    int end = 0, len = (int)name.len;
    if (name.len >= sizeof text) return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    key->penalty = 1;
    if (sscanf(text, "beam%d_lp%lf%n", &key->beams, &key->penalty, &end) == 2 && end == len)
        return key->beams > 0;
    key->penalty = 1;
    if (sscanf(text, "beam%d_ids%n", &key->beams, &end) == 1 && end == len) return key->beams > 0;
    return sscanf(text, "beam%d%n", &key->beams, &end) == 1 && end == len && key->beams > 0;
}

/* Hypothesis i of a beam key's value: {ids, score, text}, a list of such, or the ids alone. */
static const proa_json *hypothesis_at(const proa_json *value, int64_t i, const proa_json **ids)
{
    const proa_json *one = proa_json_kind(value) == PROA_JSON_OBJECT ? (i == 0 ? value : NULL)
                                                                     : proa_json_at(value, i);
    if (proa_json_kind(value) == PROA_JSON_ARRAY && proa_json_kind(proa_json_at(value, 0)) == PROA_JSON_INT) {
        *ids = i == 0 ? value : NULL;
        return NULL;
    }
    *ids = proa_json_get(one, "ids");
    return one;
}

/* Calls fn for every hypothesis of a case. */
typedef proa_status hypothesis_fn(void *arg, proa_str name, const proa_json *value, proa_err *err);
static proa_status each_beam_key(const proa_json *j, hypothesis_fn *fn, void *arg, proa_err *err)
{
    beam_key key;
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it);)
        if (read_beam_key(&key, it.key)) PROA_TRY(fn(arg, it.key, it.value, err));
    return PROA_OK;
}

/* The reference's max_new_tokens is not in the file. If some hypothesis has no end token it was cut there;
 * if all have one, any value well above the longest will do. */
static proa_status find_max_tokens(void *arg, proa_str name, const proa_json *value, proa_err *err)
{
    proa_golden *g = arg;
    const proa_json *ids;
    PROA_UNUSED(name);
    for (int64_t i = 0; (hypothesis_at(value, i, &ids), ids) != NULL; i++) {
        int32_t *list;
        int64_t count;
        proa_status status = read_ids(&list, &count, ids, "beam ids", err);
        bool s2s = g->session->info.kind == PROA_KIND_ENCODER_DECODER, ended = false;
        for (int64_t k = s2s; k < count; k++) ended |= list[k] == g->session->info.eos_id;
        free(list);
        PROA_TRY(status);
        if (!ended && count - s2s > g->cut_tokens) g->cut_tokens = (int32_t)(count - s2s);
        if (count > g->longest) g->longest = (int32_t)count;
    }
    return PROA_OK;
}

typedef struct beam_check {
    proa_golden *g;
    proa_golden_case *c;
    const proa_json *j;
} beam_check;

static proa_status compare_hypothesis(beam_check *b, const proa_json *want_ids, const proa_json *score,
                                      const proa_json *text, const int32_t *got, int64_t got_count,
                                      float got_score, proa_str got_text, proa_err *err)
{
    const proa_info *info = &b->g->session->info;
    int32_t *want;
    int64_t count;
    proa_status status = read_ids(&want, &count, want_ids, "beam ids", err);
    int64_t skip = info->kind == PROA_KIND_ENCODER_DECODER && count && want[0] == info->decoder_start_id;
    int64_t n = unpadded_count(want + skip, count - skip, info->eos_id),
            m = unpadded_count(got, got_count, info->eos_id);
    bool same = n == m && memcmp(want + skip, got, (size_t)n * sizeof *got) == 0;
    b->c->beams++;
    b->c->beams_same += same;
    if (same) compare_text(b->c, text, got_text);
    if (same && score && proa_json_kind(score) != PROA_JSON_NULL) {
        double diff = fabs(proa_json_double(score) - (double)got_score);
        if (!(diff <= b->c->score_diff)) b->c->score_diff = isnan(diff) ? (double)INFINITY : diff;
        b->c->has_scores = true;
    }
    free(want);
    return status;
}

static proa_status compare_beams(beam_check *b, proa_str name, const proa_json *value, const proa_result *r,
                                 proa_err *err)
{
    const proa_json *ids, *one;
    for (int64_t i = 0; (one = hypothesis_at(value, i, &ids), ids) != NULL; i++) {
        const proa_json *score = proa_json_get(one, "score"), *text = proa_json_get(one, "text");
        char key[40];
        if (!one) { /* the score of "beam4_ids" is in "beam4_score" */
            snprintf(key, sizeof key, "%.*s_score", (int)name.len - 4, name.ptr);
            score = proa_json_get(b->j, key);
        }
        if (i < r->beams_count) {
            const proa_hypothesis *got = &r->beams[i];
            PROA_TRY(compare_hypothesis(b, ids, score, text, got->ids, got->count, got->score,
                                        proa_str_c(got->text), err));
        } else if (i == 0) {
            PROA_TRY(compare_hypothesis(b, ids, NULL, text, r->ids, r->count, 0, proa_buf_view(&r->text), err));
        } else {
            b->c->beams++; /* fewer hypotheses than the reference has */
        }
    }
    return PROA_OK;
}

static proa_status check_beams(void *arg, proa_str name, const proa_json *value, proa_err *err)
{
    beam_check *b = arg;
    beam_key key = {0};
    if (!read_beam_key(&key, name) || key.beams > PROA_BEAMS_MAX)
        return PROA_FAIL(err, INVALID, "'%.*s': 1..%d beams", (int)name.len, name.ptr, PROA_BEAMS_MAX);
    proa_result r;
    proa_result_init(&r);
    proa_request request = {.ids = b->c->ids, .ids_count = b->c->ids_count};
    request.options = (proa_options){.given = {[PROA_OPTION_length_penalty] = true},
                                     .max_tokens = b->g->cut_tokens ? b->g->cut_tokens
                                                                    : 2 * b->g->longest + PENDING_TOKENS,
                                     .beams = key.beams,
                                     .length_penalty = (float)key.penalty};
    proa_status status = proa_result_run(b->g->session->engine, &request, &r, err);
    if (status == PROA_OK) status = compare_beams(b, name, value, &r, err);
    proa_result_release(&r);
    return status;
}

/* If a case also has the prompt as text, our tokenizer must give the reference's ids. */
static proa_status check_tokenizer(proa_golden *g, proa_golden_case *c, const proa_json *text, proa_err *err)
{
    if (!text || !g->session->info.has_tokenizer) return PROA_OK;
    int32_t *ids;
    int64_t count = 0;
    proa_status status = proa_encode_text(g->session->engine, proa_json_str(text), &ids, &count, err);
    if (status == PROA_OK)
        c->prompt_differs = count != c->ids_count || memcmp(ids, c->ids, (size_t)count * sizeof *ids) != 0;
    free(ids);
    return status;
}

static proa_status check_case(proa_golden *g, proa_golden_case *c, const proa_json *j, proa_err *err)
{
    const proa_json *prompt = proa_json_get(j, "prompt_ids"), *input = proa_json_get(j, "input_ids");
    const proa_json *ids = prompt ? prompt : input ? input : proa_json_get(j, "ids");
    if (!ids) return PROA_FAIL(err, CORRUPT, "a case has none of input_ids, prompt_ids and ids");
    PROA_TRY(read_ids(&c->ids, &c->ids_count, ids, "prompt", err));
    PROA_TRY(check_tokenizer(g, c, proa_json_get(j, prompt ? "prompt" : "text"), err));
    PROA_TRY(check_rows(g, c, j, err));
    const proa_json *greedy = proa_json_get(j, "greedy");
    if (prompt) PROA_TRY(check_greedy(g, c, proa_json_get(j, "ids"), NULL, proa_json_get(j, "text"), err));
    else PROA_TRY(check_greedy(g, c, greedy, proa_json_get(j, "greedy_logprobs"), NULL, err));
    beam_check beams = {g, c, j};
    return each_beam_key(j, check_beams, &beams, err);
}

static const proa_json *cases_of(const proa_json *root)
{
    if (proa_json_kind(root) == PROA_JSON_ARRAY) return root;
    const proa_json *cases = proa_json_get(root, "cases");
    return cases ? cases : proa_json_get(root, "greedy");
}

/* Where the reference cut its beam searches: as the file says, else at the longest hypothesis without an end token. The
 * file of a model with a forced end token must say it, since its hypotheses end with that token where they were cut. */
static proa_status find_cut_tokens(proa_golden *g, const proa_json *root, const proa_json *cases, proa_err *err)
{
    const proa_json *stated = proa_json_get(root, "max_new_tokens");
    for (int64_t i = 0; i < proa_json_len(cases); i++)
        PROA_TRY(each_beam_key(proa_json_at(cases, i), find_max_tokens, g, err));
    if (!stated) return PROA_OK;
    int64_t count = proa_json_int(stated);
    if (count < 1 || count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, CORRUPT, "max_new_tokens: 1..%d", PROA_CONTEXT_MAX);
    g->cut_tokens = (int32_t)count;
    return PROA_OK;
}

static proa_status check_all(proa_golden *g, const proa_json *root, proa_progress *progress, proa_err *err)
{
    const proa_json *cases = cases_of(root);
    int64_t limit = g->eval->limit, total = proa_json_len(cases);
    if (total == 0) return PROA_FAIL(err, CORRUPT, "no cases");
    PROA_TRY(find_cut_tokens(g, root, cases, err));
    if (limit && limit < total) total = limit;
    g->cases = proa_calloc((size_t)total, sizeof *g->cases);
    for (int64_t i = 0; i < total; i++) {
        proa_progress_show(progress, (double)i / (double)total, "case %lld of %lld", (long long)i,
                           (long long)total);
        g->count++;
        proa_status status = check_case(g, &g->cases[i], proa_json_at(cases, i), err);
        if (status != PROA_OK) {
            proa_err_prefix(err, "case %lld", (long long)i);
            return status;
        }
    }
    return PROA_OK;
}

static proa_status golden_path(char path[PROA_PATH_MAX], const char *given, proa_err *err)
{
    if (proa_dir_exists(given)) return proa_path_join(path, given, "golden.json", err);
    if (strlen(given) >= PROA_PATH_MAX) return PROA_FAIL(err, INVALID, "--golden: the path is too long");
    snprintf(path, PROA_PATH_MAX, "%s", given);
    return PROA_OK;
}

proa_status proa_eval_golden(proa_session *s, const proa_eval *e, proa_output *out, bool *passed, proa_err *err)
{
    proa_golden g = {.session = s, .eval = e};
    char path[PROA_PATH_MAX];
    proa_json *root;
    proa_progress progress;
    PROA_TRY(golden_path(path, e->golden, err));
    PROA_TRY(proa_json_load(&root, path, GOLDEN_BYTES_MAX, err));
    proa_progress_init(&progress);
    proa_status status = check_all(&g, root, &progress, err);
    if (status != PROA_OK) proa_err_prefix(err, "%s", path);
    if (status == PROA_OK) status = proa_golden_nll(&g, proa_json_get(root, "nll"), err);
    proa_progress_clear(&progress);
    if (status == PROA_OK) *passed = proa_golden_print(&g, out);
    for (int64_t i = 0; i < g.count; i++) free(g.cases[i].ids);
    free(g.cases);
    free(g.nll);
    proa_json_free(root);
    return status;
}
