/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.c - reads tokenizer.ggml.* and chooses the files that they become; writes tokenizer_config.json. */
#include "weights/gguf/tokenizer.h"

#include "base/checked.h"

/* The models of tokenizers, by tokenizer.ggml.model. Special tokens that the file does not name have the ids of the
 * model that was first of its kind (llama.cpp's llama-vocab.cpp). */
typedef enum model_kind { KIND_BPE, KIND_WORDPIECE, KIND_SPM, KIND_UNIGRAM } model_kind;

static const struct model_row {
    const char *name;
    model_kind kind;
    const char *file;
    int64_t special[PROA_GGUF_SPECIAL_COUNT];
    bool add_bos, add_eos, add_sep, space_prefix;
} models[] = {
    {"llama", KIND_SPM, "tokenizer.model", {1, 2, 0, -1, -1, -1, -1}, true, false, false, true},
    {"t5", KIND_UNIGRAM, "tokenizer.model", {-1, 1, 2, -1, 0, -1, -1}, false, true, false, true},
    {"bert", KIND_WORDPIECE, "tokenizer.json", {-1, -1, 100, 102, 0, 101, 103}, true, false, true, false},
    {"gpt2", KIND_BPE, "tokenizer.json", {-1, -1, -1, -1, -1, -1, -1}, false, false, false, false},
    {"gemma4", KIND_BPE, "tokenizer.json", {-1, -1, -1, -1, -1, -1, -1}, true, false, false, false},
};

static const struct model_row *find_model(proa_str name)
{
    for (size_t i = 0; i < PROA_COUNT(models); i++)
        if (proa_str_is(name, models[i].name)) return &models[i];
    return NULL;
}

/* ---- reading ---- */

/* An array of at least as many elements as there are tokens. */
static proa_status read_list(const proa_gguf_vocab *v, const proa_gguf_value **out, const char *key,
                             proa_gguf_type element, proa_err *err)
{
    PROA_TRY(proa_gguf_get_array(out, v->g, key, element, err));
    if (!*out || (*out)->count >= v->count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s: '%s' has %lld elements for %lld tokens", v->g->what, key,
                     (long long)(*out)->count, (long long)v->count);
}

static proa_status read_tokens(proa_gguf_vocab *v, proa_err *err)
{
    static const char charsmap[] = "tokenizer.ggml.precompiled_charsmap"; /* of bytes, in older files signed */
    const proa_gguf *g = v->g;
    PROA_TRY(proa_gguf_get_array(&v->tokens, g, "tokenizer.ggml.tokens", PROA_GGUF_STRING, err));
    if (!v->tokens || v->tokens->count == 0)
        return PROA_FAIL(err, INVALID, "%s: 'tokenizer.ggml.tokens' is missing or empty", g->what);
    v->count = v->tokens->count;
    if (v->count > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "%s: %lld tokens, at most %d are read", g->what, (long long)v->count,
                         PROA_VOCAB_MAX);
    PROA_TRY(read_list(v, &v->scores, "tokenizer.ggml.scores", PROA_GGUF_F32, err));
    PROA_TRY(read_list(v, &v->types, "tokenizer.ggml.token_type", PROA_GGUF_I32, err));
    PROA_TRY(proa_gguf_get_array(&v->merges, g, "tokenizer.ggml.merges", PROA_GGUF_STRING, err));
    v->charsmap = proa_gguf_find(g, charsmap);
    if (v->charsmap && v->charsmap->type == PROA_GGUF_ARRAY && v->charsmap->element == PROA_GGUF_I8)
        return PROA_OK;
    return proa_gguf_get_array(&v->charsmap, g, charsmap, PROA_GGUF_U8, err);
}

