/* SPDX-License-Identifier: Apache-2.0
 * beam_hf.c - transformers 5's beam search: _beam_search of generation/utils.py for one prompt. */
#include "engine/decode/beam_state.h"

#include <math.h>
#include <string.h>

/* Insertion: there are few, and they are nearly in order. */
static void sort_by_sum(proa_candidate *c, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        proa_candidate v = c[i];
        int64_t at = i;
        for (; at > 0 && v.sum > c[at - 1].sum; at--) c[at] = c[at - 1];
        c[at] = v;
    }
}

/* The C best of all K * V continuations, or a sample of C of them, best first. */
static void choose_candidates(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    proa_beam_find_best(b, 0, b->o.beams, false, tokens, logprobs);
    if (b->o.sampled) sort_by_sum(b->best, b->best_count);
    for (int64_t c = 0; c < b->kept; c++)
        b->best[c].ended = b->length == b->o.max_new || proa_beam_is_end(&b->step, b->best[c].token);
}

/* _get_running_beams_for_next_iteration: the K best candidates after the ended ones were pushed back. */
static void choose_running(proa_beam *b)
{
    for (int64_t c = 0; c < b->kept; c++)
        b->rank[c] = proa_beam_push_back(&b->step, b->best[c].sum, b->best[c].ended);
    proa_beam_rank(b->order, b->o.beams, b->rank, b->kept);
    for (int32_t i = 0; i < b->o.beams; i++) {
        proa_beam_run(b, i, &b->best[b->order[i]]);
        b->score[i] = b->rank[b->order[i]];
    }
}

static bool all_finished(const proa_beam *b)
{
    for (int32_t i = 0; i < b->o.beams; i++)
        if (!b->place[i].finished) return false;
    return true;
}

/* _update_finished_beams: ended candidates among the first K compete with the places, the others get -1e9 and come
 * last. (transformers also pushes back those of a prompt whose search is over while others of its batch go on; here
 * there is one prompt.) */
static void update_finished(proa_beam *b)
{
    int32_t K = b->o.beams;
    float divisor = proa_beam_norm(b, b->length);
    for (int32_t i = 0; i < K; i++) b->rank[i] = (float)b->place[i].score;
    for (int64_t c = 0; c < b->kept; c++) {
        float score = b->best[c].sum / divisor;
        if (c >= K || !b->best[c].ended) score += PROA_BEAM_NONE;
        b->rank[K + c] = score;
    }
    proa_beam_rank(b->order, K, b->rank, K + b->kept);
    memcpy(b->place_old, b->place, (size_t)K * sizeof *b->place);
    for (int32_t i = 0; i < K; i++) {
        int64_t c = b->order[i] - K;
        if (c < 0) {
            b->place[i] = b->place_old[b->order[i]];
            continue;
        }
        b->place[i] = proa_beam_place_of(b, &b->best[c], (double)b->rank[K + c]);
        b->place[i].finished = c < K && b->best[c].ended;
    }
}

/* _check_early_stop_heuristic: whether the best running beam, at the length that suits it, could still beat the worst
 * place. Places are in order, and one that is not finished has the -1e9 that transformers puts in for it. */
static bool can_improve(const proa_beam *b)
{
    bool longest = b->o.early == PROA_EARLY_NEVER && b->o.length_penalty > 0;
    float divisor = proa_beam_norm(b, longest ? b->o.max_new : b->length);
    return (double)(b->score[0] / divisor) > b->place[b->o.beams - 1].score;
}

static bool all_ended(const proa_beam *b)
{
    for (int64_t c = 0; c < b->kept; c++)
        if (!b->best[c].ended) return false;
    return true;
}

void proa_beam_step_hf(proa_beam *b, const int32_t *tokens, const float *logprobs)
{
    choose_candidates(b, tokens, logprobs);
    choose_running(b);
    update_finished(b);
    b->over = !can_improve(b) || all_ended(b) || (b->o.early == PROA_EARLY_TRUE && all_finished(b));
}

void proa_beam_close_hf(proa_beam *b)
{
    int32_t results = 0;
    for (int32_t i = 0; i < b->o.beams; i++) {
        if (!b->place[i].finished) continue;
        proa_beam_report(b, &b->place[i]);
        results++;
    }
    if (results > 0) return;
    for (int32_t i = 0; i < b->o.beams; i++) {
        proa_place p = proa_beam_running(b, i, (double)(b->sum[i] / proa_beam_norm(b, b->length)));
        proa_beam_report(b, &p);
    }
}
