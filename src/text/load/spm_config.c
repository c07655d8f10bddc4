/* SPDX-License-Identifier: Apache-2.0
 * spm_config.c - what tokenizer_config.json says about a SentencePiece model: added tokens, and the tokens around a
 * text. */
#include "base/limits.h"
#include "text/load/load.h"

/* "added_tokens_decoder": {"32000": {"content": "<extra>", "special": true, ...}, ...} */
static proa_status put_added(proa_tokenizer *tok, const proa_json_iter *it, proa_err *err)
{
    proa_added_token t = {.id = 0};
    proa_loader ld = {.tok = tok};
    int64_t id = 0;
    PROA_TRY(proa_config_id(&id, it->key, err));
    t.id = (int32_t)id;
    PROA_TRY(proa_load_member(&ld, it->value, "content", &t.content, err));
    PROA_TRY(proa_json_get_bool(&t.special, it->value, "special", err));
    PROA_TRY(proa_json_get_bool(&t.lstrip, it->value, "lstrip", err));
    PROA_TRY(proa_json_get_bool(&t.rstrip, it->value, "rstrip", err));
    PROA_TRY(proa_json_get_bool(&t.single_word, it->value, "single_word", err));
    return proa_added_put(tok, t, err);
}

/* Sets the template from the tokens before and after a text; both texts of a pair get them. */
static void surround_by_tokens(proa_tokenizer *tok, int32_t before, int32_t after)
{
    proa_post_template *t[2] = {&tok->post.single, &tok->post.pair};
    for (int pair = 0; pair < 2; pair++) {
        t[pair]->ptr = PROA_ARENA_NEW(&tok->arena, proa_post_piece, 6);
        for (int text = 0; text <= pair; text++) {
            const int32_t around[] = {before, -1, after};
            for (int k = 0; k < 3; k++) {
                proa_post_piece *p = &t[pair]->ptr[t[pair]->len];
                if (k != 1 && around[k] < 0) continue;
                p->sequence = text;
                t[pair]->len++;
                if (k == 1) continue;
                p->ids = PROA_ARENA_NEW(&tok->arena, int32_t, 1);
                *p->ids = around[k];
                p->ids_len = 1;
            }
        }
    }
    tok->post.on = true;
}

static int32_t id_of(const proa_tokenizer *tok, const proa_json *config, const char *key, const char *fallback)
{
    proa_str name = proa_config_token(config, key);
    return proa_vocab_find(&tok->vocab, name.len ? name : proa_str_c(fallback));
}

proa_status proa_load_spm_config(proa_tokenizer *tok, const proa_json *config, proa_err *err)
{
    static const char *const bos_classes[] = {"Llama", "CodeLlama", "Gemma", NULL};
    static const char *const eos_classes[] = {"T5", "MT5", "Pegasus", "Marian", NULL};
    const proa_json *added = proa_json_get(config, "added_tokens_decoder");
    int64_t n = proa_json_len(added);
    if (n > PROA_VOCAB_MAX)
        return PROA_FAIL(err, LIMIT, "added_tokens_decoder has %lld entries", (long long)n);
    if (proa_json_kind(added) != PROA_JSON_OBJECT) n = 0;
    const proa_fairseq *order = proa_fairseq_of(config);
    if (n > 0 || order) proa_added_init(tok, n + (order ? proa_fairseq_added_max(order) : 0));
    if (n > 0) {
        for (proa_json_iter it = proa_json_begin(added); proa_json_next(&it);)
            PROA_TRY(put_added(tok, &it, err));
    }
    if (order) return proa_fairseq_finish(tok, order, config, err);
    int32_t bos = -1, eos = -1;
    if (proa_config_adds(config, "add_bos_token", bos_classes)) bos = id_of(tok, config, "bos_token", "<s>");
    if (proa_config_adds(config, "add_eos_token", eos_classes)) eos = id_of(tok, config, "eos_token", "</s>");
    if (bos >= 0 || eos >= 0) surround_by_tokens(tok, bos, eos);
    return PROA_OK;
}
