/* SPDX-License-Identifier: Apache-2.0
 * output.c - rows on their way to the host: logits, hidden states, and the outputs of encoders. */
#include "model/staging/state.h"

#include "base/checked.h"
#include "model/ranks/ranks.h"
#include "model/run.h"
#include <string.h>

static int64_t input_floats(const proa_model *m)
{
    return m->plan.sampled_rows * m->plan.width[PROA_REG_OUT];
}

static int64_t row_floats(const proa_model *m)
{
    return m->plan.rows_max * m->plan.width[PROA_REG_OUT];
}

static proa_status make_encoder_outputs(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_staging *s = m->staging;
    bool rows = m->plan.headless && !d->host, encoder = m->arch->kind == PROA_KIND_ENCODER;
    int tickets = encoder && proa_model_sends_encoder_outputs(m) ? proa_model_encoder_passes(m) : 0;
    for (int i = 0; i < tickets; i++) {
        s->inputs[i] = d->host_alloc(d, 2 * 4 * input_floats(m));
        if (rows) s->all_rows[i] = d->host_alloc(d, 4 * row_floats(m));
        if (!s->inputs[i] || (rows && !s->all_rows[i]))
            return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB of host memory for an encoder's results",
                             4 * (double)(2 * input_floats(m) + row_floats(m)) / 1e6);
    }
    return PROA_OK;
}

proa_status proa_staging_outputs_make(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_staging *s = m->staging;
    PROA_TRY(make_encoder_outputs(m, err));
    if (d->host) return PROA_OK;
    s->hidden_width = proa_model_hidden_width(m);
    s->logits_width = proa_max64(m->plan.width[PROA_REG_OUT], m->config.hidden);
    int64_t bytes = m->plan.head_rows * s->logits_width * (int64_t)sizeof(float);
    s->logits = d->host_alloc(d, bytes);
    s->hidden = d->host_alloc(d, m->plan.head_rows * s->hidden_width * (int64_t)sizeof(float));
    if (s->logits && s->hidden) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB of host memory for a step's results",
                     (double)bytes / 1e6);
}

void proa_staging_outputs_free(proa_model *m)
{
    proa_staging *s = m->staging;
    for (int i = 0; i < PROA_STEPS_MAX; i++) {
        m->device->host_free(m->device, s->inputs[i]);
        m->device->host_free(m->device, s->all_rows[i]);
    }
    m->device->host_free(m->device, s->logits);
    m->device->host_free(m->device, s->hidden);
}

/* ---- logits and hidden states ---- */

proa_view proa_staging_fetch_logits(proa_model *m, proa_view out, proa_view hidden)
{
    proa_staging *s = m->staging;
    proa_device *d = m->device;
    if (d->host) return out;
    if (m->hidden_wanted && hidden.rank) d->send(d, s->hidden, hidden.data, proa_view_count(hidden) * 4, 0);
    d->send(d, s->logits, out.data, proa_view_count(out) * 4, 0);
    d->sent(d, 0);
    out.data = s->logits;
    return out;
}

const float *proa_staging_hidden(const proa_model *m, proa_view hidden, int64_t row)
{
    const float *rows = m->device->host ? proa_view_f32(hidden) : m->staging->hidden;
    return rows + row * hidden.stride[0];
}

/* ---- outputs of encoders ---- */

void proa_staging_outputs_clear(proa_model *m, int ticket)
{
    m->staging->outputs[ticket] = (proa_encoder_outputs){NULL, NULL, NULL};
    m->staging->unordered[ticket] = false;
    m->staging->stays[ticket] = m->outputs_stay;
}

void proa_staging_outputs_count(proa_model *m, int64_t inputs, int64_t rows, int ticket)
{
    m->staging->inputs_count[ticket] = inputs;
    m->staging->rows_count[ticket] = rows;
}

bool proa_staging_sends_outputs(const proa_model *m)
{
    return m->rank == (m->outputs_stay ? proa_staging_rank_with_results(m) : 0);
}

void proa_staging_outputs_send_inputs(proa_model *m, proa_view out, int64_t at, bool any, bool pooled, int ticket)
{
    int64_t bytes = any ? proa_view_count(out) * 4 : 0; /* 0: only the end of the pass is reported */
    proa_encoder_outputs *o = &m->staging->outputs[ticket];
    float *to = m->staging->inputs[ticket] + (pooled ? input_floats(m) : 0);
    if (pooled) o->pooled = to;
    else o->first = to;
    PROA_ASSERT(at + out.shape[0] <= m->plan.sampled_rows);
    m->device->send(m->device, to + at * out.shape[1], out.data, bytes, ticket);
}

