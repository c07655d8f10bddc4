/* SPDX-License-Identifier: Apache-2.0
 * config.c - reads tokenizer_config.json, and the older special_tokens_map.json and added_tokens.json, for tokenizer
 * files that do not say which special tokens there are and which surround a text. */
#include "base/limits.h"
#include "text/load/load.h"
#include <string.h>

/* ---- reading it ---- */

/* The document of a file, or NULL if there is none. */
static proa_status read_object(proa_json **out, const proa_files *files, const char *name, proa_err *err)
{
    *out = NULL;
    if (!proa_files_has(files, name)) return PROA_OK;
    PROA_TRY(proa_files_json(out, files, name, PROA_CONFIG_BYTES_MAX, err));
    proa_json_type kind = proa_json_kind(*out);
    if (kind == PROA_JSON_OBJECT) return PROA_OK;
    proa_json_free(*out);
    *out = NULL;
    return PROA_FAIL(err, INVALID, "%s is %s, an object is needed", name, proa_json_kind_name(kind));
}

static void write_key(proa_buf *out, const char *key)
{
    size_t n = out->len;
    while (n && strchr(" \t\r\n", out->ptr[n - 1])) n--;
    proa_buf_printf(out, "%s\"%s\":", n && out->ptr[n - 1] == '{' ? "" : ",", key);
}

/* A token: a string, or an object with content and flags. */
static proa_status write_token(proa_buf *out, const proa_json *token, proa_err *err)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word", "normalized"};
    bool object = proa_json_kind(token) == PROA_JSON_OBJECT;
    if (!object) return proa_buf_json_str(out, proa_json_str(token)), PROA_OK;
    proa_buf_str(out, proa_str_c("{\"content\":"));
    proa_buf_json_str(out, proa_json_str(proa_json_get(token, "content")));
    for (size_t i = 0; i < PROA_COUNT(flags); i++) {
        bool on = false;
        PROA_TRY(proa_json_get_bool(&on, token, flags[i], err));
        proa_buf_printf(out, ",\"%s\":%s", flags[i], on ? "true" : "false");
    }
    proa_buf_char(out, '}');
    return PROA_OK;
}

static const char *const token_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token"};

/* special_tokens_map.json: the same keys; it wins. */
static proa_status write_map(proa_buf *out, const proa_json *map, proa_err *err)
{
    for (size_t i = 0; i < PROA_COUNT(token_keys); i++) {
        const proa_json *token = proa_json_get(map, token_keys[i]);
        if (!token) continue;
        write_key(out, token_keys[i]);
        PROA_TRY(write_token(out, token, err));
    }
    const proa_json *more = proa_json_get(map, "additional_special_tokens");
    if (proa_json_kind(more) != PROA_JSON_ARRAY) return PROA_OK;
    write_key(out, "additional_special_tokens");
    for (int64_t i = 0; i < proa_json_len(more); i++) {
        proa_buf_char(out, i ? ',' : '[');
        PROA_TRY(write_token(out, proa_json_at(more, i), err));
    }
    proa_buf_str(out, proa_str_c(proa_json_len(more) ? "]" : "[]"));
    return PROA_OK;
}

static bool is_special(const proa_json *config, proa_str content)
{
    for (size_t i = 0; i < PROA_COUNT(token_keys); i++)
        if (proa_str_eq(proa_config_token(config, token_keys[i]), content)) return true;
    const proa_json *more = proa_json_get(config, "additional_special_tokens");
    for (int64_t i = 0; proa_json_kind(more) == PROA_JSON_ARRAY && i < proa_json_len(more); i++) {
        const proa_json *token = proa_json_at(more, i);
        if (proa_json_kind(token) == PROA_JSON_OBJECT) token = proa_json_get(token, "content");
        if (proa_str_eq(proa_json_str(token), content)) return true;
    }
    return false;
}

/* added_tokens.json: {"content": id}. It becomes added_tokens_decoder. */
static proa_status write_added(proa_buf *out, const proa_json *added, const proa_json *config,
                               const proa_json *map, proa_err *err)
{
    bool first = true;
    write_key(out, "added_tokens_decoder");
    proa_buf_char(out, '{');
    for (proa_json_iter it = proa_json_begin(added); proa_json_next(&it); first = false) {
        int64_t id = proa_json_kind(it.value) == PROA_JSON_INT ? proa_json_int(it.value) : -1;
        if (id < 0 || id >= PROA_VOCAB_MAX)
            return PROA_FAIL(err, INVALID, "added_tokens.json: the id of '%.*s' is not in 0..%d",
                             it.key.len > 40 ? 40 : (int)it.key.len, it.key.ptr, PROA_VOCAB_MAX - 1);
        bool special = is_special(config, it.key) || is_special(map, it.key);
        proa_buf_printf(out, "%s\"%lld\":{\"special\":%s,\"normalized\":%s,\"content\":", first ? "" : ",",
                        (long long)id, special ? "true" : "false", special ? "false" : "true");
        proa_buf_json_str(out, it.key);
        proa_buf_char(out, '}');
    }
    proa_buf_char(out, '}');
    return PROA_OK;
}

