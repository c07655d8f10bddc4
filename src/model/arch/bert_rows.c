/* SPDX-License-Identifier: Apache-2.0
 * bert_rows.c - what the rows of BERT's family read from config.json alike. */
#include "model/arch/bert_rows.h"

#include "base/checked.h"

proa_status proa_bert_check_positions(const proa_json *json, const char *only, proa_err *err)
{
    proa_str positions = proa_str_c(only);
    PROA_TRY(proa_json_get_str(&positions, json, "position_embedding_type", err));
    if (proa_str_is(positions, only)) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'position_embedding_type' '%.*s' is not supported (%s is)",
                     (int)positions.len, positions.ptr, only);
}

proa_status proa_bert_check_switch(const proa_json *json, const char *key, bool only, proa_err *err)
{
    bool value = only;
    PROA_TRY(proa_json_get_bool(&value, json, key, err));
    if (value == only) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'%s' %s is not supported", key, value ? "true" : "false");
}

proa_status proa_bert_check_summary(const proa_json *json, const proa_summary *only, proa_err *err)
{
    proa_str type = proa_str_c(only->type);
    PROA_TRY(proa_json_get_str(&type, json, "summary_type", err));
    if (!proa_str_is(type, only->type))
        return PROA_FAIL(err, UNSUPPORTED, "'summary_type' '%.*s' is not supported (%s is)",
                         (int)proa_min64((int64_t)type.len, 60), type.ptr, only->type);
    PROA_TRY(proa_bert_check_switch(json, "summary_use_proj", only->projected, err));
    return only->projected ? proa_bert_check_switch(json, "summary_proj_to_labels", false, err) : PROA_OK;
}

void proa_bert_set_choice(proa_config *c)
{
    c->labels = 1;
    c->regression = true;
}

/* The padding token has the position pad_token_id, the first token of a text the one after it. */
proa_status proa_roberta_read_positions(proa_config *c, const proa_json *json, int64_t pad, proa_err *err)
{
    PROA_TRY(proa_json_get_int(&pad, json, "pad_token_id", 0, PROA_VOCAB_MAX, err));
    c->position_offset = pad + 1;
    c->context -= c->position_offset;
    if (c->context >= 1) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'max_position_embeddings' %lld leaves no positions after 'pad_token_id' %lld",
                     (long long)(c->context + c->position_offset), (long long)pad);
}
