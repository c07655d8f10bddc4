/* SPDX-License-Identifier: Apache-2.0
 * golden_logits.h - reads tests/golden/logits.json and processors.json, and checks logits processors as entries of a
 *                   device: for test_logits, test_filter and test_processors. */
#ifndef PROA_TESTS_GOLDEN_LOGITS_H
#define PROA_TESTS_GOLDEN_LOGITS_H

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/decode/logits_processor.h"
#include "kernels/reference/reference.h"
#include "proa/proa.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GOLDEN_ROW = 64, GOLDEN_IDS = 64 };

/* Options of one case, and the memory of their lists. */
typedef struct golden_options {
    proa_options o;
    proa_bias bias[GOLDEN_IDS];
    int32_t banned_ids[GOLDEN_IDS], banned_ends[GOLDEN_IDS], allowed_ids[GOLDEN_IDS], allowed_ends[GOLDEN_IDS];
} golden_options;

/* A file of tests/golden; the caller frees it. */
static inline proa_json *golden_load(const char *name)
{
    proa_json *root;
    proa_err err = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", PROA_SOURCE_DIR, name);
    if (proa_json_load(&root, path, PROA_MIB, &err)) fail_msg("%s", err.text);
    return root;
}

static inline int golden_ids(int32_t *ids, const proa_json *array)
{
    int n = (int)proa_json_len(array);
    assert_in_range(n, 0, GOLDEN_IDS);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)proa_json_int(proa_json_at(array, i));
    return n;
}

/* null is -infinity. */
static inline int golden_row(float *row, const proa_json *array)
{
    int n = (int)proa_json_len(array);
    assert_in_range(n, 1, GOLDEN_ROW);
    for (int i = 0; i < n; i++) {
        const proa_json *v = proa_json_at(array, i);
        row[i] = v ? (float)proa_json_double(v) : -INFINITY;
    }
    return n;
}

static inline proa_words golden_words(int32_t *ids, int32_t *ends, const proa_json *list)
{
    int n = list ? (int)proa_json_len(list) : 0, at = 0;
    for (int i = 0; i < n; i++) {
        at += golden_ids(ids + at, proa_json_at(list, i));
        assert_in_range(at, 1, GOLDEN_IDS);
        ends[i] = at;
    }
    return (proa_words){ids, ends, n};
}

static inline proa_style golden_style(const proa_json *c)
{
    proa_str name = proa_json_str(proa_json_get(c, "style"));
    if (proa_str_eq(name, proa_str_c("ft"))) return PROA_STYLE_FT;
    return proa_str_eq(name, proa_str_c("trtllm")) ? PROA_STYLE_TRTLLM : PROA_STYLE_HF;
}

#define GOLDEN_NUMBER(field)                                                                                 \
    if (proa_json_get(json, #field)) {                                                                       \
        g->o.field = (float)proa_json_double(proa_json_get(json, #field));                                   \
        g->o.given[PROA_OPTION_##field] = true;                                                              \
    }
#define GOLDEN_INT(field)                                                                                    \
    if (proa_json_get(json, #field)) {                                                                       \
        g->o.field = (int32_t)proa_json_int(proa_json_get(json, #field));                                    \
        g->o.given[PROA_OPTION_##field] = true;                                                              \
    }

static inline void golden_read(golden_options *g, const proa_json *c)
{
    const proa_json *json = proa_json_get(c, "options"), *bias = proa_json_get(json, "logit_bias");
    g->o = (proa_options){.style = golden_style(c), .repetition_penalty = 1};
    GOLDEN_NUMBER(temperature)
    GOLDEN_NUMBER(top_p)
    GOLDEN_NUMBER(min_p)
    GOLDEN_NUMBER(typical_p)
    GOLDEN_NUMBER(top_p_decay)
    GOLDEN_NUMBER(top_p_min)
    GOLDEN_NUMBER(repetition_penalty)
    GOLDEN_NUMBER(presence_penalty)
    GOLDEN_NUMBER(frequency_penalty)
    GOLDEN_INT(top_k)
    GOLDEN_INT(top_p_reset_id)
    GOLDEN_INT(no_repeat_ngram)
    GOLDEN_INT(min_tokens)
    g->o.logit_bias_count = bias ? (int32_t)proa_json_len(bias) : 0;
    g->o.logit_bias = g->bias;
    for (int i = 0; i < g->o.logit_bias_count; i++)
        g->bias[i] = (proa_bias){(int32_t)proa_json_int(proa_json_at(proa_json_at(bias, i), 0)),
                                 (float)proa_json_double(proa_json_at(proa_json_at(bias, i), 1))};
    g->o.banned_words = golden_words(g->banned_ids, g->banned_ends, proa_json_get(json, "banned_words"));
    g->o.allowed_words = golden_words(g->allowed_ids, g->allowed_ends, proa_json_get(json, "allowed_words"));
    if (proa_json_get(json, "end_ids"))
        g->o.end_ids_count = golden_ids(g->o.end_ids, proa_json_get(json, "end_ids"));
}

/* Where a device can apply the options, its mask and entries change the row as the processors do, to the bit, whether
 * the host
 * knows the last token or not. 0: a device cannot. */
static inline int golden_check_entries(const proa_logits_processor *l, const float *before,
                                       const float *after, int n, proa_history h, int64_t at)
{
    int64_t most = l ? proa_logits_processor_entries_max(l, h.prompt_count + h.generated_count) : -1;
    if (most < 0) return 0;
    for (int unknown = 0; unknown <= (h.generated_count > 0); unknown++) {
        float row[GOLDEN_ROW];
        proa_logits_row e = {.first = 0};
        proa_logits_entry *entries = proa_calloc((size_t)most + 1, sizeof *entries);
        int32_t last = -1;
        memcpy(row, before, sizeof row);
        if (proa_logits_processor_has_mask(l)) {
            uint32_t mask[GOLDEN_ROW / 32 + 1];
            proa_logits_processor_mask(l, &h, mask);
            proa_mask_logits_reference(NULL, proa_view_2d(row, PROA_DTYPE_F32, 1, n), mask, &(int32_t){0});
        }
        if (unknown) last = h.generated[--h.generated_count];
        proa_logits_processor_entries(l, &h, unknown, &e, entries);
        assert_true(e.bias_count + e.seen_count + e.mask_count <= most);
        proa_process_logits_reference(NULL, proa_view_2d(row, PROA_DTYPE_F32, 1, n), &e, entries, &last);
        for (int i = 0; i < n; i++)
            if (row[i] != after[i])
                fail_msg("case %d, token %d, last %d: %.9g by entries, %.9g by processors", (int)at, i, last,
                         (double)row[i], (double)after[i]);
        free(entries);
    }
    return 1;
}
#endif
