/* SPDX-License-Identifier: Apache-2.0
 * beam.c - life, candidates and results of a beam search; the steps of the styles are in beam_hf.c, beam_group.c,
 * beam_pool.c. Sequences are not copied when beams branch: a history of (parent, token) for each step and beam is
 * the tree of them all, and the results are read off backwards at the end. */
#include "engine/decode/beam_state.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- options ---- */

static proa_status check_range(const char *what, int64_t value, int64_t min, int64_t max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "beam search: %s is %lld, must lie in %lld..%lld", what, (long long)value,
                     (long long)min, (long long)max);
}

static proa_status check_number(const char *what, float value, float min, float max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "beam search: %s is %g, must lie in %g..%g", what, (double)value,
                     (double)min, (double)max);
}

static proa_status check_style(const proa_beam_options *o, proa_err *err)
{
    PROA_TRY(check_range("style", (int64_t)o->style, PROA_STYLE_HF, PROA_STYLE_TRTLLM, err));
    bool groups = o->style == PROA_STYLE_HF && !o->sampled;
    PROA_TRY(check_range("number of groups", o->groups, 0, groups ? o->beams : 1, err));
    if (o->sampled && o->style != PROA_STYLE_HF)
        return PROA_FAIL(err, INVALID, "beam search: only style hf samples");
    if (o->groups > 1) {
        if (o->beams % o->groups != 0)
            return PROA_FAIL(err, INVALID, "beam search: number of groups is %d, must divide the %d beams",
                             (int)o->groups, (int)o->beams);
        PROA_TRY(check_number("diversity penalty", o->diversity_penalty, 0, 1e6F, err));
        PROA_TRY(check_range("padding token", o->pad_id, -1, o->vocab - 1, err));
    }
    if (o->style != PROA_STYLE_HF)
        PROA_TRY(check_number("diversity rate", o->diversity_rate, -1e6F, 1e6F, err));
    if (o->style == PROA_STYLE_FT && !o->pool)
        PROA_TRY(check_range("number of prompt tokens", o->prompt_tokens, 1, PROA_CONTEXT_MAX, err));
    return PROA_OK;
}

static proa_status check_options(const proa_beam_options *o, proa_err *err)
{
    PROA_TRY(check_range("number of beams", o->beams, 1, PROA_BEAMS_MAX, err));
    PROA_TRY(check_range("number of end ids", o->end_ids_count, 0, PROA_EOS_MAX, err));
    /* With fewer tokens there would not be C continuations. */
    PROA_TRY(check_range("size of the vocabulary", o->vocab, proa_max64(2, 1 + o->end_ids_count),
                         PROA_VOCAB_MAX, err));
    PROA_TRY(check_range("number of new tokens", o->max_new, 1, PROA_CONTEXT_MAX, err));
    PROA_TRY(check_range("number of beams returned", o->returned, 0, o->beams, err));
    PROA_TRY(check_range("early stopping", (int64_t)o->early, PROA_EARLY_FALSE, PROA_EARLY_NEVER, err));
    if (!isfinite(o->length_penalty))
        return PROA_FAIL(err, INVALID, "beam search: length penalty is %g, must be finite",
                         (double)o->length_penalty);
    return check_style(o, err);
}

static void take_options(proa_beam *b, const proa_beam_options *o)
{
    *b = (proa_beam){.o = *o, .groups = o->groups > 1 ? o->groups : 1};
    if (!o->returned) b->o.returned = o->beams;
    for (int32_t i = 0; i < o->end_ids_count; i++) b->end_ids[i] = o->end_ids[i];
    b->o.end_ids = b->end_ids;
    if (b->groups > 1 && o->pad_id < 0) b->o.pad_id = o->end_ids_count ? o->end_ids[0] : 0;
    b->group_size = o->beams / b->groups;
    b->kept = proa_max64(2, 1 + o->end_ids_count) * b->group_size;
    b->each = proa_min64(o->vocab, b->kept + o->beams - b->group_size);
    for (b->chosen_size = 1; b->chosen_size < 2 * o->beams;) b->chosen_size *= 2;
}

