/* SPDX-License-Identifier: Apache-2.0
 * model_calls.c - the functions of model.h that run in all ranks: each makes its arguments a call (call.h). What a rank
 * does for a call is in the files that ranks.c calls: run.c, sample.c and others. */
#include "model/lora/lora.h"
#include "model/lora/prompt_table.h"
#include "model/ranks/ranks.h"
#include "model/ranks/states.h"
#include "model/run.h"
#include "model/staging/staging.h"

#include "base/checked.h"

proa_status proa_model_load(proa_model *m, proa_progress_fn *progress, void *arg, proa_err *err)
{
    proa_rank_call call = {.kind = PROA_CALL_LOAD, .progress = progress, .progress_arg = arg};
    return proa_ranks_run(m, &call, err);
}

void proa_model_set_adapter(proa_model *m, int32_t slot, const char *image)
{
    if (m->ranks == 1) {
        proa_lora_set_slot(m, slot, image);
        return;
    }
    for (int64_t layer = 0; layer < m->params[proa_lora_stack_id(m)].layers; layer++) {
        proa_rank_call call = {.kind = PROA_CALL_ADAPTER, .adapter_slot = slot, .layer = layer};
        if (image) call.image = image + m->lora.layer_at[layer];
        proa_ranks_run(m, &call, NULL);
    }
}

void proa_prompt_table_write(proa_model *m, const proa_kv *kv, const proa_prompt_table *table, int64_t first,
                             int64_t end, const int32_t *pages)
{
    enum { MESSAGE_BYTES = 4 << 20 };
    int64_t token = m->config.layers * table->width * (int64_t)sizeof *table->values;
    int64_t most = m->ranks == 1 ? m->plan.rows_max : proa_max64(1, MESSAGE_BYTES / token);
    for (int64_t at = first, n; at < end; at += n) {
        n = proa_min64(end - at, proa_min64(most, m->plan.rows_max));
        proa_span span = {.rows = (int32_t)n, .context = (int32_t)(at + n)};
        proa_rank_call call = {.kind = PROA_CALL_KEYS, .kv = kv, .batch = {.rows = n}};
        call.batch.self = (proa_spans){.span = &span, .count = 1, .pages = pages};
        call.values = table->values + at * table->width, call.values_stride = table->tokens * table->width;
        proa_ranks_run(m, &call, NULL);
    }
}

/* ---- passes ---- */

void proa_model_encode(proa_model *m, const proa_kv *kv, const proa_batch *batch)
{
    proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_ENCODE, .kv = kv, .batch = *batch}, NULL);
}

void proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch)
{
    proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_DECODE, .kv = kv, .batch = *batch}, NULL);
}

proa_view proa_model_head(proa_model *m, const int32_t *rows, int64_t count)
{
    proa_rank_call call = {.kind = PROA_CALL_HEAD, .rows = rows, .count = count};
    proa_ranks_run(m, &call, NULL);
    return call.logits;
}

void proa_model_head_to(proa_model *m, const int32_t *rows, int64_t count, float *logits, float *hidden)
{
    proa_rank_call call = {.kind = PROA_CALL_HEAD,
                           .rows = rows,
                           .count = count,
                           .in_place = true,
                           .to_logits = logits,
                           .to_hidden = hidden};
    proa_ranks_run(m, &call, NULL);
}

void proa_model_send_encoder_outputs(proa_model *m, const int32_t *firsts, const proa_encoder_place *places,
                                     int64_t inputs, int64_t rows, bool again)
{
    proa_rank_call call = {
        .kind = PROA_CALL_OUTPUTS, .rows = firsts, .places = places, .count = inputs, .outputs = rows, .again = again};
    proa_ranks_run(m, &call, NULL);
}

proa_encoder_outputs proa_model_wait_encoder_outputs(proa_model *m, int ticket)
{
    const proa_model *from = m;
    if (proa_staging_outputs_stay(m, ticket)) {
        proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_ENCODED, .ticket = ticket}, NULL);
        if (!proa_ranks_control(m)) from = proa_ranks_model(m, proa_staging_rank_with_results(m));
    } else {
        proa_staging_wait_outputs(m, ticket);
    }
    return proa_staging_outputs(from, ticket);
}

/* ---- tokens ---- */

void proa_model_sample(proa_model *m, const proa_sample_request *r, int ticket)
{
    proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_SAMPLE, .sample = *r, .ticket = ticket}, NULL);
}

proa_sampled proa_model_wait_sampled(proa_model *m, int ticket)
{
    const proa_model *from = m;
    if (proa_staging_is_deferred(m, ticket)) {
        proa_ranks_run(m, &(proa_rank_call){.kind = PROA_CALL_SAMPLED, .ticket = ticket}, NULL);
        if (!proa_ranks_control(m)) from = proa_ranks_model(m, proa_staging_rank_with_results(m));
    } else {
        proa_staging_wait_sampled(m, ticket);
    }
    return proa_staging_received(m, from, ticket);
}

void proa_model_top_k(proa_model *m, const int32_t *rows, int64_t count, int64_t k, int32_t *ids,
                      float *logits, float *sums)
{
    proa_rank_call call = {.kind = PROA_CALL_TOP_K,
                           .rows = rows,
                           .count = count,
                           .k = k,
                           .top_ids = ids,
                           .top_logits = logits,
                           .sums = sums};
    proa_ranks_run(m, &call, NULL);
}

/* ---- hidden states ---- */

/* The other ranks of this stage have the same states, so rank 0 needs no call for its own. */
static void hidden_here(proa_model *m, const int32_t *rows, int64_t count, proa_view to)
{
    const int32_t *there = proa_staging_rows(m, rows, count);
    for (int64_t i = 0, n; i < count; i += n) {
        n = proa_min64(count - i, m->plan.device_head_rows);
        m->ctx.ops->scale(&m->ctx, proa_view_rows(to, i, i + n), proa_run_hidden(m, there + i, n), 1);
    }
}

/* Runs a call in all ranks for as many rows at a time as the head takes. */
static void ask_stages(proa_model *m, proa_rank_call_kind kind, const int32_t *rows, int64_t count, proa_view to)
{
    for (int64_t i = 0, n; i < count; i += n) {
        n = proa_min64(count - i, m->plan.device_head_rows);
        proa_rank_call call = {.kind = kind, .rows = rows + i, .count = n, .states = proa_view_rows(to, i, i + n)};
        proa_ranks_run(m, &call, NULL);
    }
}

void proa_states_hidden(proa_model *m, const int32_t *rows, int64_t count, proa_view to)
{
    if (m->plan.part.stages > 1) ask_stages(m, PROA_CALL_HIDDEN, rows, count, to);
    else hidden_here(m, rows, count, to);
}

void proa_states_tapped(proa_model *m, const int32_t *rows, int64_t count, proa_view to)
{
    if (m->plan.part.stages > 1) ask_stages(m, PROA_CALL_TAPPED, rows, count, to);
    else m->ctx.ops->gather(&m->ctx, to, m->taps.rows, proa_staging_rows(m, rows, count));
}
