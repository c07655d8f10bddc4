/* SPDX-License-Identifier: Apache-2.0
 * postprocess.c - post-processors: templates of special tokens around one text or two. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include <string.h>

typedef struct template_list {
    proa_post_piece ptr[PROA_TEMPLATE_PIECES_MAX];
    int64_t len;
} template_list;

static proa_status keep_template(proa_loader *ld, const template_list *l, proa_post_template *out)
{
    out->ptr = PROA_ARENA_NEW(&ld->tok->arena, proa_post_piece, l->len);
    out->len = l->len;
    if (l->len) memcpy(out->ptr, l->ptr, (size_t)l->len * sizeof *out->ptr);
    return PROA_OK;
}

static proa_status special_ids(proa_loader *ld, const proa_json *special, proa_str name, proa_post_piece *out,
                               proa_err *err)
{
    char key[256];
    int shown = name.len > 200 ? 200 : (int)name.len;
    snprintf(key, sizeof key, "%.*s", shown, name.ptr);
    const proa_json *ids = proa_json_get(proa_json_get(special, key), "ids");
    int64_t n = proa_json_len(ids);
    if (proa_json_kind(ids) != PROA_JSON_ARRAY || n > PROA_TEMPLATE_PIECES_MAX)
        return PROA_FAIL(err, INVALID, "template uses '%s', for which special_tokens has no ids", key);
    out->ids = PROA_ARENA_NEW(&ld->tok->arena, int32_t, n + 1);
    out->ids_len = (int32_t)n;
    for (int64_t i = 0; i < n; i++) {
        const proa_json *id = proa_json_at(ids, i);
        if (proa_json_kind(id) != PROA_JSON_INT || proa_json_int(id) < 0 || proa_json_int(id) >= PROA_VOCAB_MAX)
            return PROA_FAIL(err, INVALID, "special token '%s' has an id outside 0..%d", key, PROA_VOCAB_MAX - 1);
        out->ids[i] = (int32_t)proa_json_int(id);
    }
    return PROA_OK;
}

/* {"SpecialToken": {"id": "[CLS]", "type_id": 0}} or {"Sequence": {"id": "A", "type_id": 0}} */
static proa_status load_piece(proa_loader *ld, const proa_json *j, const proa_json *special, bool pair,
                              proa_post_piece *out, proa_err *err)
{
    const proa_json *token = proa_json_get(j, "SpecialToken"), *text = proa_json_get(j, "Sequence");
    proa_str id = {"", 0};
    int64_t type = 0;
    *out = (proa_post_piece){0};
    if (!token && !text)
        return PROA_FAIL(err, INVALID, "template piece is neither SpecialToken nor Sequence");
    PROA_TRY(proa_json_get_str(&id, token ? token : text, "id", err));
    PROA_TRY(proa_json_get_int(&type, token ? token : text, "type_id", 0, INT32_MAX, err));
    out->type_id = (int32_t)type;
    if (token) return special_ids(ld, special, id, out, err);
    out->sequence = proa_str_is(id, "B");
    if (!proa_str_is(id, "A") && !out->sequence)
        return PROA_FAIL(err, INVALID, "template has a Sequence '%.*s', allowed are A and B",
                         id.len > 40 ? 40 : (int)id.len, id.ptr);
    if (out->sequence && !pair) return PROA_FAIL(err, INVALID, "template for one text has the Sequence B");
    return PROA_OK;
}

static proa_status load_template(proa_loader *ld, const proa_json *list, const proa_json *special, bool pair,
                                 proa_post_template *out, proa_err *err)
{
    template_list l = {.len = proa_json_len(list)};
    if (proa_json_kind(list) != PROA_JSON_ARRAY || l.len > PROA_TEMPLATE_PIECES_MAX)
        return PROA_FAIL(err, INVALID, "template is %s of %lld pieces, a list of at most %d is needed",
                         proa_json_kind_name(proa_json_kind(list)), (long long)l.len, PROA_TEMPLATE_PIECES_MAX);
    for (int64_t i = 0; i < l.len; i++)
        PROA_TRY(load_piece(ld, proa_json_at(list, i), special, pair, &l.ptr[i], err));
    return keep_template(ld, &l, out);
}

