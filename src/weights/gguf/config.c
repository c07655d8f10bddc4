/* SPDX-License-Identifier: Apache-2.0
 * config.c - writes the config.json of a Hugging Face class from the metadata of a GGUF file. */
#include "weights/gguf/arch.h"

#include "base/checked.h"
#include <stdlib.h>

#define KEY_BYTES 128 /* of "ARCHITECTURE.key" */

/* ---- members ---- */

void proa_gguf_put_int(proa_buf *json, const char *key, int64_t value)
{
    proa_buf_printf(json, ", \"%s\": %lld", key, (long long)value);
}

void proa_gguf_put_number(proa_buf *json, const char *key, double value)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if ((float)strtod(text, NULL) == (float)value) break;
    }
    proa_buf_printf(json, ", \"%s\": %s", key, text);
}

void proa_gguf_put_bool(proa_buf *json, const char *key, bool value)
{
    proa_buf_printf(json, ", \"%s\": %s", key, value ? "true" : "false");
}

/* "ARCHITECTURE.key", NULL if it is too long to be known. */
static const char *full_key(char out[KEY_BYTES], const proa_gguf_arch *arch, const char *key)
{
    return snprintf(out, KEY_BYTES, "%s.%s", arch->name, key) < KEY_BYTES ? out : NULL;
}

proa_status proa_gguf_arch_int(int64_t *out, const proa_gguf *g, const proa_gguf_arch *arch, const char *key,
                               proa_err *err)
{
    char full[KEY_BYTES];
    PROA_ASSERT(full_key(full, arch, key));
    return proa_gguf_get_int(out, g, full, 0, INT32_MAX, err);
}

proa_status proa_gguf_arch_number(double *out, const proa_gguf *g, const proa_gguf_arch *arch,
                                  const char *key, proa_err *err)
{
    char full[KEY_BYTES];
    PROA_ASSERT(full_key(full, arch, key));
    PROA_TRY(proa_gguf_get_double(out, g, full, err));
    if (*out >= -1e30 && *out <= 1e30) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s: '%s' is %g, must be a finite number", g->what, full, *out);
}

/* llama.cpp counts the layers that predict further tokens too, which are the last ones. */
static proa_status put_layers(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, const char *key,
                              proa_err *err)
{
    int64_t layers = 0, further = 0;
    PROA_TRY(proa_gguf_arch_int(&layers, g, arch, "block_count", err));
    PROA_TRY(proa_gguf_arch_int(&further, g, arch, "nextn_predict_layers", err));
    if (further >= proa_max64(layers, 1))
        return PROA_FAIL(err, INVALID, "%s: %lld of %lld layers predict further tokens", g->what,
                         (long long)further, (long long)layers);
    proa_gguf_put_int(json, key, layers - further);
    return PROA_OK;
}

static proa_status put_key(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch,
                           const proa_gguf_key *key, proa_err *err)
{
    char full[KEY_BYTES];
    int64_t whole = 0;
    double number = 0;
    bool on = false;
    PROA_ASSERT(full_key(full, arch, key->gguf));
    if (!proa_gguf_find(g, full))
        return key->required ? PROA_FAIL(err, INVALID, "%s: '%s' is missing", g->what, full) : PROA_OK;
    if (strcmp(key->gguf, "block_count") == 0) return put_layers(json, g, arch, key->hf, err);
    switch (key->kind) {
    case PROA_GGUF_KEY_INT:
        PROA_TRY(proa_gguf_get_int(&whole, g, full, 0, INT32_MAX, err));
        proa_gguf_put_int(json, key->hf, whole);
        break;
    case PROA_GGUF_KEY_NUMBER:
        PROA_TRY(proa_gguf_arch_number(&number, g, arch, key->gguf, err));
        proa_gguf_put_number(json, key->hf, number);
        break;
    case PROA_GGUF_KEY_BOOL:
        PROA_TRY(proa_gguf_get_bool(&on, g, full, err));
        proa_gguf_put_bool(json, key->hf, on);
        break;
    }
    return PROA_OK;
}

/* ---- ids ---- */

/* Texts of control tokens that end an answer, whichever id the metadata name (after llama.cpp's llama-vocab.cpp). */
static const char *const ends[] = {"<|eot_id|>", "<|im_end|>",      "<end_of_turn>",      "<|endoftext|>",
                                   "<|eom_id|>", "<|end_of_text|>", "<end_of_utterance>", "<EOT>",
                                   "[EOT]",      "<|end|>"};
#define HARMONY_END "<|return|>" /* where it is, <|end|> ends a message, not the answer (gpt-oss) */