/* ---- the parameters of a step ---- */

float proa_beam_norm(const proa_beam *b, int64_t length)
{
    double power = pow((double)length, (double)b->o.length_penalty);
    return (float)fmin(fmax(power, (double)FLT_MIN), (double)FLT_MAX);
}

float proa_beam_length_divisor(const proa_beam *b, int64_t length)
{
    return b->o.length_penalty == 0 || length == 1 ? 1 : proa_beam_norm(b, length);
}

/* For the engine's own step and for a device's. rows, row, at, state and to are the device's. */
static void set_step(const proa_beam *b, int64_t length, proa_beam_params *s)
{
    const proa_beam_options *o = &b->o;
    bool hf = o->style == PROA_STYLE_HF, ft = o->style == PROA_STYLE_FT, keep_ended = ft && !o->pool;
    int64_t scored = keep_ended ? o->prompt_tokens - 1 + length : length; /* N, until the first beam has ended */
    *s = (proa_beam_params){.beams = o->beams,
                            .each = (int32_t)b->each,
                            .groups = b->groups,
                            .kept = keep_ended ? o->beams : (int32_t)b->kept,
                            .none = hf ? PROA_BEAM_NONE : PROA_BEAM_NONE_FT,
                            .divisor = ft ? proa_beam_length_divisor(b, scored) : 1,
                            .rate = hf ? 0 : o->diversity_rate,
                            .by_beam = !hf && !ft,
                            .by_token = hf,
                            .pushed = hf && b->groups == 1,
                            .keep_ended = keep_ended,
                            .end_count = o->end_ids_count};
    memcpy(s->end_ids, b->end_ids, sizeof s->end_ids);
    if (b->groups > 1) proa_beam_search_groups(b, length, s);
}

/* ---- life ---- */

static void *take_piece(char *base, int64_t *at, int64_t count, size_t size)
{
    void *start = base ? base + *at : NULL;
    *at += proa_round_up(count * (int64_t)size, 16);
    return start;
}

/* Points into base and returns the bytes; without a base only the latter. The limits keep the products small. */
static int64_t lay_out(proa_beam *b, char *base)
{
    int64_t at = 0, K = b->o.beams, returned = b->o.returned;
    b->best = take_piece(base, &at, b->kept, sizeof *b->best);
    b->score = take_piece(base, &at, K, sizeof *b->score);
    b->sum = take_piece(base, &at, K, sizeof *b->sum);
    b->total = take_piece(base, &at, K, sizeof *b->total);
    b->total_old = take_piece(base, &at, K, sizeof *b->total_old);
    b->lived = take_piece(base, &at, K, sizeof *b->lived);
    b->lived_old = take_piece(base, &at, K, sizeof *b->lived_old);
    b->hyp = take_piece(base, &at, K, sizeof *b->hyp);
    b->hyp_old = take_piece(base, &at, K, sizeof *b->hyp_old);
    b->rank = take_piece(base, &at, K + b->kept, sizeof *b->rank);
    b->order = take_piece(base, &at, K, sizeof *b->order);
    b->place = take_piece(base, &at, 2 * K, sizeof *b->place);
    b->place_old = take_piece(base, &at, K, sizeof *b->place_old);
    b->chosen = take_piece(base, &at, b->chosen_size, sizeof *b->chosen);
    b->result = take_piece(base, &at, returned, sizeof *b->result);
    b->parent = take_piece(base, &at, b->o.max_new * K, sizeof *b->parent);
    b->token = take_piece(base, &at, b->o.max_new * K, sizeof *b->token);
    b->ids = take_piece(base, &at, returned * b->o.max_new, sizeof *b->ids);
    b->parents = take_piece(base, &at, returned * b->o.max_new, sizeof *b->parents);
    return at;
}