static proa_status load_processing(proa_loader *ld, const proa_json *j, proa_err *err)
{
    proa_post *post = &ld->tok->post;
    const proa_json *special = proa_json_get(j, "special_tokens");
    post->on = true;
    PROA_TRY(load_template(ld, proa_json_get(j, "single"), special, false, &post->single, err));
    return load_template(ld, proa_json_get(j, "pair"), special, true, &post->pair, err);
}

/* "cls": ["[CLS]", 101] */
static proa_status named_id(proa_loader *ld, const proa_json *j, const char *key, proa_post_piece *out,
                            proa_err *err)
{
    const proa_json *id = proa_json_at(proa_json_get(j, key), 1);
    if (proa_json_kind(id) != PROA_JSON_INT || proa_json_int(id) < 0 || proa_json_int(id) >= PROA_VOCAB_MAX)
        return PROA_FAIL(err, INVALID, "'%s' is not a token with an id in 0..%d", key, PROA_VOCAB_MAX - 1);
    out->ids = PROA_ARENA_NEW(&ld->tok->arena, int32_t, 1);
    out->ids[0] = (int32_t)proa_json_int(id);
    out->ids_len = 1;
    return PROA_OK;
}

/* Bert: [CLS] A [SEP] B [SEP], types 0 and 1. Roberta: <s> A </s> </s> B </s>, all types 0. */
static proa_status load_cls_sep(proa_loader *ld, const proa_json *j, bool roberta, proa_err *err)
{
    proa_post *post = &ld->tok->post;
    proa_post_piece cls = {0}, sep = {0};
    int32_t second = roberta ? 0 : 1;
    PROA_TRY(named_id(ld, j, "cls", &cls, err));
    PROA_TRY(named_id(ld, j, "sep", &sep, err));
    proa_post_piece last = sep, text_b = {.sequence = 1, .type_id = second};
    last.type_id = second;
    template_list one = {{cls, {0}, sep}, 3}, two = {{cls, {0}, sep}, 3};
    if (roberta) two.ptr[two.len++] = sep;
    two.ptr[two.len++] = text_b;
    two.ptr[two.len++] = last;
    post->on = true;
    post->only_added = !roberta;
    PROA_TRY(keep_template(ld, &one, &post->single));
    return keep_template(ld, &two, &post->pair);
}

static proa_status load_post(proa_loader *ld, const proa_json *j, int depth, proa_err *err)
{
    proa_str type = {"", 0};
    PROA_TRY(proa_json_get_str(&type, j, "type", err));
    if (proa_str_is(type, "ByteLevel")) return PROA_OK; /* moves offsets only */
    if (proa_str_is(type, "Sequence")) {
        const proa_json *list = proa_json_get(j, "processors");
        if (depth > PROA_PIPELINE_DEPTH_MAX)
            return PROA_FAIL(err, LIMIT, "Sequence nests deeper than %d", PROA_PIPELINE_DEPTH_MAX);
        for (int64_t i = 0; i < proa_json_len(list); i++)
            PROA_TRY(load_post(ld, proa_json_at(list, i), depth + 1, err));
        return PROA_OK;
    }
    if (ld->tok->post.on) return PROA_FAIL(err, UNSUPPORTED, "Sequence has more than one template");
    if (proa_str_is(type, "TemplateProcessing")) return load_processing(ld, j, err);
    if (proa_str_is(type, "BertProcessing")) return load_cls_sep(ld, j, false, err);
    if (proa_str_is(type, "RobertaProcessing")) return load_cls_sep(ld, j, true, err);
    return PROA_FAIL(err, UNSUPPORTED, "type '%.*s' is not known here", type.len > 60 ? 60 : (int)type.len,
                     type.ptr);
}

proa_status proa_load_post(proa_loader *ld, const proa_json *j, proa_err *err)
{
    return proa_json_kind(j) == PROA_JSON_NULL ? PROA_OK : load_post(ld, j, 1, err);
}