static proa_status read_special(proa_gguf_vocab *v, const struct model_row *row, proa_err *err)
{
    static const char *const keys[] = {
#define KEY(name, key, member) "tokenizer.ggml." key "_token_id",
        PROA_GGUF_SPECIAL_LIST(KEY)
#undef KEY
    };
    for (int i = 0; i < PROA_GGUF_SPECIAL_COUNT; i++) {
        v->special_id[i] = row->special[i] < v->count ? row->special[i] : -1;
        PROA_TRY(proa_gguf_get_int(&v->special_id[i], v->g, keys[i], 0, v->count - 1, err));
    }
    /* llama.cpp knows BERT's [CLS] as the token that begins a text */
    if (row->kind == KIND_WORDPIECE && !proa_gguf_find(v->g, keys[PROA_GGUF_CLS]) &&
        v->special_id[PROA_GGUF_BOS] >= 0)
        v->special_id[PROA_GGUF_CLS] = v->special_id[PROA_GGUF_BOS];
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);)
        for (int i = 0; i < PROA_GGUF_SPECIAL_COUNT; i++)
            if (v->special_id[i] == walk.id && walk.text.ptr != walk.empty) v->special[i] = walk.text;
    return PROA_OK;
}

static proa_status read_pretokenizer(proa_gguf_vocab *v, const struct model_row *row, proa_err *err)
{
    proa_str name = {"", 0};
    if (row->kind != KIND_BPE) return PROA_OK;
    PROA_TRY(proa_gguf_get_str(&name, v->g, "tokenizer.ggml.pre", err));
    if (name.len == 0 && !proa_str_is(v->model, "gpt2")) name = v->model;
    v->pre = proa_gguf_pretokenizer_of(name);
    if (v->pre) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "%s: 'tokenizer.ggml.pre' '%.*s' is not supported", v->g->what,
                     (int)proa_min64((int64_t)name.len, 60), name.ptr);
}

static proa_status read_flags(proa_gguf_vocab *v, const struct model_row *row, proa_err *err)
{
    static const char *const keys[] = {"tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.add_eos_token",
                                       "tokenizer.ggml.add_sep_token",
                                       "tokenizer.ggml.add_space_prefix",
                                       "tokenizer.ggml.remove_extra_whitespaces",
                                       "tokenizer.ggml.normalizer.lowercase"};
    bool *const flags[] = {&v->add_bos,      &v->add_eos, &v->add_sep,
                           &v->space_prefix, &v->squeeze, &v->lowercase};
    v->add_bos = row->add_bos || (v->pre && v->pre->add_bos);
    v->add_eos = row->add_eos, v->add_sep = row->add_sep;
    v->space_prefix = row->space_prefix, v->lowercase = true;
    for (size_t i = 0; i < PROA_COUNT(keys); i++) PROA_TRY(proa_gguf_get_bool(flags[i], v->g, keys[i], err));
    return PROA_OK;
}

/* ---- writing ---- */

static proa_status write_large(const void *arg, proa_buf *out, proa_err *err)
{
    const proa_gguf_vocab *v = arg;
    const proa_weights_file *file = &v->w->files[v->file];
    if (file->path && !file->map.ptr)
        return PROA_FAIL(err, IO, "%s: is not mapped any more: its tokenizer cannot be read", v->g->what);
    switch (find_model(v->model)->kind) {
    case KIND_BPE: proa_gguf_write_bpe(out, v); break;
    case KIND_WORDPIECE: proa_gguf_write_wordpiece(out, v); break;
    case KIND_SPM: proa_gguf_write_spm(out, v, false); break;
    case KIND_UNIGRAM: proa_gguf_write_spm(out, v, true); break;
    }
    if (!out->full) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "%s: a tokenizer of more than %zu bytes", v->g->what, out->bytes_max);
}

/* tokenizer.chat_template, or a list with those of other names (tokenizer.chat_template.NAME) after it. */
static proa_status write_templates(proa_buf *out, const proa_gguf_vocab *v, proa_err *err)
{
    const proa_str prefix = proa_str_c("tokenizer.chat_template.");
    proa_str text = {NULL, 0};
    PROA_TRY(proa_gguf_get_str(&text, v->g, "tokenizer.chat_template", err));
    if (!text.ptr) return PROA_OK;
    proa_buf_printf(out, ", \"chat_template\": [{\"name\": \"default\", \"template\": ");
    proa_buf_json_str(out, text);
    for (int64_t i = 0; i < v->g->value_count; i++) {
        const proa_gguf_value *value = &v->g->values[i];
        if (value->type != PROA_GGUF_STRING || !proa_str_starts(value->key, prefix)) continue;
        const unsigned char *at = value->at;
        proa_buf_printf(out, "}, {\"name\": ");
        proa_buf_json_str(out, (proa_str){value->key.ptr + prefix.len, value->key.len - prefix.len});
        proa_buf_printf(out, ", \"template\": ");
        proa_buf_json_str(out, proa_gguf_next_str(&at));
    }
    proa_buf_printf(out, "}]");
    return PROA_OK;
}

