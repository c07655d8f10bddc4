/* SPDX-License-Identifier: Apache-2.0
 * beam_pool.c - FasterTransformer's beam search, with its pool of finished hypotheses and without, and
 * TensorRT-LLM's, which has grown out of the former. Formulas and sources: beam.h. */
#include "engine/decode/beam_state.h"

#include <string.h>

static float length_score(const proa_beam *b, float sum, int64_t length)
{
    return sum / proa_beam_length_divisor(b, length);
}

/* ---- the pool ---- */

static int32_t find_worst(const proa_beam *b)
{
    int32_t worst = 0;
    for (int32_t i = 1; i < b->place_count; i++)
        if (b->place[i].score < b->place[worst].score) worst = i;
    return worst;
}

/* An ended candidate among the first K. False if the walk ends here. */
static bool enter_pool(proa_beam *b, const proa_candidate *c)
{
    bool ft = b->o.style == PROA_STYLE_FT;
    double score = (double)(ft ? c->key : length_score(b, c->sum, b->length));
    int32_t at = b->place_count;
    if (at == b->o.beams) {
        at = find_worst(b);
        if (score < b->place[at].score) return !ft && b->o.early != PROA_EARLY_TRUE;
    } else {
        b->place_count++;
    }
    b->place[at] = proa_beam_place_of(b, c, score);
    return true;
}

static bool is_done(const proa_beam *b)
{
    if (b->place_count < b->o.beams) return false;
    if (b->o.style == PROA_STYLE_FT || b->o.early == PROA_EARLY_TRUE) return true;
    bool longest = b->o.early == PROA_EARLY_NEVER && b->o.length_penalty > 0;
    float best = length_score(b, b->best[0].key, longest ? b->o.max_new : b->length);
    return b->place[find_worst(b)].score >= (double)best;
}

void proa_beam_step_pool(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    int32_t K = b->o.beams, running = 0;
    /* trtllm's rate ranks the last beams first; in the first step only beam 0 is alive */
    bool backwards = b->o.style == PROA_STYLE_TRTLLM && b->length > 1;
    proa_beam_find_best(b, 0, K, backwards, tokens, logprobs);
    for (int64_t c = 0; c < b->best_count && running < K; c++) {
        if (!proa_beam_moves_back(&b->step, b->best[c].token)) proa_beam_run(b, running++, &b->best[c]);
        else if (c < K && !enter_pool(b, &b->best[c])) break;
    }
    b->pooled_all = is_done(b);
    PROA_ASSERT(b->pooled_all || running == K);
    b->over = b->pooled_all || b->length == b->o.max_new;
}

/* Unless the pool ended the search, the running beams are added to it. Results are sorted by score, equals by place. */
void proa_beam_close_pool(proa_beam *b)
{
    for (int32_t i = 0; i < b->o.beams && !b->pooled_all; i++)
        b->place[b->place_count++] = proa_beam_running(b, i, (double)length_score(b, b->sum[i], b->length));
    for (int32_t i = 1; i < b->place_count; i++) {
        proa_place p = b->place[i];
        int32_t at = i;
        for (; at > 0 && p.score > b->place[at - 1].score; at--) b->place[at] = b->place[at - 1];
        b->place[at] = p;
    }
    for (int32_t i = 0; i < b->place_count; i++) proa_beam_report(b, &b->place[i]);
}

/* ---- without a pool ---- */

void proa_beam_step_plain(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    proa_beam_find_best(b, 0, b->o.beams, false, tokens, logprobs);
    PROA_ASSERT(b->best_count == b->o.beams);
    bool all_ended = true;
    for (int32_t i = 0; i < b->o.beams; i++) {
        const proa_candidate *c = &b->best[i];
        proa_beam_run(b, i, c);
        const proa_beam_hyp *parent = &b->hyp_old[c->parent];
        b->lived[i] = parent->done ? b->lived_old[c->parent] : b->length;
        b->hyp[i] = proa_beam_hyp_continue(parent, &b->step, c->token, proa_beam_is_end(&b->step, c->token));
        all_ended &= b->hyp[i].done != 0;
    }
    b->over = all_ended || b->length == b->o.max_new;
}

/* The beams in their order, each cut after its end token. */
void proa_beam_close_plain(proa_beam *b)
{
    for (int32_t i = 0; i < b->o.beams; i++) {
        int64_t lived = b->lived[i];
        float score = length_score(b, b->sum[i], b->o.prompt_tokens - 1 + lived);
        proa_place p = proa_beam_running(b, i, (double)score);
        for (int64_t step = b->length - 2; step >= lived - 1; step--) {
            p.token = proa_beam_tokens(b, step)[p.parent];
            p.parent = proa_beam_parents(b, step)[p.parent];
        }
        p.length = lived;
        proa_beam_report(b, &p);
    }
}
