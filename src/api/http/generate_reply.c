/* SPDX-License-Identifier: Apache-2.0
 * generate_reply.c - a typed reply in the flat JSON of the generate extension: each output is a list, or its element
 * alone if there is one. S sequences of up to L tokens are a rectangle: shorter ones are filled up, as in the tensors
 * of the backend `engine` (src/backends/llm/README.md). */
#include "api/http/generate.h"

#include "base/alloc.h"
#include "serve/generation_read.h"
#include <math.h>
#include <stdlib.h>

/* One output while its elements are written. */
typedef struct list {
    proa_buf *out;
    const char *name;
    int64_t count, written;
} list;

static list begin_list(proa_buf *out, const char *name, int64_t count)
{
    proa_buf_char(out, ',');
    proa_buf_json_str(out, proa_str_c(name));
    proa_buf_char(out, ':');
    if (count != 1) proa_buf_char(out, '[');
    return (list){out, name, count, 0};
}

static void next_element(list *l)
{
    if (l->written++) proa_buf_char(l->out, ',');
}

static proa_status end_list(const list *l, proa_err *err)
{
    if (l->count != 1) proa_buf_char(l->out, ']');
    if (l->out->full) return PROA_FAIL(err, LIMIT, "output '%s' is too large for JSON", l->name);
    return PROA_OK;
}

static void put_int(list *l, int64_t value)
{
    next_element(l);
    proa_int_json(l->out, value);
}

static void put_float(list *l, float value)
{
    next_element(l);
    proa_float_json(l->out, value);
}

static void put_text(list *l, proa_str text)
{
    next_element(l);
    proa_buf_json_str(l->out, text);
}

static proa_status one_int(proa_buf *out, const char *name, int64_t value, proa_err *err)
{
    list l = begin_list(out, name, 1);
    put_int(&l, value);
    return end_list(&l, err);
}

static proa_status floats_json(proa_buf *out, const char *name, const float *values, int64_t count, proa_err *err)
{
    list l = begin_list(out, name, count);
    for (int64_t i = 0; i < count && !out->full; i++) put_float(&l, values[i]);
    return end_list(&l, err);
}

/* ---- of sequences ---- */

static int64_t longest_of(const proa_generated *g)
{
    int64_t most = 0;
    for (int64_t i = 0; i < g->count; i++)
        if (g->sequences[i].ids_count > most) most = g->sequences[i].ids_count;
    return most;
}

/* Numbers of each token, filled up with 0. */
static proa_status rows_json(proa_buf *out, const proa_generated *g, const char *name, size_t at,
                             int64_t columns, proa_err *err)
{
    int64_t L = longest_of(g);
    list l = begin_list(out, name, g->count * L * columns);
    for (int64_t i = 0; i < g->count; i++) {
        const proa_generated_sequence *s = &g->sequences[i];
        const float *values = *(const float *const *)(const void *)((const char *)s + at);
        for (int64_t k = 0; k < L * columns && !out->full; k++)
            put_float(&l, k < s->ids_count * columns ? values[k] : 0);
    }
    return end_list(&l, err);
}

static proa_status texts_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    if (g->no_texts) return PROA_OK;
    list l = begin_list(out, "text_output", g->count);
    for (int64_t i = 0; i < g->count; i++) put_text(&l, g->sequences[i].text);
    return end_list(&l, err);
}

static proa_status ids_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    int64_t L = longest_of(g);
    list l = begin_list(out, "output_ids", g->count * L);
    for (int64_t i = 0; i < g->count; i++)
        for (int64_t k = 0; k < L; k++)
            put_int(&l, k < g->sequences[i].ids_count ? g->sequences[i].ids[k] : g->pad_id);
    return end_list(&l, err);
}

typedef int64_t sequence_number(const proa_generated_sequence *s);

static int64_t length_of(const proa_generated_sequence *s)
{
    return s->ids_count;
}

static int64_t index_of(const proa_generated_sequence *s)
{
    return s->index;
}

static int64_t tokens_of(const proa_generated_sequence *s)
{
    return s->tokens;
}

static proa_status numbers_json(proa_buf *out, const proa_generated *g, const char *name,
                                sequence_number *number, proa_err *err)
{
    list l = begin_list(out, name, g->count);
    for (int64_t i = 0; i < g->count; i++) put_int(&l, number(&g->sequences[i]));
    return end_list(&l, err);
}

static proa_status reasons_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    list l = begin_list(out, "finish_reason", g->count);
    for (int64_t i = 0; i < g->count; i++)
        put_text(&l, proa_str_c(proa_generated_finish_name(g->sequences[i].finish)));
    return end_list(&l, err);
}

static proa_status sums_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    list l;
    if (g->sums) {
        l = begin_list(out, "cum_log_probs", g->count);
        for (int64_t i = 0; i < g->count; i++) put_float(&l, g->sequences[i].sum);
        PROA_TRY(end_list(&l, err));
    }
    if (!g->scores) return PROA_OK;
    l = begin_list(out, "scores", g->count);
    for (int64_t i = 0; i < g->count; i++) put_float(&l, g->sequences[i].score);
    return end_list(&l, err);
}

/* ---- log-probabilities ---- */

static proa_status values_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    int64_t L = longest_of(g);
    list l = begin_list(out, "output_log_probs", g->count * L);
    for (int64_t i = 0; i < g->count; i++) {
        const proa_generated_tokens *t = &g->sequences[i].added;
        for (int64_t k = 0; k < L; k++) put_float(&l, k < t->count ? t->logprobs[k] : 0);
    }
    return end_list(&l, err);
}

