/* SPDX-License-Identifier: Apache-2.0
 * json.c - reads tokenizer.json, section by section in the order of their dependencies. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <string.h>

/* ---- lists of steps ---- */

typedef struct step_list {
    proa_loader *ld;
    const proa_text_step_kind *kinds;
    const char *list_key; /* where a Sequence keeps its members */
    proa_text_step steps[PROA_PIPELINE_STEPS_MAX];
    int64_t len;
    proa_err *err;
} step_list;

static proa_status add_step(step_list *l, const proa_json *j, proa_str type)
{
    const proa_text_step_kind *kind = l->kinds;
    while (kind->name && !proa_str_is(type, kind->name)) kind++;
    if (!kind->name)
        return PROA_FAIL(l->err, UNSUPPORTED, "type '%.*s' is not known here",
                         type.len > 60 ? 60 : (int)type.len, type.ptr);
    if (++l->ld->steps > PROA_PIPELINE_STEPS_MAX)
        return PROA_FAIL(l->err, LIMIT, "more than %d steps", PROA_PIPELINE_STEPS_MAX);
    proa_text_step *step = &l->steps[l->len++];
    *step = (proa_text_step){.kind = kind};
    proa_status status = kind->parse ? kind->parse(l->ld, j, step, l->err) : PROA_OK;
    if (status != PROA_OK) proa_err_prefix(l->err, "%s", kind->name);
    return status;
}

static proa_status add_steps(step_list *l, const proa_json *j, int depth)
{
    proa_str type = {"", 0};
    if (proa_json_kind(j) != PROA_JSON_OBJECT)
        return PROA_FAIL(l->err, INVALID, "a step is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(j)));
    PROA_TRY(proa_json_get_str(&type, j, "type", l->err));
    if (!proa_str_is(type, "Sequence")) return add_step(l, j, type);
    if (depth > PROA_PIPELINE_DEPTH_MAX)
        return PROA_FAIL(l->err, LIMIT, "Sequence nests deeper than %d", PROA_PIPELINE_DEPTH_MAX);
    const proa_json *members = proa_json_get(j, l->list_key);
    if (proa_json_kind(members) != PROA_JSON_ARRAY)
        return PROA_FAIL(l->err, INVALID, "Sequence has no list '%s'", l->list_key);
    for (int64_t i = 0; i < proa_json_len(members); i++)
        PROA_TRY(add_steps(l, proa_json_at(members, i), depth + 1));
    return PROA_OK;
}

proa_status proa_load_steps(proa_loader *ld, const proa_json *j, const proa_text_step_kind *kinds,
                            const char *list_key, proa_text_steps *out, proa_err *err)
{
    if (proa_json_kind(j) == PROA_JSON_NULL) return PROA_OK;
    step_list *l = proa_arena_alloc(&ld->tok->arena, sizeof *l);
    l->ld = ld, l->kinds = kinds, l->list_key = list_key, l->err = err;
    PROA_TRY(add_steps(l, j, 1));
    out->ptr = l->steps; /* the list stays in the arena: some 40 kB */
    out->len = l->len;
    return PROA_OK;
}

/* ---- the whole ---- */

typedef struct section {
    const char *key, *list_key;
    const proa_text_step_kind *kinds;
} section;

static proa_status load_sections(proa_loader *ld, const proa_json *root, proa_err *err)
{
    const section sections[] = {{"normalizer", "normalizers", proa_normalizers},
                                {"pre_tokenizer", "pretokenizers", proa_pre_tokenizers},
                                {"decoder", "decoders", proa_decoders}};
    proa_text_steps *out[] = {&ld->tok->normalizers, &ld->tok->pre_tokenizers, &ld->tok->decoders};
    for (size_t i = 0; i < PROA_COUNT(sections); i++) {
        const proa_json *j = proa_json_get(root, sections[i].key);
        proa_status status = proa_load_steps(ld, j, sections[i].kinds, sections[i].list_key, out[i], err);
        if (status != PROA_OK) {
            proa_err_prefix(err, "%s", sections[i].key);
            return status;
        }
    }
    return PROA_OK;
}

proa_status proa_load_json(proa_tokenizer *tok, const proa_json *root, bool nul_marked, proa_err *err)
{
    proa_loader ld = {.tok = tok, .nul_marked = nul_marked};
    if (proa_json_kind(root) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "the document is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(root)));
    PROA_TRY(load_sections(&ld, root, err));
    proa_status status = proa_load_model(&ld, proa_json_get(root, "model"), err);
    if (status != PROA_OK) {
        proa_err_prefix(err, "model");
        return status;
    }
    PROA_TRY(proa_load_added(&ld, proa_json_get(root, "added_tokens"), err));
    status = proa_load_post(&ld, proa_json_get(root, "post_processor"), err);
    if (status != PROA_OK) proa_err_prefix(err, "post_processor");
    return status;
}
