/* SPDX-License-Identifier: Apache-2.0
 * generation_options.c - options of a generation by the names that any of the engines has for them (options/options.c
 * is the table): from texts, ids and numbers that a protocol has read, and from parameters of a request. */
#include "serve/generation_read.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

typedef struct alias {
    char name[40];
    const proa_option_row *row;
} alias;

static alias *aliases; /* sorted */
static size_t aliases_count;
static pthread_once_t aliases_once = PTHREAD_ONCE_INIT;

/* Names of the table that mean something else there, or have another form. */
static const char *const not_aliases[] = {"return_context_logits",
                                          "is_return_context_embeddings",
                                          "is_return_context_cum_log_probs",
                                          "stopping_criteria",
                                          "prefix_allowed_tokens_fn",
                                          "output_scores",
                                          "output_hidden_states",
                                          "output_logits",
                                          "manual_seed"};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const alias *)a)->name, ((const alias *)b)->name);
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < aliases_count; i++)
        if (strcmp(aliases[i].name, name) == 0) return true;
    for (size_t i = 0; i < PROA_COUNT(not_aliases); i++)
        if (strcmp(not_aliases[i], name) == 0) return true;
    return false;
}

static void add_alias(const char *name, size_t len, const proa_option_row *row)
{
    alias a = {.row = row};
    if (!len || len >= sizeof a.name || memchr(name, ' ', len) || memchr(name, '.', len)) return;
    memcpy(a.name, name, len);
    if (is_known(a.name)) return; /* a row's own name, or an earlier row, comes first */
    aliases = proa_realloc(aliases, (aliases_count + 1) * sizeof *aliases);
    aliases[aliases_count++] = a;
}

/* "max_tokens, max_completion_tokens", "bad_words (backend)" */
static void add_names(const char *text, const proa_option_row *row)
{
    while (text && *text) {
        size_t all = strcspn(text, ","), len = strcspn(text, ",(");
        while (len && text[len - 1] == ' ') len--;
        add_alias(text, len, row);
        text += all;
        while (*text == ',' || *text == ' ') text++;
    }
}

static void make_aliases(void)
{
    for (int i = 0; i < PROA_OPTION_COUNT; i++)
        add_alias(proa_option_rows[i].name, strlen(proa_option_rows[i].name), &proa_option_rows[i]);
    static const struct {
        const char *name;
        proa_option option;
    } of_vllm[] = {{"guided_json", PROA_OPTION_json_schema},
                   {"guided_regex", PROA_OPTION_regex},
                   {"guided_choice", PROA_OPTION_choice},
                   {"guided_grammar", PROA_OPTION_grammar}};
    for (size_t i = 0; i < PROA_COUNT(of_vllm); i++)
        add_alias(of_vllm[i].name, strlen(of_vllm[i].name), &proa_option_rows[of_vllm[i].option]);
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        const char *const columns[] = {row->ft, row->trtllm, row->openai, row->hf};
        for (size_t k = 0; k < PROA_COUNT(columns); k++) add_names(columns[k], row);
    }
    qsort(aliases, aliases_count, sizeof *aliases, by_name);
}

const proa_option_row *proa_option_by_alias(const char *name)
{
    alias wanted = {.row = NULL};
    size_t len = strlen(name);
    pthread_once(&aliases_once, make_aliases);
    if (len >= sizeof wanted.name) return NULL;
    memcpy(wanted.name, name, len);
    const alias *found = bsearch(&wanted, aliases, aliases_count, sizeof *aliases, by_name);
    return found ? found->row : NULL;
}

/* ---- values ---- */

static void mark_given(proa_options *o, const proa_option_row *row)
{
    o->given[row->option] = true;
}

static proa_status must_be(const proa_option_row *row, const char *what, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "option '%s' must be %s", row->name, what);
}

proa_status proa_option_set_integer_text(proa_options *o, const proa_option_row *row, int64_t value,
                                         proa_arena *arena, proa_err *err)
{
    return proa_options_set(o, row, proa_str_c(proa_arena_printf(arena, "%lld", (long long)value)), arena, err);
}

