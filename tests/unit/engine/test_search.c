/* SPDX-License-Identifier: Apache-2.0
 * test_search.c - the reference's beam_step op against the engine's own step of the same beam search: tokens,
 * parents, scores (to the bit) and finished hypotheses are the same step by step, on lists where many candidates are
 * equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/decode/beam_state.h"
#include "kernels/ops.h"

#include <math.h>
#include <string.h>

enum { STEPS = 30, SEARCHES = 600, AT = 3 };

static uint32_t state = 1;

static int32_t dice(int32_t sides)
{
    state ^= state << 13, state ^= state >> 17, state ^= state << 5; /* Marsaglia 2003 */
    return (int32_t)(state % (uint32_t)sides);
}

/* Sums of eighths and penalties of eighths meet often; those of 0.3 are rounded. */
static const float steps_down[] = {0.125F, 0.3F, 1.0F}, penalties[] = {0.125F, 0.3F, 0.5F, 2, 100, 0};

static proa_beam_options some_options(int turn, const int32_t *end_ids)
{
    static const int32_t grouped[][2] = {{4, 2}, {4, 4},  {6, 3},  {6, 2}, {8, 4},
                                         {9, 3}, {12, 6}, {16, 4}, {20, 2}};
    static const float lengths[] = {1, 0, 0.6F, 2, -1};
    proa_beam_options o = {.beams = 2 + dice(7),
                           .max_new = 1 + dice(STEPS),
                           .length_penalty = lengths[dice(5)],
                           .early = (proa_early)dice(3),
                           .end_ids = end_ids,
                           .end_ids_count = dice(4),
                           .style = (proa_style)(turn % 3),
                           .pool = dice(2),
                           .prompt_tokens = 1 + dice(9),
                           .groups = 1,
                           .pad_id = -1};
    if (turn % 2 && o.style != PROA_STYLE_HF) o.diversity_rate = (float)(dice(9) - 4) / 8;
    if (turn % 2 && o.style == PROA_STYLE_HF) {
        const int32_t *g = grouped[dice(9)];
        o.beams = g[0], o.groups = g[1], o.diversity_penalty = penalties[dice(6)];
    }
    o.vocab = dice(3) ? 40 + dice(200) : 2 + o.end_ids_count + dice(8);
    if (dice(2)) o.pad_id = dice((int32_t)o.vocab);
    return o;
}

/* The best M of `vocab` tokens, best first, among equals the lower one; end ids are somewhere among them. */
static void fill_row(int32_t *ids, float *logits, int64_t M, int64_t vocab)
{
    float value = 9, down = steps_down[dice(3)];
    int64_t left = M;
    while (left > 0) { /* runs of equals, tokens not seen before */
        int64_t run = 1 + dice(left < 4 ? (int32_t)left : 4), from = M - left;
        for (int64_t j = from; j < from + run; j++) {
            int64_t k = 0;
            do {
                ids[j] = dice((int32_t)vocab);
                for (k = 0; k < j && ids[k] != ids[j];) k++;
            } while (k < j);
            logits[j] = value;
            for (k = j; k > from && ids[k] < ids[k - 1]; k--) {
                int32_t swap = ids[k];
                ids[k] = ids[k - 1], ids[k - 1] = swap;
            }
        }
        left -= run;
        value -= down * (float)(1 + dice(2));
    }
}

/* One search on both sides; lies AT beams and entries off the beginning of the lists. */
typedef struct pair {
    proa_beam *beam;
    proa_beam_params step;
    proa_beam_lists l;
    float *logprobs;
    int64_t M;
    int32_t parent[PROA_DEVICE_BEAMS_MAX], token[PROA_DEVICE_BEAMS_MAX];
} pair;

static void make_pair(pair *p, const proa_beam_options *o)
{
    size_t beams = (size_t)o->beams + AT;
    proa_err err = {0};
    if (proa_beam_new(&p->beam, o, &err) != PROA_OK) fail_msg("%s", err.text);
    p->M = proa_beam_candidates(p->beam);
    p->l = (proa_beam_lists){.ids = proa_calloc(beams * (size_t)p->M, 4),
                             .logits = proa_calloc(beams * (size_t)p->M, 4),
                             .sums = proa_calloc(beams, 4),
                             .scores = proa_calloc(beams, 4),
                             .hyps = proa_calloc(beams, sizeof(proa_beam_hyp)),
                             .tokens = proa_calloc(beams, 4),
                             .parents = proa_calloc(beams, 4)};
    p->logprobs = proa_calloc(beams * (size_t)p->M, 4);
}

static void free_pair(pair *p)
{
    proa_beam_free(p->beam);
    void *all[] = {p->l.ids,  p->l.logits, p->l.sums,    p->l.scores,
                   p->l.hyps, p->l.tokens, p->l.parents, p->logprobs};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
}

/* Log-probabilities are computed from logits as in async_step.c. */
static void fill_lists(pair *p, int64_t vocab)
{
    const proa_beam_params *s = &p->step;
    for (int32_t r = 0; r < s->rows; r++) {
        int64_t at = s->at + r * p->M;
        fill_row(p->l.ids + at, p->l.logits + at, p->M, vocab);
        p->l.sums[s->row + r] = dice(3) ? 9.5F : 9.7F;
        for (int64_t j = 0; j < p->M; j++)
            p->logprobs[r * p->M + j] = p->l.logits[at + j] - p->l.sums[s->row + r];
    }
}