/* Tokens that are found in a text before SentencePiece's model sees it, as llama.cpp finds them: control tokens, and
 * those that users defined. */
static void write_added(proa_buf *out, const proa_gguf_vocab *v)
{
    const char *comma = "";
    proa_buf_printf(out, ", \"added_tokens_decoder\": {");
    for (proa_gguf_token_walk walk = {.v = v}; proa_gguf_next_token(&walk);) {
        bool special = walk.type == PROA_GGUF_TOKEN_CONTROL || walk.type == PROA_GGUF_TOKEN_UNKNOWN;
        if (!special && walk.type != PROA_GGUF_TOKEN_USER) continue;
        proa_buf_printf(out, "%s\"%lld\": {\"special\": %s, \"content\": ", comma, (long long)walk.id,
                        special ? "true" : "false");
        proa_buf_json_str(out, walk.text);
        proa_buf_char(out, '}');
        comma = ", ";
    }
    proa_buf_char(out, '}');
}

static proa_status write_config(proa_buf *out, const proa_gguf_vocab *v, bool spm, proa_err *err)
{
    static const char *const members[] = {
#define MEMBER(name, key, member) member,
        PROA_GGUF_SPECIAL_LIST(MEMBER)
#undef MEMBER
    };
    proa_buf_printf(out, "{\"add_bos_token\": %s, \"add_eos_token\": %s", v->add_bos ? "true" : "false",
                    v->add_eos ? "true" : "false");
    for (int i = 0; i < PROA_GGUF_SPECIAL_COUNT; i++) {
        if (!v->special[i].ptr) continue;
        proa_buf_printf(out, ", \"%s\": ", members[i]);
        proa_buf_json_str(out, v->special[i]);
    }
    if (spm) write_added(out, v);
    PROA_TRY(write_templates(out, v, err));
    proa_buf_char(out, '}');
    if (!out->full) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "%s: special tokens and chat templates of more than %zu bytes", v->g->what,
                     out->bytes_max);
}

static proa_status add_config(proa_weights *w, const proa_gguf_vocab *v, bool spm, proa_err *err)
{
    proa_buf out;
    proa_buf_init(&out, PROA_CONFIG_BYTES_MAX);
    proa_status status = write_config(&out, v, spm, err);
    if (status == PROA_OK) {
        proa_str text = {proa_arena_strdup(&w->arena, proa_buf_view(&out)), out.len};
        proa_weights_add_made(w, (proa_made_file){.name = "tokenizer_config.json", .text = text});
    }
    proa_buf_release(&out);
    return status;
}

proa_status proa_gguf_add_tokenizer(proa_weights *w, const proa_gguf *g, int32_t file, proa_err *err)
{
    proa_str model = {"", 0};
    PROA_TRY(proa_gguf_get_str(&model, g, "tokenizer.ggml.model", err));
    if (model.len == 0 || proa_str_is(model, "no_vocab") || proa_str_is(model, "none")) return PROA_OK;
    const struct model_row *row = find_model(model);
    if (!row)
        return PROA_FAIL(err, UNSUPPORTED, "%s: 'tokenizer.ggml.model' '%.*s' is not supported", g->what,
                         (int)proa_min64((int64_t)model.len, 60), model.ptr);
    proa_gguf_vocab *v = PROA_ARENA_NEW(&w->arena, proa_gguf_vocab, 1);
    *v = (proa_gguf_vocab){.g = g, .w = w, .file = file, .model = proa_str_c(row->name)};
    PROA_TRY(read_tokens(v, err));
    PROA_TRY(read_special(v, row, err));
    PROA_TRY(read_pretokenizer(v, row, err));
    PROA_TRY(read_flags(v, row, err));
    proa_weights_add_made(w, (proa_made_file){.name = row->file, .write = write_large, .arg = v});
    return add_config(w, v, row->kind == KIND_SPM || row->kind == KIND_UNIGRAM, err);
}