void proa_option_set_seed(proa_options *o, const proa_option_row *row, uint64_t seed)
{
    o->seed = seed;
    mark_given(o, row);
}

static proa_status check_ids(const proa_option_row *row, const int32_t *ids, int64_t count, int64_t most,
                             proa_status too_many, proa_err *err)
{
    if (count > most)
        return proa_err_set(err, too_many, __FILE__, __LINE__, "option '%s' has %lld ids, at most %lld are taken",
                            row->name, (long long)count, (long long)most);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] > PROA_VOCAB_MAX)
            return PROA_FAIL(err, INVALID, "option '%s' has the token id %lld", row->name, (long long)ids[i]);
    return PROA_OK;
}

proa_status proa_option_set_ids(proa_options *o, const proa_option_row *row, const int32_t *ids,
                                int64_t count, proa_arena *arena, proa_err *err)
{
    if (row->kind == PROA_OPTION_KIND_TOKENS) {
        PROA_TRY(check_ids(row, ids, count, PROA_WORD_IDS_MAX, PROA_LIMIT, err));
        int32_t *copy = PROA_ARENA_NEW(arena, int32_t, count);
        memcpy(copy, ids, (size_t)count * sizeof *copy);
        *(proa_tokens *)proa_option_field(o, row) = (proa_tokens){copy, (int32_t)count};
    } else {
        if (count == 1) return proa_option_set_number(o, row, (double)ids[0], err);
        PROA_TRY(check_ids(row, ids, count, PROA_END_IDS_MAX, PROA_INVALID, err));
        memcpy(o->end_ids, ids, (size_t)count * sizeof *ids);
        o->end_ids_count = (int32_t)count;
    }
    mark_given(o, row);
    return PROA_OK;
}

/* ---- texts ---- */

/* Lists replace what an earlier source gave. */
static void forget_strings(proa_options *o, const proa_option_row *row)
{
    if (row->kind == PROA_OPTION_KIND_STRINGS) *(proa_strings *)proa_option_field(o, row) = (proa_strings){0};
}

/* "[[5,6],[7]]" and "[5,6]" both add to a list of lists. */
static void add_json_words(proa_buf *json, proa_str text)
{
    while (text.len && strchr(" \t\r\n", text.ptr[text.len - 1])) text.len--;
    size_t inner = 1;
    while (inner < text.len && strchr(" \t\r\n", text.ptr[inner])) inner++;
    bool nested = inner < text.len && text.ptr[inner] == '[' && text.ptr[text.len - 1] == ']';
    if (nested) text.ptr++, text.len -= 2;
    proa_buf_char(json, json->len ? ',' : '[');
    proa_buf_str(json, text);
}

/* The sibling that takes words as text. */
static const proa_option_row *text_sibling(const proa_option_row *row)
{
    if (row->option == PROA_OPTION_stop_words) return &proa_option_rows[PROA_OPTION_stop_strings];
    if (row->option == PROA_OPTION_banned_words) return &proa_option_rows[PROA_OPTION_banned_strings];
    return NULL;
}

typedef struct texts { /* of one option, one by one */
    proa_options *o;
    const proa_option_row *row;
    proa_arena *arena;
    proa_buf words; /* JSON of lists of ids */
} texts;

static proa_status take_text(texts *t, proa_str text, proa_err *err)
{
    const proa_option_row *sibling = text_sibling(t->row);
    if (!text.len) return PROA_OK;
    if (t->row->kind == PROA_OPTION_KIND_STRINGS)
        return proa_option_add_string(t->o, t->row, text, t->arena, err);
    if (t->row->kind != PROA_OPTION_KIND_WORDS) return proa_options_set(t->o, t->row, text, t->arena, err);
    if (sibling && text.ptr[0] != '[') return proa_option_add_string(t->o, sibling, text, t->arena, err);
    add_json_words(&t->words, text);
    return PROA_OK;
}