static void same_hyps(const proa_beam *b, const proa_beam_hyp *hyps)
{
    int32_t Q = b->group_size;
    for (int32_t first = 0; first < b->o.beams; first += Q) {
        const proa_beam_hyp *h = hyps + first;
        assert_int_equal(h->count, b->hyp[first].count);
        assert_int_equal(h->done, b->hyp[first].done);
        assert_memory_equal(&h->worst, &b->hyp[first].worst, sizeof h->worst);
        for (int32_t i = 0; i < h->count; i++) {
            const proa_place *place = &b->place[first / Q * (Q + 1) + i];
            assert_memory_equal(&h[i].score, &place->score, sizeof h->score);
        }
    }
}

static void same_ends(const proa_beam *b, const proa_beam_hyp *hyps)
{
    for (int32_t i = 0; i < b->o.beams; i++) {
        int64_t length = b->o.prompt_tokens - 1 + b->lived[i];
        float divisor = b->o.length_penalty == 0 || length == 1 ? 1 : proa_beam_norm(b, length);
        int32_t token = proa_beam_tokens(b, b->length - 1)[i];
        assert_int_equal(hyps[i].done, proa_beam_is_end(&b->step, token));
        if (!hyps[i].done) continue;
        assert_int_equal(hyps[i].token, token);
        assert_memory_equal(&hyps[i].divisor, &divisor, sizeof divisor);
    }
}

/* False: the search is over. */
static bool step_both(pair *p, const proa_beam_options *o, int64_t length, int turn)
{
    const proa_ops *ops = proa_ops_cpu(PROA_ISA_GENERIC);
    bool more;
    proa_err err = {0};
    if (!proa_beam_search(p->beam, length, &p->step)) fail_msg("search %d is not made there", turn);
    p->step.rows = length == 1 ? 1 : o->beams;
    p->step.row = p->step.at = p->step.state = p->step.to = AT;
    fill_lists(p, o->vocab);
    ops->decode->beam_step(NULL, &p->step, 1, &p->l);
    if (proa_beam_advance(p->beam, &more, p->parent, p->token,
                          &(proa_beam_candidate_rows){p->l.ids + AT, p->logprobs, NULL}, &err) != PROA_OK)
        fail_msg("%s", err.text);
    if (o->groups > 1) same_hyps(p->beam, p->l.hyps + AT);
    if (p->step.keep_ended) same_ends(p->beam, p->l.hyps + AT);
    if (!more) return false;
    for (int32_t i = 0; i < o->beams; i++) {
        if (p->l.tokens[AT + i] != p->token[i] || p->l.parents[AT + i] != p->parent[i])
            fail_msg("search %d, step %d, beam %d: goes on with %d from %d, not %d from %d", turn,
                     (int)length, (int)i, (int)p->l.tokens[AT + i], (int)p->l.parents[AT + i],
                     (int)p->token[i], (int)p->parent[i]);
        assert_memory_equal(&p->l.scores[AT + i], &p->beam->score[i], sizeof(float));
    }
    return true;
}

/* What this test is about, counted: groups that are done beside others, tokens other than the first group's, ended
 * beams beside others. */
typedef struct seen {
    int padded, apart, stayed;
} seen;

static void look(seen *n, const pair *p, const proa_beam_options *o)
{
    int32_t size = o->beams / o->groups;
    for (int32_t i = 0; i < o->beams; i++) {
        n->padded += o->groups > 1 && i % size == 0 && p->beam->hyp[i].done;
        n->apart += o->groups > 1 && p->token[i] != p->token[i % size];
        n->stayed += p->step.keep_ended && p->beam->hyp[i].done;
    }
}

static void as_the_engine_steps(void **unused)
{
    (void)unused;
    seen n = {0};
    for (int turn = 0; turn < SEARCHES; turn++) {
        int32_t end_ids[3] = {dice(3), 3 + dice(3), 6};
        proa_beam_options o = some_options(turn, end_ids);
        pair p;
        if (o.vocab <= 6) o.end_ids_count = 0;
        make_pair(&p, &o);
        for (int64_t length = 1; step_both(&p, &o, length, turn); length++) look(&n, &p, &o);
        free_pair(&p);
    }
    assert_true(n.padded > 100 && n.apart > 1000 && n.stayed > 100);
}

/* What a device cannot do is said. */
static void what_stays_with_the_host(void **unused)
{
    (void)unused;
    static const struct {
        proa_beam_options o;
        bool there;
    } cases[] = {
        {{.beams = 4, .style = PROA_STYLE_HF}, true},
        {{.beams = 64, .groups = 4, .style = PROA_STYLE_HF}, true},
        {{.beams = 64, .groups = 64, .style = PROA_STYLE_HF}, true},
        {{.beams = 64, .groups = 2, .style = PROA_STYLE_HF}, false}, /* 32 x 96 candidates */
        {{.beams = 66, .groups = 33, .style = PROA_STYLE_HF}, false},
        {{.beams = 32, .style = PROA_STYLE_TRTLLM, .diversity_rate = 1}, true},
        {{.beams = 33, .style = PROA_STYLE_TRTLLM, .diversity_rate = 1}, false},
        {{.beams = 4, .style = PROA_STYLE_FT, .pool = true, .diversity_rate = -1}, true},
        {{.beams = 4, .style = PROA_STYLE_FT, .prompt_tokens = 5}, true},
        {{.beams = 33, .style = PROA_STYLE_FT, .prompt_tokens = 5}, false},
    };
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_beam_options o = cases[i].o;
        proa_beam_params s;
        proa_beam *b;
        o.vocab = 1000, o.max_new = 5;
        assert_int_equal(proa_beam_new(&b, &o, NULL), PROA_OK);
        if (proa_beam_search(b, 1, &s) != cases[i].there) fail_msg("case %d", (int)i);
        proa_beam_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_engine_steps),
        cmocka_unit_test(what_stays_with_the_host),
    };
    return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
