/* SPDX-License-Identifier: Apache-2.0
 * collectives.c - steps that exchange rows with other ranks. */
#include "model/steps/functions.h"

#include "base/checked.h"
#include "model/ranks/collective.h"
#include "model/ranks/stage.h"
#include "model/steps/registers.h"

void proa_do_all_reduce(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), residual = {.rank = 0};
    if (s->flags & PROA_ADD) residual = y;
    if (s->flags & PROA_ADD_X) residual = proa_frame_register(f, PROA_REG_X);
    f->m->comm->all_reduce(f->m->comm, y, proa_frame_register(f, s->in), residual);
}

void proa_do_gather_columns(const proa_step_frame *f, const proa_step *s)
{
    f->m->comm->gather_columns(f->m->comm, proa_frame_register(f, s->out), proa_frame_register(f, s->in));
}

/* The columns of the residual stream of which this rank makes the sums. */
void proa_do_take_columns(const proa_step_frame *f, const proa_step *s)
{
    proa_view x = proa_frame_register(f, s->in), y = proa_frame_register(f, s->out);
    int64_t first = f->m->plan.part.tensor * y.shape[1], end = proa_min64(first + y.shape[1], x.shape[1]);
    f->m->ctx.ops->scale(&f->m->ctx, proa_view_first_columns(y, end - first), proa_view_cols(x, first, end), 1);
}

/* The first unit (head, row of an FFN) of each rank, of the inputs of a product by columns. */
static const int64_t *shares_of(const proa_step_frame *f, proa_weight_slot slot)
{
    const proa_rank_shares *s = &f->m->plan.shares;
    const proa_config *c = &f->m->config;
    if (proa_slot_ffn(slot)) return proa_frame_ffn_shares(f);
    if (slot == PROA_SLOT_MIX_OUT || slot == PROA_SLOT_PARAMS) return s->value_heads.first;
    if (slot == PROA_SLOT_SHARED_DOWN) return s->shared_ffn.first;
    if (f->stack == PROA_STACK_ENCODER && c->encoder_heads) return s->encoder_heads.first;
    return proa_config_has_other_heads(c, f->layer) ? s->other_heads.first : s->heads.first;
}

/* Columns that each rank sends, and of its own those that it has: some ranks have fewer. */
void proa_do_gather_inputs(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *c = &f->m->ctx;
    const proa_rank_part *part = &f->m->plan.part;
    const int64_t *share = shares_of(f, s->w);
    int64_t K = proa_frame_param(f, s->w)->matrix.K, unit = K / share[part->tensors], most = 0, least = K;
    for (int32_t i = 0; i < part->tensors; i++) {
        int64_t count = (share[i + 1] - share[i]) * unit;
        most = proa_max64(most, count), least = proa_min64(least, count);
    }
    int64_t own = (share[part->tensor + 1] - share[part->tensor]) * unit;
    proa_view x = proa_frame_dense_rows(f, PROA_REG_SUM_PART, most),
              all = proa_view_first_columns(proa_frame_register(f, s->out), K);
    c->ops->scale(c, proa_view_first_columns(x, own),
                  proa_view_first_columns(proa_frame_register(f, s->in), own), 1);
    if (most == least) {
        f->m->comm->gather_columns(f->m->comm, all, x);
        return;
    }
    proa_view padded = proa_frame_dense_rows(f, PROA_REG_SUM_PADDED, part->tensors * most);
    f->m->comm->gather_columns(f->m->comm, padded, x);
    for (int32_t i = 0; i < part->tensors; i++) {
        int64_t first = share[i] * unit, count = share[i + 1] * unit - first;
        c->ops->scale(c, proa_view_cols(all, first, first + count),
                      proa_view_cols(padded, i * most, i * most + count), 1);
    }
}

void proa_do_send(const proa_step_frame *f, const proa_step *s)
{
    f->m->pipe->send(f->m->pipe, proa_frame_register(f, s->in), f->m->plan.part.stage + 1);
}

void proa_do_recv(const proa_step_frame *f, const proa_step *s)
{
    f->m->pipe->recv(f->m->pipe, proa_frame_register(f, s->out), f->m->plan.part.stage - 1);
}

void proa_do_broadcast(const proa_step_frame *f, const proa_step *s)
{
    proa_stage_broadcast(f->m, proa_frame_register(f, s->out));
}