int64_t proa_beam_bytes(const proa_beam_options *o)
{
    proa_beam b;
    if (check_options(o, NULL) != PROA_OK) return -1;
    take_options(&b, o);
    return lay_out(&b, NULL);
}

proa_status proa_beam_new(proa_beam **out, const proa_beam_options *o, proa_err *err)
{
    *out = NULL;
    PROA_TRY(check_options(o, err));
    int64_t bytes = proa_beam_bytes(o);
    char *memory = proa_pages_alloc(bytes);
    if (!memory)
        return PROA_FAIL(err, NO_MEMORY, "beam search: %d beams of %lld tokens need %lld bytes",
                         (int)o->beams, (long long)o->max_new, (long long)bytes);
    proa_beam *b = proa_calloc(1, sizeof *b);
    take_options(b, o);
    lay_out(b, memory);
    b->memory = memory;
    b->bytes = bytes;
    set_step(b, 1, &b->step);
    for (int32_t i = 0; i < o->beams; i++) {
        b->score[i] = b->sum[i] = proa_beam_first_score(&b->step, i);
        b->place[i].score = (double)PROA_BEAM_NONE;
        proa_beam_hyp_clear(&b->hyp[i]);
    }
    *out = b;
    return PROA_OK;
}

void proa_beam_free(proa_beam *b)
{
    if (!b) return;
    proa_pages_free(b->memory, b->bytes);
    free(b);
}

int64_t proa_beam_candidates(const proa_beam *b)
{
    return b->each;
}

/* ---- what the styles share ---- */

static bool ranks_before(const proa_candidate *x, const proa_candidate *y)
{
    if (x->key > y->key || x->key < y->key) return x->key > y->key;
    return x->parent != y->parent ? x->parent < y->parent : x->tie < y->tie;
}

/* Puts c into the heap of n candidates (worst at the root) whose place i is free, at i or below. */
static void sift_down(proa_candidate *heap, int64_t n, int64_t i, proa_candidate c)
{
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(&heap[child], &heap[child + 1])) child++;
        if (ranks_before(&heap[child], &c)) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

/* So many better candidates are kept that this key cannot enter. */
static bool is_hopeless(const proa_beam *b, float key)
{
    return b->best_count == b->step.kept && key < b->best[0].key;
}

static void offer_candidate(proa_beam *b, proa_candidate c)
{
    proa_candidate *heap = b->best;
    if (b->best_count == b->step.kept) {
        if (ranks_before(&c, &heap[0])) sift_down(heap, b->best_count, 0, c);
        return;
    }
    int64_t i = b->best_count++;
    for (int64_t up; i > 0 && ranks_before(&heap[up = (i - 1) / 2], &c); i = up) heap[i] = heap[up];
    heap[i] = c;
}

/* The most that rate can add to a key of this beam. */
static float rate_bound(const proa_beam_params *s, int32_t beam)
{
    if (s->by_beam) return s->rate * (float)beam;
    return s->rate > 0 ? s->rate * (float)(s->beams - 1) : 0;
}

/* A beam's list is in order before the penalty, which only lowers, and before the rate is added: so it is left where
 * even the most that the rate adds would not help. */
static void offer_list(proa_beam *b, const proa_beam_state *state, int32_t beam, const int32_t *tokens,
                       const float *logprobs)
{
    const proa_beam_params *s = &b->step;
    const int32_t *ids = tokens + proa_beam_row(b, beam);
    const float *values = logprobs + proa_beam_row(b, beam);
    const float *numbers = b->numbers ? b->numbers + proa_beam_row(b, beam) : NULL;
    float most = rate_bound(s, beam), divisor = proa_beam_divisor(state, s), score = state->score[beam];
    for (int32_t r = 0; r < s->each; r++) {
        float number = numbers ? numbers[r] : 0;
        if (is_hopeless(b, (values[r] + score) / divisor + most + number)) break;
        int32_t chosen = s->groups > 1 ? proa_beam_chosen_count(b, ids[r]) : 0;
        proa_beam_candidate c = {proa_beam_sum(s, values[r], chosen, score), ids[r]};
        float key = proa_beam_key(state, s, &c, beam, r) + number;
        if (is_hopeless(b, key)) continue;
        offer_candidate(b, (proa_candidate){.key = key,
                                            .sum = c.sum,
                                            .logprob = values[r],
                                            .parent = beam,
                                            .tie = proa_beam_tie(s, &c, r),
                                            .token = c.token});
    }
}

