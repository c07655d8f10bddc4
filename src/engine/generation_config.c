/* SPDX-License-Identifier: Apache-2.0
 * generation_config.c - the members of a model's generation_config.json as options. */
#include "engine/generation_config.h"

#include "base/log.h"

static bool is_warper(const proa_option_row *row)
{
    return row->option >= PROA_OPTION_temperature && row->option <= PROA_OPTION_eta_cutoff;
}

static proa_status take_member(proa_options *o, const proa_option_row *row, const proa_json *value,
                               proa_arena *arena, proa_err *err)
{
    if (proa_json_kind(value) == PROA_JSON_NULL) return PROA_OK;
    bool list_of_one = proa_json_kind(value) == PROA_JSON_ARRAY && proa_json_len(value) == 1;
    if (row->kind == PROA_OPTION_KIND_INT && list_of_one)
        value = proa_json_at(value, 0); /* forced_eos_token_id */
    return proa_option_read_json(o, row, value, arena, err);
}

/* Members that are no option of the same name, or mean something only beside others. */
static proa_status take_others(proa_options *o, const proa_json *json, bool sample, proa_arena *arena,
                               proa_err *err)
{
    const proa_option_row *rows = proa_option_rows;
    const proa_json *decay = proa_json_get(json, "exponential_decay_length_penalty");
    const proa_json *several = proa_json_get(json, "num_return_sequences"),
                    *top_k = proa_json_get(json, "top_k");
    if (proa_json_kind(decay) == PROA_JSON_ARRAY && proa_json_len(decay) == 2) {
        const proa_json *start = proa_json_at(decay, 0), *factor = proa_json_at(decay, 1);
        PROA_TRY(take_member(o, &rows[PROA_OPTION_exponential_decay_start], start, arena, err));
        PROA_TRY(take_member(o, &rows[PROA_OPTION_exponential_decay_factor], factor, arena, err));
    }
    if (several)
        PROA_TRY(take_member(o, &rows[o->beams > 1 ? PROA_OPTION_beams_returned : PROA_OPTION_n], several,
                             arena, err));
    if (o->penalty_alpha > 0 && !sample && top_k) /* contrastive search */
        PROA_TRY(take_member(o, &rows[PROA_OPTION_top_k], top_k, arena, err));
    return PROA_OK;
}

/* What transformers would do and this engine does not. Members without effect on the output are not among them. */
static void warn_of_others(const proa_json *json)
{
    static const char *const names[] = {
        "guidance_scale",  "token_healing", "watermarking_config", "top_h",    "forced_decoder_ids",
        "force_words_ids", "constraints",   "dola_layers",         "max_time", "prefix_allowed_tokens_fn"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        const proa_json *value = proa_json_get(json, names[i]);
        proa_json_type kind = proa_json_kind(value);
        bool off = !value || kind == PROA_JSON_NULL || (kind == PROA_JSON_BOOL && !proa_json_bool(value)) ||
                   (kind == PROA_JSON_ARRAY && proa_json_len(value) == 0) ||
                   (i == 0 && proa_json_double(value) == 1);
        if (!off) PROA_LOG(WARNING, "generation_config.json: '%s' is not applied", names[i]);
    }
}

proa_status proa_options_from_generation_config(proa_options *o, const proa_json *json, proa_arena *arena,
                                                proa_err *err)
{
    bool sample = proa_json_bool(proa_json_get(json, "do_sample"));
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        const proa_json *value = *row->generation_config ? proa_json_get(json, row->generation_config) : NULL;
        if (value && (sample || !is_warper(row))) PROA_TRY(take_member(o, row, value, arena, err));
    }
    PROA_TRY(take_others(o, json, sample, arena, err));
    warn_of_others(json);
    if (sample && !o->given[PROA_OPTION_temperature]) o->temperature = 1;
    return PROA_OK;
}
