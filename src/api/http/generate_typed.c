/* SPDX-License-Identifier: Apache-2.0
 * generate_typed.c - inputs of the generate extension as a typed generation, by the names of the contract of the
 * backend `engine`. A model takes one only if its inputs have the types of that contract. */
#include "api/http/generate.h"

#include "base/limits.h"
#include "serve/generation_read.h"
#include <string.h>

/* The inputs of one request. */
typedef struct inputs {
    const proa_jlist *list;
    int count;
} inputs;

static const proa_jlist *find_list(const inputs *in, const char *name)
{
    for (int i = 0; i < in->count; i++)
        if (strcmp(in->list[i].tensor.name, name) == 0) return &in->list[i];
    return NULL;
}

static proa_str text_input(const void *arg, const char *name)
{
    const proa_jlist *list = find_list(arg, name);
    return list && list->found > 0 && list->texts ? list->texts[0] : (proa_str){NULL, 0};
}

static bool flag_input(const void *arg, const char *name, bool *value)
{
    const proa_jlist *list = find_list(arg, name);
    if (!list || !list->numbers || list->tensor.type != PROA_TYPE_BOOL) return false;
    *value = *(const char *)list->numbers != 0;
    return true;
}

static void take_ids(const inputs *in, const char *name, const int32_t **ids, int64_t *count)
{
    static const int32_t none[1];
    const proa_jlist *list = find_list(in, name);
    if (!list) return;
    *ids = list->numbers ? list->numbers : none;
    *count = list->numbers ? list->found : 0;
}

/* None are as if there was no such input: the model's own start token is the first. */
static void take_decoder_ids(proa_generation *g, const inputs *in)
{
    take_ids(in, "decoder_input_ids", &g->decoder_ids, &g->decoder_ids_count);
    if (!g->decoder_ids_count) g->decoder_ids = NULL;
}

static void take_prompt(proa_generation *g, const inputs *in)
{
    g->text = text_input(in, "text_input");
    g->text_pair = text_input(in, "text_pair");
    g->chat_text = text_input(in, "messages");
    g->prompt_bytes = g->text.len + g->text_pair.len + g->chat_text.len;
    take_ids(in, "input_ids", &g->ids, &g->ids_count);
    take_ids(in, "token_type_ids", &g->type_ids, &g->type_ids_count);
    take_decoder_ids(g, in);
}

static double number_of(const proa_jlist *list)
{
    float f;
    int32_t i;
    if (list->tensor.type == PROA_TYPE_BOOL) return *(const char *)list->numbers != 0;
    if (list->tensor.type == PROA_TYPE_FP32) return memcpy(&f, list->numbers, sizeof f), (double)f;
    return memcpy(&i, list->numbers, sizeof i), (double)i;
}

/* One option that is an input of its own; an empty list leaves it as it is. */
static proa_status take_option(proa_options *o, const proa_option_row *row, const proa_jlist *list,
                               proa_arena *arena, proa_err *err)
{
    if (list->found <= 0) return PROA_OK;
    if (list->texts) return proa_option_set_texts(o, row, list->texts, list->found, arena, err);
    if (list->tensor.type == PROA_TYPE_UINT64) {
        uint64_t seed;
        memcpy(&seed, list->numbers, sizeof seed);
        proa_option_set_seed(o, row, seed);
        return PROA_OK;
    }
    if (row->kind == PROA_OPTION_KIND_IDS || row->kind == PROA_OPTION_KIND_TOKENS)
        return proa_option_set_ids(o, row, list->numbers, list->found, arena, err);
    return proa_option_set_number(o, row, number_of(list), err);
}

/* Nested arrays may hold more or fewer texts than the outer one has elements. The texts are those of serve/check.c. */
static proa_status check_texts(const proa_infer *r, const inputs *in, proa_err *err)
{
    const char *id = *r->id ? r->id : "<id_unknown>";
    for (int i = 0; i < in->count; i++) {
        const proa_tensor *t = &in->list[i].tensor;
        long long found = (long long)in->list[i].found,
                  wanted = (long long)proa_shape_elements(t->shape, t->rank);
        if (found > wanted)
            return PROA_FAIL(
                err, INVALID,
                "[request id: %s] unexpected number of string elements %lld for inference input '%s' "
                "for model '%s', expecting %lld",
                id, wanted + 1, t->name, r->model_name, wanted);
        if (found < wanted)
            return PROA_FAIL(
                err, INVALID,
                "[request id: %s] expected %lld string elements for inference input '%s' for model "
                "'%s', got %lld",
                id, wanted, t->name, r->model_name, found);
    }
    return PROA_OK;
}

static proa_status take_settings(proa_infer *r, const inputs *in, bool options, proa_err *err)
{
    const proa_generation_inputs named = {text_input, flag_input, in};
    proa_generation *g = r->generation;
    PROA_TRY(proa_generation_read_settings(g, r, &named, options, &r->arena, err));
    for (int i = 0; i < in->count && options; i++) {
        const proa_option_row *row = proa_option_by_alias(in->list[i].tensor.name);
        if (row) PROA_TRY(take_option(&g->options, row, &in->list[i], &r->arena, err));
    }
    return PROA_OK;
}

proa_status proa_generate_type(proa_infer *r, const proa_jlist *list, int count, bool options, proa_err *err)
{
    const inputs in = {list, count};
    proa_err why = {.status = PROA_OK};
    proa_generation *g = proa_infer_generate(r);
    PROA_TRY(check_texts(r, &in, err));
    if (take_settings(r, &in, options, &why) != PROA_OK) {
        proa_err *refused = PROA_ARENA_NEW(&r->arena, proa_err, 1);
        *refused = why;
        g->refused = refused;
    }
    take_prompt(g, &in);
    r->params_count = 0; /* they are in the generation now */
    return PROA_OK;
}