static proa_status end_texts(texts *t, proa_err *err)
{
    proa_status status = PROA_OK;
    if (t->words.len) {
        proa_buf_char(&t->words, ']');
        status = proa_options_set(t->o, t->row, proa_buf_view(&t->words), t->arena, err);
    }
    proa_buf_release(&t->words);
    return status;
}

static texts begin_texts(proa_options *o, const proa_option_row *row, proa_arena *arena)
{
    texts t = {.o = o, .row = row, .arena = arena};
    proa_buf_init(&t.words, PROA_TEXT_BYTES_MAX);
    forget_strings(o, row);
    return t;
}

proa_status proa_option_set_texts(proa_options *o, const proa_option_row *row, const proa_str *list,
                                  int64_t count, proa_arena *arena, proa_err *err)
{
    texts all = begin_texts(o, row, arena);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < count && status == PROA_OK; i++) status = take_text(&all, list[i], err);
    proa_status ended = end_texts(&all, err);
    return status == PROA_OK ? ended : status;
}

/* ---- parameters ---- */

/* A text that is a JSON list of strings, or one string. */
static proa_status read_string_param(proa_options *o, const proa_option_row *row, proa_str text,
                                     proa_arena *arena, proa_err *err)
{
    proa_json *json = NULL;
    texts all = begin_texts(o, row, arena);
    proa_status status = PROA_OK;
    bool list = row->kind == PROA_OPTION_KIND_STRINGS && text.len && text.ptr[0] == '[' &&
                proa_json_parse_within(&json, text, PROA_REQUEST_NODES_MAX, row->name, NULL) == PROA_OK;
    if (!list) status = take_text(&all, text, err);
    for (int64_t i = 0; list && i < proa_json_len(json) && status == PROA_OK; i++) {
        const proa_json *one = proa_json_at(json, i);
        status = proa_json_kind(one) == PROA_JSON_STRING ? take_text(&all, proa_json_str(one), err)
                                                         : must_be(row, "a list of strings", err);
    }
    proa_json_free(json);
    proa_status ended = end_texts(&all, err);
    return status == PROA_OK ? ended : status;
}

static proa_status read_value_param(proa_options *o, const proa_option_row *row,
                                    const proa_infer_param *param, proa_arena *arena, proa_err *err)
{
    bool seed = row->kind == PROA_OPTION_KIND_U64, text = row->kind == PROA_OPTION_KIND_TEXT;
    if (text && param->kind == PROA_PARAM_INT)
        return proa_option_set_integer_text(o, row, param->i, arena, err);
    switch (param->kind) {
    case PROA_PARAM_STRING: return read_string_param(o, row, param->s, arena, err);
    case PROA_PARAM_BOOL: return proa_option_set_number(o, row, param->b, err);
    case PROA_PARAM_DOUBLE:
        if (seed) return must_be(row, "an integer", err);
        return proa_option_set_number(o, row, param->d, err);
    case PROA_PARAM_INT:
        if (seed) return proa_option_set_seed(o, row, (uint64_t)param->i), PROA_OK;
        return proa_option_set_number(o, row, (double)param->i, err);
    case PROA_PARAM_UINT:
        if (seed) return proa_option_set_seed(o, row, param->u), PROA_OK;
        return proa_option_set_number(o, row, (double)param->u, err);
    }
    return PROA_OK;
}

/* What other servers take and this engine cannot do: better refused than left out in silence. */
static const char *const refused[] = {"lora_name",   "lora_id",         "lora_weights",
                                      "lora_config", "response_format", "prompt_embedding_table",
                                      "image_url"};

/* TensorRT-LLM's guided decoding. Its kind "json" is an object or an array. */
#define GUIDE_TYPE "guided_decoding_guide_type"
#define GUIDE      "guided_decoding_guide"

