/* SPDX-License-Identifier: Apache-2.0
 * propose_lookup.c - prompt lookup: what followed the last tokens of a sequence where they occurred before.
 *
 * Every token that is sampled is compared with what a lookup would have guessed, drafted or not. So it is known without
 * a try how often guesses are right: over all sequences by the length of their match, and whether those of one sequence
 * are right more often or less. */
#include "engine/engine.h"

#include "base/checked.h"
#include <string.h>

/* The guesses of a sequence that its luck begins with, and what is left of their weight at each new one. */
#define LUCK_FIRST 2
#define LUCK_KEPT  0.95F
#define LUCK_MOST  1.5F

/* ---- the text: the input, the prompt, what the output is expected to repeat, and the output ---- */

/* The output so far is how the prediction begins, and is too short to be looked up. */
static bool begins_prediction(const proa_seq *seq, int64_t generated)
{
    const proa_engine_request *req = seq->req;
    const int32_t *output = seq->lookup.text + seq->lookup.count - generated;
    return generated < PROA_LOOKUP_LEAST && generated < req->predicted_count &&
           memcmp(output, req->predicted, (size_t)generated * sizeof *output) == 0;
}

static void find_match(proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    proa_lookup *l = &seq->lookup;
    int64_t before = req->input.count + req->prompt_count;
    int64_t generated = l->count - before - req->predicted_count;
    proa_lookup_find(l);
    if (begins_prediction(seq, generated)) l->at = before + generated - 1, l->length = PROA_LOOKUP_LEAST;
}

static void prepare_text(const proa_engine *e, proa_engine_request *req)
{
    PROA_UNUSED(e);
    for (int32_t i = 0; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        proa_lookup_init(&seq->lookup,
                         req->input.count + req->prompt_count + req->predicted_count + req->new_max);
        proa_lookup_append(&seq->lookup, req->input.ids, req->input.count);
        proa_lookup_append(&seq->lookup, req->prompt, req->prompt_count);
        proa_lookup_append(&seq->lookup, req->predicted, req->predicted_count);
        find_match(seq);
    }
}

static void release_text(proa_seq *seq)
{
    proa_lookup_release(&seq->lookup);
}

/* ---- drafts ---- */

static proa_lookup_rates *rates_of(proa_engine *e, const proa_seq *seq)
{
    return &e->speculation.lookup_rates[proa_sampler_greedy(&seq->req->options)];
}

static float luck_of(const proa_seq *seq)
{
    float luck = (seq->lookup_right + LUCK_FIRST) / (seq->lookup_expected + LUCK_FIRST);
    return luck < LUCK_MOST ? luck : LUCK_MOST;
}

static void offer_match(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer)
{
    const proa_speculation *s = &e->speculation;
    float *chances = s->chances + (offer - s->offers) * PROA_DRAFT_MAX;
    PROA_UNUSED(sequences);
    offer->limit = proa_lookup_chances(&seq->lookup, rates_of(e, seq), luck_of(seq), seq->sampled_at >= 0,
                                       chances, (int32_t)proa_min64(offer->limit, PROA_DRAFT_MAX));
    offer->chances = chances;
    offer->is_known = true;
}

static void propose_match(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    PROA_UNUSED(e);
    for (int64_t i = 0; i < count; i++) {
        proa_seq *seq = chains[i].seq;
        chains[i].count = proa_lookup_copy(&seq->lookup, seq->ids + seq->count, chains[i].size);
    }
}

static void learn_guess(proa_engine *e, proa_seq *seq, bool right)
{
    proa_lookup_rates *rates = rates_of(e, seq);
    float expected = rates->right[seq->lookup.length];
    seq->lookup_right = LUCK_KEPT * seq->lookup_right + (right ? 1.0F : 0.0F);
    seq->lookup_expected = LUCK_KEPT * seq->lookup_expected + expected;
    proa_lookup_learn(rates, seq->lookup.length, right);
}

static void observe_token(proa_engine *e, proa_seq *seq, int32_t id)
{
    int32_t guess = proa_lookup_guess(&seq->lookup);
    if (guess >= 0) learn_guess(e, seq, guess == id);
    proa_lookup_append(&seq->lookup, &id, 1);
    find_match(seq);
}

const proa_proposer proa_propose_lookup = {.name = "ngram",
                                           .prepare = prepare_text,
                                           .release = release_text,
                                           .offer = offer_match,
                                           .propose = propose_match,
                                           .observe = observe_token};
