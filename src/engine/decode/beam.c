/* SPDX-License-Identifier: Apache-2.0
 * beam.c - life of a beam search; the steps of the styles are in beam_hf.c, beam_group.c, beam_pool.c. Sequences are
 * not copied when beams branch: a history of (parent, token) for each step and beam is the tree of them all, and the
 * results are read off backwards at the end. */
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

proa_status proa_beam_advance(proa_beam *b, bool *more, int32_t *parent, int32_t *token,
                              const proa_beam_candidate_rows *rows, proa_err *err)
{
    const int32_t *tokens = rows->tokens;
    const float *logprobs = rows->logprobs;
    PROA_ASSERT(!b->over && !rows->numbers == !b->o.sampled);
    *more = false;
    b->numbers = rows->numbers;
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