/* A beam that has ended and is kept can only continue with its end token, at no cost. */
static void offer_ended(proa_beam *b, const proa_beam_state *state, int32_t beam)
{
    proa_beam_candidate c = {state->score[beam], state->hyp[beam].token};
    float key = proa_beam_key(state, &b->step, &c, beam, 0);
    offer_candidate(b, (proa_candidate){.key = key, .sum = c.sum, .parent = beam, .token = c.token});
}

static void sort_best(proa_beam *b)
{
    for (int64_t n = b->best_count - 1; n > 0; n--) {
        proa_candidate last = b->best[n];
        b->best[n] = b->best[0];
        sift_down(b->best, n, 0, last);
    }
}

void proa_beam_find_best(proa_beam *b, int32_t first, int32_t count, bool backwards, const int32_t *tokens,
                         const float *logprobs)
{
    const proa_beam_state state = {.score = b->score, .hyp = b->hyp_old};
    b->best_count = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t beam = first + (backwards ? count - 1 - i : i);
        if (proa_beam_has_ended(&state, &b->step, beam)) offer_ended(b, &state, beam);
        else offer_list(b, &state, beam, tokens, logprobs);
    }
    sort_best(b);
}

void proa_beam_turn(proa_beam *b)
{
    memcpy(b->total_old, b->total, (size_t)b->o.beams * sizeof *b->total);
    memcpy(b->lived_old, b->lived, (size_t)b->o.beams * sizeof *b->lived);
    memcpy(b->hyp_old, b->hyp, (size_t)b->o.beams * sizeof *b->hyp);
}

void proa_beam_run(proa_beam *b, int32_t i, const proa_candidate *c)
{
    b->score[i] = b->sum[i] = c->sum;
    b->total[i] = b->total_old[c->parent] + (double)c->logprob;
    proa_beam_parents(b, b->length - 1)[i] = c->parent;
    proa_beam_tokens(b, b->length - 1)[i] = c->token;
}

proa_place proa_beam_place_of(const proa_beam *b, const proa_candidate *c, double score)
{
    return (proa_place){.score = score,
                        .total = b->total_old[c->parent] + (double)c->logprob,
                        .sum = c->sum,
                        .parent = c->parent,
                        .token = c->token,
                        .length = b->length};
}

proa_place proa_beam_running(const proa_beam *b, int32_t i, double score)
{
    return (proa_place){.score = score,
                        .total = b->total[i],
                        .sum = b->sum[i],
                        .parent = proa_beam_parents(b, b->length - 1)[i],
                        .token = proa_beam_tokens(b, b->length - 1)[i],
                        .length = b->length};
}

