/* SPDX-License-Identifier: Apache-2.0
 * generation_read.c - the settings of a generation by their names: task, pooling, stream, echo, normalize, options. */
#include "serve/generation_read.h"

#include "base/limits.h"
#include <string.h>

const char *const proa_generation_task_names[] = {
    [PROA_GENERATION_TEXT] = "generate",     [PROA_GENERATION_SCORE] = "score",
    [PROA_GENERATION_ROWS] = "rows",         [PROA_GENERATION_EMBED] = "embed",
    [PROA_GENERATION_CLASSIFY] = "classify", [PROA_GENERATION_ENCODE] = "encode",
    [PROA_GENERATION_TOKENIZE] = "tokenize", [PROA_GENERATION_DETOKENIZE] = "detokenize"};

const char *proa_generated_finish_name(proa_finish finish)
{
    switch (finish) {
    case PROA_FINISH_END:
    case PROA_FINISH_STOP: return "stop";
    case PROA_FINISH_LENGTH: return "length";
    case PROA_FINISH_CANCELLED: return "cancelled";
    case PROA_FINISH_ERROR: return "error";
    case PROA_FINISH_NONE: break;
    }
    return "";
}

/* Where a setting is looked for: inputs first, then parameters. */
typedef struct settings {
    const proa_infer *r;
    const proa_generation_inputs *inputs;
} settings;

static proa_str text_of(const settings *s, const char *name)
{
    proa_str text = s->inputs->text(s->inputs->arg, name);
    const proa_infer_param *param = text.ptr ? NULL : proa_infer_find_param(s->r, name);
    return param && param->kind == PROA_PARAM_STRING ? param->s : text;
}

static bool flag_of(const settings *s, const char *name, bool preset)
{
    bool value = preset;
    if (s->inputs->flag(s->inputs->arg, name, &value)) return value;
    const proa_infer_param *param = proa_infer_find_param(s->r, name);
    if (!param) return preset;
    if (param->kind == PROA_PARAM_BOOL) return param->b;
    if (param->kind == PROA_PARAM_INT) return param->i != 0;
    return param->kind == PROA_PARAM_STRING ? proa_str_is(param->s, "true") : preset;
}

/* The index of a name in the list; *value is kept if the request does not have it. */
static proa_status choice_of(const settings *s, const char *name, const char *const *names, int count,
                             int *value, proa_err *err)
{
    proa_str text = text_of(s, name);
    if (!text.len) return PROA_OK;
    for (int i = 0; i < count; i++)
        if (proa_str_is(text, names[i])) return *value = i, PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' is '%.*s', must be one of %s, %s, ...", name,
                     (int)(text.len < 40 ? text.len : 40), text.ptr, names[0], names[1]);
}

/* A client's JSON: what is wrong with it is INVALID, or LIMIT. */
static proa_status parse_options(proa_json **out, proa_str text, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    if (proa_json_parse_within(out, text, PROA_REQUEST_NODES_MAX, "options", &why) == PROA_OK) return PROA_OK;
    return proa_err_set(err, why.status == PROA_LIMIT ? PROA_LIMIT : PROA_INVALID, why.file, why.line, "%s",
                        why.text);
}

static proa_status read_json_options(proa_options *o, proa_str text, proa_arena *arena, proa_err *err)
{
    proa_json *json = NULL;
    if (!text.len) return PROA_OK;
    PROA_TRY(parse_options(&json, text, err));
    proa_status status = PROA_OK;
    if (proa_json_kind(json) != PROA_JSON_OBJECT)
        status = PROA_FAIL(err, INVALID, "'options' must be a JSON object");
    else status = proa_options_read_json(o, json, true, arena, err);
    proa_json_free(json);
    return status;
}

static proa_status read_salt(proa_generation *g, proa_str salt, proa_arena *arena, proa_err *err)
{
    if (!salt.len) return PROA_OK;
    if (memchr(salt.ptr, 0, salt.len)) return PROA_FAIL(err, INVALID, "'cache_salt' has a character 0");
    g->cache_salt = proa_arena_strdup(arena, salt);
    return PROA_OK;
}

/* A sequence of KServe is a session: its id is a number, or a text, which is quoted so that it is no number. */
static void read_sequence(proa_generation *g, const proa_infer *r, proa_arena *arena)
{
    bool named = r->sequence_name && *r->sequence_name;
    if (!named && r->sequence_id == 0) return;
    g->session = named ? proa_arena_printf(arena, "'%s'", r->sequence_name)
                       : proa_arena_printf(arena, "%llu", (unsigned long long)r->sequence_id);
    g->session_starts = r->sequence_start;
    g->session_ends = r->sequence_end;
}

proa_status proa_generation_read_settings(proa_generation *g, const proa_infer *r,
                                          const proa_generation_inputs *inputs, bool options,
                                          proa_arena *arena, proa_err *err)
{
    static const char *const poolings[] = {"mean", "cls", "pooler", "last"};
    static const char *const known[] = {
        "task",    "stream",    "streaming", "echo",       "exclude_input_in_output",
        "pooling", "normalize", "options",   "cache_salt", NULL};
    settings s = {r, inputs};
    int task = PROA_GENERATION_DEFAULT, pooling = -1;
    PROA_TRY(choice_of(&s, "task", proa_generation_task_names, PROA_GENERATION_CLASSIFY + 1, &task, err));
    PROA_TRY(choice_of(&s, "pooling", poolings, PROA_COUNT(poolings), &pooling, err));
    g->task = (proa_generation_task)task;
    g->pooling = (proa_pooling)(pooling + 1); /* DEFAULT precedes the names */
    g->normalize = flag_of(&s, "normalize", false);
    g->stream = flag_of(&s, "stream", flag_of(&s, "streaming", false));
    g->echo = flag_of(&s, "echo", !flag_of(&s, "exclude_input_in_output", true));
    PROA_TRY(read_salt(g, text_of(&s, "cache_salt"), arena, err));
    read_sequence(g, r, arena);
    if (!options) return PROA_OK;
    PROA_TRY(read_json_options(&g->options, text_of(&s, "options"), arena, err));
    return proa_options_read_params(&g->options, r, known, arena, err);
}
