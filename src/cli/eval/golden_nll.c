/* SPDX-License-Identifier: Apache-2.0
 * golden_nll.c - compares the mean likelihoods of a text with those of the reference implementation. */
#include "base/alloc.h"
#include "base/limits.h"
#include "cli/eval/golden.h"
#include "cli/lines.h"
#include "cli/result.h"
#include <math.h>
#include <string.h>

/* Bytes of a line of dashes at s, its newline included; 0 if it is another line. */
static size_t separator_length(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && s[n] == '-') n++;
    return n >= 3 && n < len && s[n] == '\n' ? n + 1 : 0;
}

/* Finds document `doc` of a text in which each document begins with a line of dashes, which belongs to it.
 * */
static bool find_document(proa_str text, int64_t doc, proa_str *out)
{
    int64_t seen = -1;
    size_t from = 0, at = 0;
    while (at < text.len) {
        size_t rule = separator_length(text.ptr + at, text.len - at);
        if (rule && seen == doc) break;
        if (rule) seen++, from = at;
        const char *stop = memchr(text.ptr + at, '\n', text.len - at);
        at = stop ? (size_t)(stop - text.ptr) + 1 : text.len;
    }
    *out = (proa_str){text.ptr + from, at - from};
    return seen == doc;
}

/* Code points [first, end) of a text. */
static proa_str cut_characters(proa_str s, int64_t first, int64_t end)
{
    size_t from = s.len, to = s.len;
    int64_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (((unsigned char)s.ptr[i] & 0xC0) == 0x80) continue;
        if (n == first) from = i;
        if (n == end) to = i;
        n++;
    }
    return (proa_str){s.ptr + from, to > from ? to - from : 0};
}

static proa_status measure_item(proa_golden *g, proa_golden_nll_item *item, const int32_t *ids,
                                const proa_json *singles, proa_err *err)
{
    double sum, *each = proa_malloc((size_t)item->tokens * sizeof *each);
    proa_status status = proa_sequence_nll(g->session->engine, ids, item->tokens, &sum, each, err);
    if (status == PROA_OK) item->got = sum / (double)(item->tokens - 1);
    for (int64_t i = 0; i < proa_json_len(singles) && i < item->tokens - 1 && status == PROA_OK; i++)
        item->first_diff = fmax(item->first_diff, fabs(proa_json_double(proa_json_at(singles, i)) - each[i]));
    free(each);
    return status;
}

static proa_status check_item(proa_golden *g, proa_golden_nll_item *item, proa_str text, const proa_json *j,
                              proa_err *err)
{
    const proa_json *range = proa_json_get(j, "chars");
    proa_str doc;
    int32_t *ids;
    int64_t count = 0;
    *item = (proa_golden_nll_item){.doc = proa_json_int(proa_json_get(j, "doc")),
                                   .tokens = proa_json_int(proa_json_get(j, "tokens")),
                                   .want = proa_json_double(proa_json_get(j, "mean_nll"))};
    if (item->tokens < 2) return PROA_FAIL(err, CORRUPT, "a likelihood of less than 2 tokens");
    if (!find_document(text, item->doc, &doc))
        return PROA_FAIL(err, INVALID, "'%s' has no document %lld (a line of dashes goes before each)",
                         g->eval->data, (long long)item->doc);
    doc = cut_characters(doc, proa_json_int(proa_json_at(range, 0)), proa_json_int(proa_json_at(range, 1)));
    proa_status status = proa_encode_text(g->session->engine, doc, &ids, &count, err);
    if (status == PROA_OK && count < item->tokens) item->tokens_differ = true;
    else if (status == PROA_OK) status = measure_item(g, item, ids, proa_json_get(j, "first16"), err);
    free(ids);
    return status;
}

proa_status proa_golden_nll(proa_golden *g, const proa_json *nll, proa_err *err)
{
    int64_t count = proa_json_len(nll);
    if (!g->eval->data) g->nll_skipped = count;
    if (count == 0 || !g->eval->data) return PROA_OK;
    proa_buf text;
    proa_status status = proa_text_read(&text, g->eval->data, PROA_TEXT_BYTES_MAX, err);
    g->nll = proa_calloc((size_t)count, sizeof *g->nll);
    for (int64_t i = 0; i < count && status == PROA_OK; i++) {
        status = check_item(g, &g->nll[i], proa_buf_view(&text), proa_json_at(nll, i), err);
        g->nll_count++;
    }
    proa_buf_release(&text);
    return status;
}
