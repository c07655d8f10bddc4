/* SPDX-License-Identifier: Apache-2.0
 * states.c - hidden states on their way to rank 0. */
#include "model/ranks/states.h"

#include "base/checked.h"
#include "model/ranks/stage.h"
#include "model/run.h"
#include "model/staging/staging.h"

proa_dtype proa_states_dtype(const proa_model *m)
{
    const proa_device *d = m->device;
    return d->activations ? d->activations(m->device, m->formats.main, 1) : PROA_DTYPE_F32;
}

static bool has_stages(const proa_model *m)
{
    return m->plan.part.stages > 1;
}

/* ---- memory ---- */

/* The ranks that exchange rows with rank 0: one of each stage. */
static bool serves_rank_0(const proa_model *m)
{
    return has_stages(m) && m->plan.part.tensor == 0;
}

static int64_t state_row_bytes(const proa_model *m)
{
    return m->plan.width[PROA_REG_X] * proa_dtype_bytes(proa_states_dtype(m));
}

/* Rows on their way, and of a rank above 0 the taps of a pass. */
static int64_t states_bytes(const proa_model *m)
{
    int64_t rows = m->plan.device_head_rows + (m->rank > 0 ? m->plan.rows_max * m->taps.count : 0);
    return proa_max64(1, rows * state_row_bytes(m));
}

proa_status proa_states_make(proa_model *m, const proa_rank_call *load, proa_err *err)
{
    proa_taps *t = &m->taps;
    proa_device *d = m->device;
    const proa_dtype dtype = proa_states_dtype(m);
    int64_t sent = m->plan.device_head_rows, width = m->plan.width[PROA_REG_X];
    if (m->rank > 0 && serves_rank_0(m)) *t = load->taps;
    if (!serves_rank_0(m) || t->count == 0) return PROA_OK;
    m->states = d->alloc(d, states_bytes(m));
    if (!m->states)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for hidden states on %s",
                         (double)states_bytes(m) / 1e6, d->name);
    t->sent = proa_view_2d(m->states, dtype, sent, width);
    if (m->rank > 0)
        t->rows = proa_view_2d(m->states + sent * state_row_bytes(m), dtype, m->plan.rows_max, t->count * width);
    return PROA_OK;
}

void proa_states_free(proa_model *m)
{
    if (m->states) m->device->free(m->device, m->states, states_bytes(m));
    m->states = NULL;
}

/* ---- what the head reads ---- */

void proa_run_hidden_states(proa_model *m, proa_rank_call *call)
{
    const int32_t *rows = proa_staging_rows(m, call->rows, call->count);
    proa_view x = proa_run_hidden(m, rows, call->count);
    proa_stage_return(m, x);
    if (m->rank == 0) m->ctx.ops->scale(&m->ctx, call->states, x, 1);
}

/* ---- the stream before some layers ---- */

/* The stage that has a tap: that of the layer, or the last one for what is behind all layers. */
static int32_t stage_of(const proa_model *m, int64_t layer)
{
    int32_t stage = 0, stages = m->plan.part.stages;
    const proa_config *c = &m->config;
    while (stage < stages - 1 && layer >= proa_stage_layers(c, c->layers, stage, stages).end) stage++;
    return stage;
}

/* One tap of the rows, in rank 0 and in the rank that has it. */
static void move_tap(proa_model *m, const proa_rank_call *call, const int32_t *rows, int32_t tap)
{
    const proa_taps *t = &m->taps;
    int64_t width = m->plan.width[PROA_REG_X];
    int32_t owner = stage_of(m, t->layer[tap]);
    proa_view sent = proa_view_rows(t->sent, 0, call->count);
    if (m->plan.part.stage == owner)
        m->ctx.ops->gather(&m->ctx, sent, proa_view_cols(t->rows, tap * width, (tap + 1) * width), rows);
    if (m->plan.part.stage == owner && owner > 0) m->pipe->send(m->pipe, sent, 0);
    if (m->rank > 0) return;
    if (owner > 0) proa_stage_receive(m, sent, owner);
    m->ctx.ops->scale(&m->ctx, proa_view_cols(call->states, tap * width, (tap + 1) * width), sent, 1);
}

void proa_run_tapped_states(proa_model *m, proa_rank_call *call)
{
    if (!serves_rank_0(m)) return;
    const int32_t *rows = proa_staging_rows(m, call->rows, call->count);
    for (int32_t i = 0; i < m->taps.count; i++) move_tap(m, call, rows, i);
}