static proa_status token_texts_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    int64_t L = longest_of(g);
    list l = begin_list(out, "token_text", g->count * L);
    for (int64_t i = 0; i < g->count; i++)
        for (int64_t k = 0; k < L; k++)
            put_text(&l, k < g->sequences[i].ids_count ? g->sequences[i].added.texts[k] : (proa_str){"", 0});
    return end_list(&l, err);
}

/* Lists of tokens, [count], each filled up to `each` tokens of `tops` alternatives. */
typedef struct top_lists {
    const proa_generated_tokens **tokens;
    int64_t count, each, tops;
} top_lists;

/* What alternative k of list i is, and whether there is one. */
static bool has_top(const top_lists *t, int64_t i, int64_t k)
{
    return k < t->tokens[i]->count * t->tops && t->tokens[i]->top_ids[k] >= 0;
}

static proa_status tops_json(proa_buf *out, const char *const names[3], const top_lists *t, bool texts,
                             proa_err *err)
{
    int64_t each = t->each * t->tops;
    list l = begin_list(out, names[0], t->count * each);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t k = 0; k < each; k++) put_int(&l, has_top(t, i, k) ? t->tokens[i]->top_ids[k] : -1);
    PROA_TRY(end_list(&l, err));
    l = begin_list(out, names[1], t->count * each);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t k = 0; k < each; k++)
            put_float(&l, has_top(t, i, k) ? t->tokens[i]->top_logprobs[k] : NAN);
    PROA_TRY(end_list(&l, err));
    if (!texts) return PROA_OK;
    l = begin_list(out, names[2], t->count * each);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t k = 0; k < each; k++)
            put_text(&l, has_top(t, i, k) ? t->tokens[i]->top_texts[k] : (proa_str){"", 0});
    return end_list(&l, err);
}

static proa_status alternatives_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    static const char *const names[3] = {"top_ids", "top_log_probs", "top_text"};
    const proa_generated_tokens **tokens;
    if (!g->tops) return PROA_OK;
    tokens = proa_calloc((size_t)g->count + 1, sizeof(const proa_generated_tokens *));
    for (int64_t i = 0; i < g->count; i++) tokens[i] = &g->sequences[i].added;
    const top_lists lists = {tokens, g->count, longest_of(g), g->tops};
    proa_status status = tops_json(out, names, &lists, !g->no_texts, err);
    free(tokens);
    return status;
}

static proa_status logprobs_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    if (g->logprobs) PROA_TRY(values_json(out, g, err));
    if (g->logprobs && !g->no_texts) PROA_TRY(token_texts_json(out, g, err));
    return alternatives_json(out, g, err);
}

/* ---- of the prompt ---- */

static proa_status prompt_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    static const char *const names[3] = {"prompt_top_ids", "prompt_top_log_probs", "prompt_top_text"};
    const proa_generated_tokens *t = g->prompt;
    if (!t) return PROA_OK;
    list l = begin_list(out, "prompt_ids", t->count);
    for (int64_t i = 0; i < t->count; i++) put_int(&l, t->ids[i]);
    PROA_TRY(end_list(&l, err));
    PROA_TRY(floats_json(out, "prompt_log_probs", t->logprobs, t->count, err));
    if (t->texts) {
        l = begin_list(out, "prompt_text", t->count);
        for (int64_t i = 0; i < t->count; i++) put_text(&l, t->texts[i]);
        PROA_TRY(end_list(&l, err));
    }
    if (!t->tops) return PROA_OK;
    const top_lists lists = {&t, 1, t->count, t->tops};
    return tops_json(out, names, &lists, t->top_texts != NULL, err);
}

/* ---- replies ---- */

static proa_status sequences_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    PROA_TRY(texts_json(out, g, err));
    PROA_TRY(ids_json(out, g, err));
    PROA_TRY(numbers_json(out, g, "sequence_length", length_of, err));
    PROA_TRY(numbers_json(out, g, "sequence_index", index_of, err));
    PROA_TRY(numbers_json(out, g, "completion_tokens", tokens_of, err));
    PROA_TRY(reasons_json(out, g, err));
    PROA_TRY(one_int(out, "prompt_tokens", g->prompt_tokens, err));
    PROA_TRY(sums_json(out, g, err));
    PROA_TRY(logprobs_json(out, g, err));
    if (g->logits_columns)
        PROA_TRY(rows_json(out, g, "logits", offsetof(proa_generated_sequence, logits), g->logits_columns, err));
    if (g->hidden_columns)
        PROA_TRY(rows_json(out, g, "hidden", offsetof(proa_generated_sequence, hidden), g->hidden_columns, err));
    return prompt_json(out, g, err);
}

static proa_status classes_json(proa_buf *out, const proa_generated_classes *c, proa_err *err)
{
    PROA_TRY(floats_json(out, "logits", c->logits, c->count, err));
    PROA_TRY(floats_json(out, "scores", c->scores, c->count, err));
    list l = begin_list(out, "label", 1);
    put_text(&l, proa_str_c(c->labels[c->best]));
    PROA_TRY(end_list(&l, err));
    l = begin_list(out, "labels", c->count);
    for (int64_t i = 0; i < c->count; i++) put_text(&l, proa_str_c(c->labels[i]));
    return end_list(&l, err);
}

proa_status proa_generated_json(proa_buf *out, const proa_generated *g, proa_err *err)
{
    if (g->task == PROA_GENERATION_TEXT) return sequences_json(out, g, err);
    PROA_TRY(one_int(out, "prompt_tokens", g->prompt_tokens, err));
    if (g->rows) return floats_json(out, "rows", g->rows, g->rows_count * g->rows_columns, err);
    if (g->embedding) return floats_json(out, "embedding", g->embedding, g->embedding_count, err);
    if (g->classes) return classes_json(out, g->classes, err);
    return prompt_json(out, g, err);
}