static bool ends_answer(proa_str token, bool harmony)
{
    for (size_t i = 0; i < PROA_COUNT(ends); i++)
        if (proa_str_is(token, ends[i])) return !(harmony && proa_str_is(token, "<|end|>"));
    return harmony && (proa_str_is(token, HARMONY_END) || proa_str_is(token, "<|call|>"));
}

typedef struct id_list {
    int64_t id[16];
    int count;
} id_list;

static void add_id(id_list *list, int64_t id)
{
    for (int i = 0; i < list->count; i++)
        if (list->id[i] == id) return;
    if (id >= 0 && list->count < (int)PROA_COUNT(list->id)) list->id[list->count++] = id;
}

/* The control tokens that end an answer by their text. */
static proa_status add_ends_by_text(id_list *list, const proa_gguf *g, proa_err *err)
{
    const proa_gguf_value *tokens, *types;
    PROA_TRY(proa_gguf_get_array(&tokens, g, "tokenizer.ggml.tokens", PROA_GGUF_STRING, err));
    PROA_TRY(proa_gguf_get_array(&types, g, "tokenizer.ggml.token_type", PROA_GGUF_I32, err));
    if (!tokens || !types || types->count < tokens->count) return PROA_OK;
    bool harmony = false;
    const unsigned char *at = tokens->at;
    for (int64_t i = 0; i < tokens->count; i++) harmony |= proa_str_is(proa_gguf_next_str(&at), HARMONY_END);
    at = tokens->at;
    for (int64_t i = 0; i < tokens->count; i++) {
        proa_str token = proa_gguf_next_str(&at);
        int64_t type;
        if (ends_answer(token, harmony) && proa_gguf_int_at(&type, types, i) && type == 3) add_id(list, i);
    }
    return PROA_OK;
}

static proa_status put_ids(proa_buf *json, const proa_gguf *g, int64_t vocab, proa_err *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    static const char *const others[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                            {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    id_list list = {.count = 0};
    for (size_t i = 0; i < PROA_COUNT(keys); i++) {
        int64_t id = -1;
        PROA_TRY(proa_gguf_get_int(&id, g, keys[i], 0, vocab - 1, err));
        add_id(&list, id);
    }
    PROA_TRY(add_ends_by_text(&list, g, err));
    for (int i = 0; i < list.count; i++)
        proa_buf_printf(json, i ? ", %lld" : ", \"eos_token_id\": [%lld", (long long)list.id[i]);
    if (list.count) proa_buf_char(json, ']');
    for (size_t i = 0; i < PROA_COUNT(others); i++) {
        int64_t id = -1;
        PROA_TRY(proa_gguf_get_int(&id, g, others[i][0], 0, vocab - 1, err));
        if (id >= 0) proa_gguf_put_int(json, others[i][1], id);
    }
    return PROA_OK;
}

/* ---- the configuration ---- */

/* Rows of the embedding table. */
static proa_status put_vocab(proa_buf *json, const proa_gguf *g, const proa_gguf_arch *arch, int64_t *vocab,
                             proa_err *err)
{
    const proa_gguf_tensor *table = proa_gguf_find_tensor(g, "token_embd.weight");
    const proa_gguf_value *tokens;
    PROA_TRY(proa_gguf_get_array(&tokens, g, "tokenizer.ggml.tokens", PROA_GGUF_STRING, err));
    *vocab = tokens ? tokens->count : 0;
    PROA_TRY(proa_gguf_arch_int(vocab, g, arch, "vocab_size", err));
    if (table && table->rank == 2) *vocab = table->shape[0];
    if (*vocab < 1 || *vocab > PROA_VOCAB_MAX)
        return PROA_FAIL(err, INVALID, "%s: the vocabulary has %lld tokens, must have 1 to %d", g->what,
                         (long long)*vocab, PROA_VOCAB_MAX);
    proa_gguf_put_int(json, "vocab_size", *vocab);
    return PROA_OK;
}

proa_status proa_gguf_config(proa_buf *out, const proa_gguf *g, const proa_gguf_arch *arch, proa_err *err)
{
    int64_t vocab = 0;
    proa_buf_printf(out, "{\"architectures\": [\"%s\"]", arch->hf);
    PROA_TRY(put_vocab(out, g, arch, &vocab, err));
    proa_gguf_put_bool(out, "tie_word_embeddings", !proa_gguf_find_tensor(g, "output.weight"));
    for (const proa_gguf_key *key = arch->keys; key->gguf; key++) PROA_TRY(put_key(out, g, arch, key, err));
    if (arch->fixed) proa_buf_printf(out, ", %s", arch->fixed);
    PROA_TRY(put_ids(out, g, vocab, err));
    if (arch->finish) PROA_TRY(arch->finish(g, arch, out, err));
    proa_buf_char(out, '}');
    return PROA_OK;
}
