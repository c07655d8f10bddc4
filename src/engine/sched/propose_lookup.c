/* SPDX-License-Identifier: Apache-2.0
 * propose_lookup.c - prompt lookup: what followed the last tokens of a sequence where they occurred before. */
#include "engine/sched/request.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <string.h>

/* All tokens of a sequence in one row: the input, the prompt, what the output is expected to repeat, and the output. */

/* Tokens that are compared. */
enum { LOOKUP_MOST = 4, LOOKUP_LEAST = 2 };

static void prepare_text(const proa_engine *e, proa_engine_request *req)
{
    PROA_UNUSED(e);
    int64_t before = req->input_count + req->prompt_count, source = before + req->predicted_count;
    for (int32_t i = 0; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        seq->text = proa_malloc((size_t)(source + req->new_max) * sizeof *seq->text);
        if (req->input_count) memcpy(seq->text, req->input, (size_t)req->input_count * sizeof *seq->text);
        memcpy(seq->text + req->input_count, req->prompt, (size_t)req->prompt_count * sizeof *seq->text);
        if (req->predicted)
            memcpy(seq->text + before, req->predicted, (size_t)req->predicted_count * sizeof *seq->text);
    }
}

/* The output so far is how the prediction begins, and is too short to be looked up. */
static int32_t begin_predicted(int32_t *ids, int32_t size, const proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    int64_t at = seq->count, left = req->predicted_count - at;
    if (at >= LOOKUP_LEAST || left <= 0 || memcmp(seq->ids, req->predicted, (size_t)at * sizeof *seq->ids) != 0)
        return 0;
    int32_t n = (int32_t)proa_min64(size, left);
    memcpy(ids, req->predicted + at, (size_t)n * sizeof *ids);
    return n;
}

static int32_t look_up(int32_t *ids, int32_t size, const proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    int64_t count = req->input_count + req->prompt_count + req->predicted_count + seq->count;
    int32_t begun = begin_predicted(ids, size, seq);
    if (begun) return begun;
    return proa_draft_lookup(ids, size, seq->text, count, LOOKUP_MOST, LOOKUP_LEAST);
}

/* The first token that is found stands for one in flight. */
static int32_t foresee_match(const proa_engine *e, const proa_seq *seq, int32_t size)
{
    int32_t ids[PROA_DRAFT_MAX + 1], unknown = seq->sampled_at >= 0;
    PROA_UNUSED(e);
    return (int32_t)proa_max64(0, look_up(ids, size + unknown, seq) - unknown);
}

static void propose_matches(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    PROA_UNUSED(e);
    for (int64_t i = 0; i < count; i++) {
        int32_t ids[PROA_DRAFT_MAX];
        proa_seq *seq = chains[i].seq;
        chains[i].count = look_up(ids, chains[i].size, seq);
        memcpy(seq->ids + seq->count, ids, (size_t)chains[i].count * sizeof *ids);
    }
}

const proa_proposer proa_propose_lookup = {
    .name = "ngram", .prepare = prepare_text, .foresee = foresee_match, .propose = propose_matches};
