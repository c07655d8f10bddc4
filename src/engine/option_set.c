/* SPDX-License-Identifier: Apache-2.0
 * option_set.c - options of a request from JSON, for callers of the library in other languages. */
#include "base/alloc.h"
#include "base/limits.h"
#include "options/options.h"
#include <string.h>

/* The options come first, so that a pointer to them is one to the whole. */
typedef struct option_set {
    proa_options options;
    proa_arena arena; /* their lists */
} option_set;

static proa_status read_set(option_set *set, const char *json, proa_err *err)
{
    proa_json *object;
    if (proa_json_parse(&object, proa_str_c(json), "options", err) != PROA_OK) {
        if (err) err->status = PROA_INVALID; /* it is the caller's text, not a file */
        return PROA_INVALID;
    }
    proa_status status = PROA_OK;
    if (proa_json_kind(object) != PROA_JSON_OBJECT)
        status = PROA_FAIL(err, INVALID, "options: the JSON is no object");
    if (status == PROA_OK) status = proa_options_read_json(&set->options, object, true, &set->arena, err);
    proa_json_free(object);
    return status;
}

proa_status proa_options_new(proa_options **out, const char *json, proa_err *err)
{
    option_set *set = proa_calloc(1, sizeof *set);
    proa_arena_init(&set->arena);
    proa_status status = read_set(set, json, err);
    *out = &set->options;
    if (status == PROA_OK) return PROA_OK;
    proa_options_free(*out);
    *out = NULL;
    return status;
}

void proa_options_free(proa_options *options)
{
    option_set *set = (option_set *)(void *)options;
    if (!set) return;
    proa_arena_release(&set->arena);
    free(set);
}