/* Which class a model's tokenizer has, for folders that do not say it. */
static const char *const class_of_model[][2] = {
    {"roberta", "RobertaTokenizer"},
    {"longformer", "LongformerTokenizer"},
    {"bart", "BartTokenizer"},
    {"led", "LEDTokenizer"},
    {"mvp", "MvpTokenizer"},
    {"blenderbot", "BlenderbotTokenizer"},
    {"deberta", "DebertaTokenizer"},
    {"qwen2", "Qwen2Tokenizer"},
    {"qwen2_moe", "Qwen2Tokenizer"},
    {"qwen3", "Qwen2Tokenizer"},
    {"qwen3_moe", "Qwen2Tokenizer"},
    {"xlm-roberta", "XLMRobertaTokenizer"},
    {"camembert", "CamembertTokenizer"},
    {"mbart", "MBartTokenizer"},
    {"m2m_100", "M2M100Tokenizer"},
    {"xglm", "XGLMTokenizer"},
    {"byt5", "ByT5Tokenizer"},
};

static proa_status write_class(proa_buf *out, const proa_files *files, proa_err *err)
{
    proa_json *model = NULL;
    PROA_TRY(read_object(&model, files, "config.json", err));
    proa_str class = proa_json_str(proa_json_get(model, "tokenizer_class"));
    proa_str type = proa_json_str(proa_json_get(model, "model_type"));
    for (size_t i = 0; class.len == 0 && i < PROA_COUNT(class_of_model); i++)
        if (proa_str_is(type, class_of_model[i][0])) class = proa_str_c(class_of_model[i][1]);
    if (class.len) {
        write_key(out, "tokenizer_class");
        proa_buf_json_str(out, class);
    }
    proa_json_free(model);
    return PROA_OK;
}

/* Appends the members of other files to the text of tokenizer_config.json, whose last bracket is left out. The parser
 * keeps the last of two members with the same key, so the other files win. */
static proa_status write_others(proa_buf *out, const proa_files *files, const proa_json *config, proa_err *err)
{
    proa_json *map = NULL, *added = NULL;
    proa_status status = PROA_OK;
    if (!proa_json_get(config, "added_tokens_decoder")) {
        PROA_TRY_OUT(read_object(&map, files, "special_tokens_map.json", err));
        PROA_TRY_OUT(read_object(&added, files, "added_tokens.json", err));
    }
    if (map) PROA_TRY_OUT(write_map(out, map, err));
    if (added) PROA_TRY_OUT(write_added(out, added, config, map, err));
    if (!proa_json_get(config, "tokenizer_class")) PROA_TRY_OUT(write_class(out, files, err));
out:
    proa_json_free(map);
    proa_json_free(added);
    return status;
}

proa_status proa_tokenizer_config_read(proa_json **out, const proa_files *files, proa_err *err)
{
    static const char name[] = "tokenizer_config.json";
    proa_json *config = NULL;
    proa_buf text = {0};
    *out = NULL;
    PROA_TRY(read_object(&config, files, name, err));
    proa_status status = PROA_OK;
    if (config) PROA_TRY_OUT(proa_files_read(&text, files, name, PROA_CONFIG_BYTES_MAX, err));
    else proa_buf_init(&text, (size_t)PROA_CONFIG_BYTES_MAX);
    text.bytes_max = 4 * (size_t)PROA_CONFIG_BYTES_MAX; /* the texts of four files */
    while (text.len && text.ptr[text.len - 1] != '}') text.len--;
    if (text.len) text.len--;
    else proa_buf_char(&text, '{');
    size_t before = text.len;
    PROA_TRY_OUT(write_others(&text, files, config, err));
    if (text.len == before) { /* nothing more: the document as it is */
        *out = config;
        config = NULL;
        goto out;
    }
    proa_buf_char(&text, '}');
    status = text.full ? PROA_FAIL(err, LIMIT, "the files of special tokens are too long")
                       : proa_json_parse(out, proa_buf_view(&text), name, err);
out:
    proa_json_free(config);
    proa_buf_release(&text);
    return status;
}

/* ---- asking ---- */

proa_str proa_config_token(const proa_json *config, const char *key)
{
    const proa_json *j = proa_json_get(config, key);
    if (proa_json_kind(j) == PROA_JSON_OBJECT) j = proa_json_get(j, "content");
    return proa_json_str(j);
}

bool proa_config_adds(const proa_json *config, const char *flag, const char *const *classes)
{
    const proa_json *j = proa_json_get(config, flag);
    if (proa_json_kind(j) == PROA_JSON_BOOL) return proa_json_bool(j);
    proa_str class = proa_json_str(proa_json_get(config, "tokenizer_class"));
    for (; *classes; classes++)
        if (proa_str_starts(class, proa_str_c(*classes))) return true;
    return false;
}

proa_status proa_config_id(int64_t *id, proa_str key, proa_err *err)
{
    if (key.len == 0 || key.len > 9) return PROA_FAIL(err, INVALID, "added_tokens_decoder has a broken id");
    *id = 0;
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9')
            return PROA_FAIL(err, INVALID, "added_tokens_decoder has the id '%.*s'", (int)key.len, key.ptr);
        *id = 10 * *id + (key.ptr[i] - '0');
    }
    return PROA_OK;
}