/* Insertion: k * n at worst, little on lists that are nearly in order, as these are. */
void proa_beam_rank(int32_t *order, int32_t k, const float *x, int64_t n)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(x[i] > x[order[k - 1]])) continue;
        int32_t at = count < k ? count++ : k - 1;
        for (; at > 0 && x[i] > x[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

/* ---- steps ---- */

static proa_status check_row(const proa_beam *b, int32_t i, const int32_t *tokens, const float *logprobs,
                             proa_err *err)
{
    float most = -INFINITY; /* one vectorised pass; the position of a bad value is searched only if there is one */
    bool good = true;
    for (int64_t j = 0; j < b->each; j++) {
        good &= logprobs[j] == logprobs[j];
        most = logprobs[j] > most ? logprobs[j] : most;
    }
    if (PROA_LIKELY(good && most < INFINITY)) return PROA_OK;
    int64_t j = 0;
    while (logprobs[j] < INFINITY) j++;
    return PROA_FAIL(err, INTERNAL, "logits are not numbers: log-probability %g of id %d, beam %d, step %lld",
                     (double)logprobs[j], (int)tokens[j], (int)i, (long long)b->length);
}

/* A constraint has left no beam a token: no sequence can go on, and those that ended are the results. */
static bool has_running(const proa_beam *b)
{
    bool any = false;
    for (int32_t i = 0; i < b->o.beams; i++) any = any || b->sum[i] > -INFINITY;
    return any;
}

proa_status proa_beam_advance(proa_beam *b, bool *more, int32_t *parent, int32_t *token, const int32_t *tokens,
                              const float *logprobs, const float *numbers, proa_err *err)
{
    PROA_ASSERT(!b->over && !numbers == !b->o.sampled);
    *more = false;
    b->numbers = numbers;
    for (int32_t i = 0; i < (b->length ? b->o.beams : 1); i++)
        PROA_TRY(check_row(b, i, tokens + i * b->each, logprobs + i * b->each, err));
    b->length++;
    set_step(b, b->length, &b->step);
    proa_beam_turn(b);
    if (b->groups > 1) proa_beam_step_groups(b, tokens, logprobs);
    else if (b->o.style == PROA_STYLE_HF) proa_beam_step_hf(b, tokens, logprobs);
    else if (b->o.style == PROA_STYLE_FT && !b->o.pool) proa_beam_step_plain(b, tokens, logprobs);
    else proa_beam_step_pool(b, tokens, logprobs);
    b->over = b->over || !has_running(b);
    *more = !b->over;
    memcpy(parent, proa_beam_parents(b, b->length - 1), (size_t)b->o.beams * sizeof *parent);
    memcpy(token, proa_beam_tokens(b, b->length - 1), (size_t)b->o.beams * sizeof *token);
    return PROA_OK;
}

bool proa_beam_search(const proa_beam *b, int64_t length, proa_beam_params *s)
{
    if (b->o.sampled || b->o.beams < 2 || b->o.beams > PROA_DEVICE_BEAMS_MAX ||
        b->group_size * b->each > PROA_BEAM_CANDIDATES_MAX)
        return false;
    set_step(b, length, s);
    return true;
}

/* ---- results ---- */

/* Follows a path back from its last token. */
void proa_beam_report(proa_beam *b, const proa_place *p)
{
    if (b->results == b->o.returned || p->sum <= b->step.none / 2) return;
    int32_t *ids = b->ids + b->results * b->o.max_new, *parents = b->parents + b->results * b->o.max_new;
    int32_t parent = p->parent;
    ids[p->length - 1] = p->token;
    parents[p->length - 1] = parent;
    for (int64_t step = p->length - 2; step >= 0; step--) {
        ids[step] = proa_beam_tokens(b, step)[parent];
        parents[step] = parent = proa_beam_parents(b, step)[parent];
    }
    b->result[b->results++] = (proa_beam_result){
        .ids = ids,
        .parents = parents,
        .count = p->length,
        .score = (float)p->score,
        .logprob_sum = p->total,
        .finish = proa_beam_is_end(&b->step, p->token) ? PROA_FINISH_END : PROA_FINISH_LENGTH};
}

int32_t proa_beam_finish(proa_beam *b)
{
    if (b->closed || b->length == 0) return b->results;
    b->closed = b->over = true;
    if (b->groups > 1) proa_beam_close_groups(b);
    else if (b->o.style == PROA_STYLE_HF) proa_beam_close_hf(b);
    else if (b->o.style == PROA_STYLE_FT && !b->o.pool) proa_beam_close_plain(b);
    else proa_beam_close_pool(b);
    return b->results;
}

proa_beam_result proa_beam_get(const proa_beam *b, int32_t i)
{
    PROA_ASSERT(i >= 0 && i < b->results);
    return b->result[i];
}