proa_status proa_options_set_guide(proa_options *o, proa_str type, proa_str guide, proa_arena *arena,
                                   proa_err *err)
{
    static const struct {
        const char *type;
        proa_option option;
    } kinds[] = {{"json_schema", PROA_OPTION_json_schema},
                 {"regex", PROA_OPTION_regex},
                 {"ebnf_grammar", PROA_OPTION_grammar}};
    int shown = (int)(type.len < 40 ? type.len : 40);
    if (!type.len && !guide.len) return PROA_OK;
    if (!type.len) return PROA_FAIL(err, INVALID, "'" GUIDE "' needs '" GUIDE_TYPE "'");
    if (proa_str_is(type, "json"))
        return proa_options_set(o, &proa_option_rows[PROA_OPTION_json_schema],
                                proa_str_c("{\"type\":[\"object\",\"array\"]}"), arena, err);
    for (size_t i = 0; i < PROA_COUNT(kinds); i++) {
        if (!proa_str_is(type, kinds[i].type)) continue;
        if (!guide.len)
            return PROA_FAIL(err, INVALID, "'" GUIDE_TYPE "' is '%.*s', which needs '" GUIDE "'", shown,
                             type.ptr);
        return proa_options_set(o, &proa_option_rows[kinds[i].option], guide, arena, err);
    }
    return PROA_FAIL(err, INVALID, "'" GUIDE_TYPE "' is '%.*s', must be json, json_schema, regex or ebnf_grammar",
                     shown, type.ptr);
}

static bool is_guide(const char *name)
{
    return strcmp(name, GUIDE) == 0 || strcmp(name, GUIDE_TYPE) == 0;
}

static proa_status read_guide(proa_options *o, const proa_infer *r, proa_arena *arena, proa_err *err)
{
    const proa_infer_param *type = proa_infer_find_param(r, GUIDE_TYPE),
                           *guide = proa_infer_find_param(r, GUIDE);
    const proa_infer_param *both[] = {type, guide};
    const char *const names[] = {GUIDE_TYPE, GUIDE};
    proa_str values[2] = {{"", 0}, {"", 0}};
    for (int i = 0; i < 2; i++) {
        if (!both[i]) continue;
        if (both[i]->kind != PROA_PARAM_STRING)
            return PROA_FAIL(err, INVALID, "parameter '%s' must be a text", names[i]);
        values[i] = both[i]->s;
    }
    return proa_options_set_guide(o, values[0], values[1], arena, err);
}

static bool in_list(const char *name, const char *const *list)
{
    for (; list && *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* One letter too much, too few or another: a slip of the pen. */
static const char *nearest_alias(const char *name)
{
    if (strlen(name) < 5) return NULL;
    for (size_t i = 0; i < aliases_count; i++)
        if (proa_str_distance(name, aliases[i].name) <= 1) return aliases[i].name;
    return NULL;
}

static proa_status read_param(proa_options *o, const char *name, const proa_infer_param *param,
                              proa_arena *arena, proa_err *err)
{
    const proa_option_row *row = proa_option_by_alias(name);
    if (row) return read_value_param(o, row, param, arena, err);
    for (size_t i = 0; i < PROA_COUNT(refused); i++)
        if (strcmp(refused[i], name) == 0)
            return PROA_FAIL(err, UNSUPPORTED, "parameter '%s' is not supported by this engine", name);
    const char *meant = nearest_alias(name);
    if (meant) return PROA_FAIL(err, INVALID, "unknown option '%s' (did you mean '%s'?)", name, meant);
    return PROA_OK;
}

proa_status proa_options_read_params(proa_options *o, const proa_infer *r, const char *const *known_names,
                                     proa_arena *arena, proa_err *err)
{
    for (int32_t i = 0; i < r->params_count; i++) {
        const proa_infer_param *param = &r->params[i];
        char name[64];
        if (param->name.len >= sizeof name) continue;
        memcpy(name, param->name.ptr, param->name.len);
        name[param->name.len] = '\0';
        if (!in_list(name, known_names) && !is_guide(name)) PROA_TRY(read_param(o, name, param, arena, err));
    }
    return read_guide(o, r, arena, err);
}