void proa_staging_outputs_end(proa_model *m, int ticket)
{
    m->device->send(m->device, m->staging->inputs[ticket], m->activations, 0, ticket);
}

void proa_staging_outputs_send_rows(proa_model *m, proa_view out, int64_t first, int ticket)
{
    enum {
        UNORDERED_BYTES_MIN = 1 << 20
    }; /* a smaller copy is over before one on another stream would have begun */
    proa_staging *s = m->staging;
    int64_t bytes = proa_view_count(out) * 4;
    if (first > 0 || bytes >= UNORDERED_BYTES_MIN) s->unordered[ticket] = true;
    s->outputs[ticket].rows = s->all_rows[ticket];
    m->device->send(m->device, s->all_rows[ticket] + first * out.shape[1], out.data, bytes,
                    s->unordered[ticket] ? PROA_SEND_UNORDERED + ticket : ticket);
}

void proa_staging_outputs_keep_rows(proa_model *m, proa_view out, bool copy, int ticket)
{
    proa_staging *s = m->staging;
    s->outputs[ticket].rows = proa_view_f32(out);
    if (!copy) return;
    if (!s->all_rows[ticket]) s->all_rows[ticket] = m->device->host_alloc(m->device, 4 * row_floats(m));
    memcpy(s->all_rows[ticket], out.data, (size_t)proa_view_count(out) * 4);
    s->outputs[ticket].rows = s->all_rows[ticket];
}

void proa_staging_wait_outputs(proa_model *m, int ticket)
{
    m->device->sent(m->device, ticket);
    if (m->staging->unordered[ticket]) m->device->sent(m->device, PROA_SEND_UNORDERED + ticket);
}

proa_encoder_outputs proa_staging_outputs(const proa_model *m, int ticket)
{
    return m->staging->outputs[ticket];
}

/* ---- outputs that stay with the last stage ---- */

bool proa_staging_outputs_stay(const proa_model *m, int ticket)
{
    return m->staging->stays[ticket];
}

/* Where rank 0 gets the outputs of a ticket that a rank of another process has. */
static void take_outputs(proa_model *m, int ticket)
{
    proa_staging *s = m->staging;
    if (m->plan.headless && !s->all_rows[ticket])
        s->all_rows[ticket] = m->device->host_alloc(m->device, 4 * row_floats(m));
    s->outputs[ticket] = (proa_encoder_outputs){
        .first = proa_arch_has_one_row(m->arch) ? s->inputs[ticket] : NULL,
        .pooled = proa_model_has_pool(m) ? s->inputs[ticket] + input_floats(m) : NULL,
        .rows = m->plan.headless ? s->all_rows[ticket] : NULL};
}

/* Both ranks call it with their own memory. NULL: there are none of these. */
static void move_floats(proa_model *m, const float *at, int64_t rows)
{
    proa_comm *control = proa_ranks_control(m);
    proa_view view = proa_view_2d((void *)(uintptr_t)at, PROA_DTYPE_F32, rows, m->plan.width[PROA_REG_OUT]);
    if (!at) return;
    if (m->rank == 0) control->recv(control, view, proa_staging_rank_with_results(m));
    else control->send(control, view, 0);
}

/* After a failure there are none: rank 0 waits until it learns that this rank has ended. */
proa_status proa_run_encoded(proa_model *m, const proa_rank_call *call, proa_err *err)
{
    const proa_staging *s = m->staging;
    int ticket = call->ticket;
    bool has = m->rank == proa_staging_rank_with_results(m);
    if (has) proa_staging_wait_outputs(m, ticket);
    if (!proa_ranks_control(m) || (m->rank > 0 && !has)) return PROA_OK;
    if (has) PROA_TRY(proa_ranks_check(m, err));
    if (m->rank == 0) take_outputs(m, ticket);
    move_floats(m, s->outputs[ticket].first, s->inputs_count[ticket]);
    move_floats(m, s->outputs[ticket].pooled, s->inputs_count[ticket]);
    move_floats(m, s->outputs[ticket].rows, s->rows_count[ticket]);
    return PROA_OK;
}
