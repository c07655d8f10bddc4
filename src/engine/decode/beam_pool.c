/* SPDX-License-Identifier: Apache-2.0
 * beam_pool.c - FasterTransformer's beam search, with its pool of finished hypotheses and without, and
 * TensorRT-LLM's, which has grown out of the former. Formulas and sources: beam.h. */
#include "engine/decode/beam_state.h"

#include <string.h>

/* c / length^penalty. The originals do not divide by one. */
static float length_score(const proa_beam *b, float sum, int64_t length)
{
    return b->o.length_penalty == 0 || length == 1 ? sum : sum / proa_beam_norm(b, length);
}

/* N for all candidates of this step. */
static int64_t key_length(const proa_beam *b)
{
    if (b->o.pool) return b->length;
    return b->o.prompt_tokens - 1 + (b->ended[0] ? b->lived[0] : b->length);
}

/* The candidates of one beam. Its list is in order before the diversity term, so it is left where even the largest
 * term would not help. */
static void offer_list(proa_beam *b, int32_t beam, const int32_t *tokens, const float *logprobs)
{
    const int32_t *ids = tokens + proa_beam_row(b, beam);
    const float *values = logprobs + proa_beam_row(b, beam);
    bool trtllm = b->o.style == PROA_STYLE_TRTLLM, divide = !trtllm && b->o.length_penalty != 0;
    float rate = b->o.diversity_rate;
    float most = trtllm ? rate * (float)beam : rate > 0 ? rate * (float)(b->o.beams - 1) : 0;
    int64_t length = key_length(b);
    float divisor = divide && length != 1 ? proa_beam_norm(b, length) : 1;
    for (int32_t r = 0, modulo = 0; r < b->each; r++, modulo = modulo + 1 == b->o.beams ? 0 : modulo + 1) {
        float sum = values[r] + b->score[beam], score = sum / divisor;
        float key = score + rate * (float)(trtllm ? beam : modulo);
        if (proa_beam_hopeless(b, score + most)) break;
        if (proa_beam_hopeless(b, key)) continue;
        proa_beam_offer(
            b, (proa_candidate){
                   .key = key, .sum = sum, .logprob = values[r], .parent = beam, .tie = r, .token = ids[r]});
    }
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
    proa_beam_clear(b, b->kept);
    /* The order matters for time only: trtllm's rate likes the last beams best, in the first step only beam 0 lives. */
    bool back = b->o.style == PROA_STYLE_TRTLLM && b->length > 1;
    for (int32_t i = 0; i < K; i++) offer_list(b, back ? K - 1 - i : i, tokens, logprobs);
    proa_beam_sort(b);
    for (int64_t c = 0; c < b->best_count && running < K; c++) {
        if (!proa_beam_is_end(b, b->best[c].token)) proa_beam_run(b, running++, &b->best[c]);
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

/* A beam that has ended can only go on with its end token, which costs nothing. */
static void offer_ended(proa_beam *b, int32_t beam)
{
    proa_beam_offer(b, (proa_candidate){.key = length_score(b, b->score[beam], key_length(b)),
                                        .sum = b->score[beam],
                                        .parent = beam,
                                        .token = proa_beam_tokens(b, b->length - 2)[beam]});
}

void proa_beam_step_plain(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    proa_beam_clear(b, b->o.beams);
    for (int32_t i = 0; i < b->o.beams; i++) {
        if (b->ended[i]) offer_ended(b, i);
        else offer_list(b, i, tokens, logprobs);
    }
    proa_beam_sort(b);
    PROA_ASSERT(b->best_count == b->o.beams);
    bool all_ended = true;
    for (int32_t i = 0; i < b->o.beams; i++) {
        const proa_candidate *c = &b->best[i];
        proa_beam_run(b, i, c);
        b->lived[i] = b->ended_old[c->parent] ? b->lived_old[c->parent] : b->length;
        b->ended[i] = proa_beam_is_end(b, c->token);
        all_ended &= b->ended[i];
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
