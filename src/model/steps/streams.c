/* SPDX-License-Identifier: Apache-2.0
 * streams.c - steps of models with several residual streams (AltUp, https://arxiv.org/abs/2301.13310). */
#include "model/steps/functions.h"

#include "model/steps/registers.h"

/* Streams [first, count) of a register, as [rows, count - first, hidden]. */
static proa_view streams_from(const proa_step_frame *f, proa_reg r, int64_t first)
{
    int64_t hidden = f->m->config.hidden;
    proa_view v = proa_frame_register(f, r);
    return proa_view_heads(proa_view_cols(v, first * hidden, v.shape[1]), v.shape[1] / hidden - first);
}

static proa_view first_stream(const proa_step_frame *f, proa_reg r)
{
    return proa_view_first_columns(proa_frame_register(f, r), f->m->config.hidden);
}

void proa_do_first_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, first_stream(f, s->out), proa_frame_register(f, s->in), 1);
}

void proa_do_take_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, proa_frame_register(f, s->out), first_stream(f, s->in), 1);
}

static const float LEAST_SQUARE = 1e-5f; /* modeling_gemma3n.py */

void proa_do_match_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_view others = streams_from(f, s->out, 1);
    f->m->ctx.ops->match_rms(&f->m->ctx, others, others, first_stream(f, s->out), LEAST_SQUARE);
}

void proa_do_mix_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_view all = streams_from(f, s->out, 0);
    f->m->ctx.ops->mix_streams(&f->m->ctx, all, all, proa_frame_register(f, s->in), 0);
}

void proa_do_correct_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *ctx = &f->m->ctx;
    proa_view change = proa_frame_register(f, PROA_REG_D), coefs = proa_frame_register(f, PROA_REG_STREAM_COEFS);
    ctx->ops->scale(ctx, change, first_stream(f, s->out), -1);
    ctx->ops->add(ctx, change, change, proa_frame_register(f, s->in));
    ctx->ops->mix_streams(ctx, streams_from(f, s->out, 0), proa_view_heads(change, 1),
                          proa_view_first_columns(coefs, f->m->config.streams), 1);
}

void proa_do_spread_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->mix_streams(&f->m->ctx, streams_from(f, s->out, 1),
                               proa_view_heads(proa_frame_register(f, s->in), 1), (proa_view){.rank = 0}, 1);
}

void proa_do_join_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *ctx = &f->m->ctx;
    proa_view y = proa_frame_register(f, s->out), others = streams_from(f, PROA_REG_HEAD_OTHERS, 0);
    ctx->ops->match_rms(ctx, others, others, first_stream(f, s->in), LEAST_SQUARE);
    ctx->ops->scale(ctx, y, first_stream(f, s->in), 1);
    ctx->ops->mix_streams(ctx, proa_view_heads(y, 1), others, (proa_view){.rank = 0}, 1);
    ctx->ops->scale(ctx, y, y, 1.0f / (float)f->m->config.streams);
}
