/* SPDX-License-Identifier: Apache-2.0
 * beam.c - sequences are not copied when beams branch: a history of (parent, token) for each step and beam is the
 * tree of them all, and the results are read off backwards at the end. */
#include "engine/beam.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The score that stands for "none" in transformers: of beams that do not exist yet, of empty places among the
 * finished, and added to what shall not be chosen. */
#define NONE (-1.0e9F)

/* One of the best continuations of a step. */
typedef struct candidate {
    float sum; /* of log-probabilities */
    int32_t parent, token;
    bool ended;
} candidate;

/* A place among the finished: a path that ends with `token` after the running beam `parent` of the step before. */
typedef struct place {
    float score;
    bool finished;
    int32_t parent, token;
    int64_t length;
} place;

struct proa_beam {
    int32_t beams, returned, end_ids_count;
    int64_t vocab, max_new;
    int64_t kept; /* candidates of a step, C = max(2, 1 + end_ids_count) * K */
    int64_t each; /* M */
    double penalty;
    proa_early early;
    int32_t end_ids[PROA_EOS_MAX];
    int64_t length; /* L: steps done */
    bool over;
    int32_t results;
    char *memory;
    int64_t bytes;
    /* in memory */
    float *score;    /* [K] of running beams, -1e9 added if ended */
    float *sum;      /* [K] without that */
    int32_t *head;   /* [K] first entry of each list that was not taken yet */
    float *list_sum; /* [K][M] */
    int32_t *list_token;
    candidate *best; /* [C] */
    float *rank;     /* [K + C] what is being ranked */
    int32_t *order;  /* [K] */
    place *done;     /* [K] best first */
    place *done_before;
    proa_beam_result *result; /* [returned] */
    int32_t *parent, *token;  /* [max_new][K] history */
    int32_t *ids;             /* [returned][max_new] */
};

static proa_status check_range(const char *what, int64_t value, int64_t min, int64_t max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "beam search: %s is %lld, must lie in %lld..%lld", what, (long long)value,
                     (long long)min, (long long)max);
}

static proa_status check_options(const proa_beam_options *o, proa_err *err)
{
    PROA_TRY(check_range("number of beams", o->beams, 1, PROA_BEAMS_MAX, err));
    PROA_TRY(check_range("number of end ids", o->end_ids_count, 0, PROA_EOS_MAX, err));
    /* Fewer tokens than that, and the beams have no C continuations. */
    PROA_TRY(check_range("size of the vocabulary", o->vocab, proa_max64(2, 1 + o->end_ids_count),
                         PROA_VOCAB_MAX, err));
    PROA_TRY(check_range("number of new tokens", o->max_new, 1, PROA_CONTEXT_MAX, err));
    PROA_TRY(check_range("number of beams returned", o->returned, 0, o->beams, err));
    PROA_TRY(check_range("early stopping", (int64_t)o->early, PROA_EARLY_FALSE, PROA_EARLY_NEVER, err));
    if (!isfinite(o->length_penalty))
        return PROA_FAIL(err, INVALID, "beam search: length penalty is %g, must be finite",
                         (double)o->length_penalty);
    return PROA_OK;
}

static void take_options(proa_beam *b, const proa_beam_options *o)
{
    *b = (proa_beam){.beams = o->beams,
                     .returned = o->returned ? o->returned : o->beams,
                     .end_ids_count = o->end_ids_count,
                     .vocab = o->vocab,
                     .max_new = o->max_new,
                     .penalty = (double)o->length_penalty,
                     .early = o->early};
    b->kept = proa_max64(2, 1 + o->end_ids_count) * o->beams;
    b->each = proa_min64(o->vocab, b->kept);
    for (int32_t i = 0; i < o->end_ids_count; i++) b->end_ids[i] = o->end_ids[i];
}

static void *piece(char *base, int64_t *at, int64_t count, size_t size)
{
    void *start = base ? base + *at : NULL;
    *at += proa_round_up(count * (int64_t)size, 16);
    return start;
}

/* Points into base and returns the bytes; without a base only the latter. The limits keep the products small. */
static int64_t lay_out(proa_beam *b, char *base)
{
    int64_t at = 0, K = b->beams;
    b->score = piece(base, &at, K, sizeof *b->score);
    b->sum = piece(base, &at, K, sizeof *b->sum);
    b->head = piece(base, &at, K, sizeof *b->head);
    b->list_sum = piece(base, &at, K * b->each, sizeof *b->list_sum);
    b->list_token = piece(base, &at, K * b->each, sizeof *b->list_token);
    b->best = piece(base, &at, b->kept, sizeof *b->best);
    b->rank = piece(base, &at, K + b->kept, sizeof *b->rank);
    b->order = piece(base, &at, K, sizeof *b->order);
    b->done = piece(base, &at, K, sizeof *b->done);
    b->done_before = piece(base, &at, K, sizeof *b->done_before);
    b->result = piece(base, &at, b->returned, sizeof *b->result);
    b->parent = piece(base, &at, b->max_new * K, sizeof *b->parent);
    b->token = piece(base, &at, b->max_new * K, sizeof *b->token);
    b->ids = piece(base, &at, b->returned * b->max_new, sizeof *b->ids);
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
    for (int32_t i = 0; i < b->beams; i++) {
        b->score[i] = b->sum[i] = i ? NONE : 0; /* all stand at the same place: only one may branch */
        b->done[i].score = NONE;
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

int32_t proa_beam_width(const proa_beam *b)
{
    return b->beams;
}

/* length^penalty as torch divides by it: a Python float that becomes an f32. Kept away from 0 and infinity. */
static float norm(const proa_beam *b, int64_t length)
{
    return (float)fmin(fmax(pow((double)length, b->penalty), (double)FLT_MIN), (double)FLT_MAX);
}

static bool is_end(const proa_beam *b, int32_t token)
{
    for (int32_t i = 0; i < b->end_ids_count; i++)
        if (b->end_ids[i] == token) return true;
    return false;
}

/* The k largest of x[n], largest first, among equals the lower index first. Insertion: k * n at worst, little on lists
 * that are nearly in order, as these are. */
static void rank_largest(int32_t *order, int32_t k, const float *x, int64_t n)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (count == k && !(x[i] > x[order[k - 1]])) continue;
        int32_t at = count < k ? count++ : k - 1;
        for (; at > 0 && x[i] > x[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

/* Copies the lists and adds the beams' sums, in f32. In the first step all beams continue the same list. */
static proa_status add_sums(proa_beam *b, const int32_t *tokens, const float *logprobs, proa_err *err)
{
    for (int32_t i = 0; i < b->beams; i++) {
        int64_t from = b->length ? i * b->each : 0, to = i * b->each;
        for (int64_t j = 0; j < b->each; j++) {
            float value = logprobs[from + j];
            if (PROA_UNLIKELY(!(value < INFINITY)))
                return PROA_FAIL(err, INTERNAL,
                                 "logits are not numbers: log-probability %g of id %d, beam %d, step %lld",
                                 (double)value, (int)tokens[from + j], (int)i, (long long)b->length);
            b->list_sum[to + j] = value + b->score[i];
            b->list_token[to + j] = tokens[from + j];
        }
        b->head[i] = 0;
    }
    return PROA_OK;
}

/* Takes the first entry of a beam's list; of those with the same sum, the lowest token. Adding may have made sums
 * equal that were not, so that the list is in order of sums only. */
static candidate take_first(proa_beam *b, int32_t beam)
{
    float *sum = b->list_sum + beam * b->each;
    int32_t *token = b->list_token + beam * b->each;
    int64_t head = b->head[beam]++, low = head;
    for (int64_t j = head + 1; j < b->each && sum[j] == sum[head]; j++)
        if (token[j] < token[low]) low = j;
    int32_t taken = token[low];
    token[low] = token[head];
    return (candidate){.sum = sum[head], .parent = beam, .token = taken};
}

/* The C best of all K * V continuations, by merging the lists. */
static void choose_candidates(proa_beam *b)
{
    for (int64_t c = 0; c < b->kept; c++) {
        int32_t first = -1;
        for (int32_t i = 0; i < b->beams; i++) {
            if (b->head[i] == b->each) continue;
            if (first < 0 ||
                b->list_sum[i * b->each + b->head[i]] > b->list_sum[first * b->each + b->head[first]])
                first = i;
        }
        b->best[c] = take_first(b, first);
        b->best[c].ended = b->length == b->max_new || is_end(b, b->best[c].token);
    }
}

/* _get_running_beams_for_next_iteration: the K best candidates after the ended ones were pushed back. */
static void choose_running(proa_beam *b)
{
    int32_t *parent = b->parent + (b->length - 1) * b->beams, *token = b->token + (b->length - 1) * b->beams;
    for (int64_t c = 0; c < b->kept; c++) b->rank[c] = b->best[c].sum + (b->best[c].ended ? NONE : 0.0F);
    rank_largest(b->order, b->beams, b->rank, b->kept);
    for (int32_t i = 0; i < b->beams; i++) {
        const candidate *c = &b->best[b->order[i]];
        b->score[i] = b->rank[b->order[i]];
        b->sum[i] = c->sum;
        parent[i] = c->parent;
        token[i] = c->token;
    }
}

static bool all_finished(const proa_beam *b)
{
    for (int32_t i = 0; i < b->beams; i++)
        if (!b->done[i].finished) return false;
    return true;
}

/* _update_finished_beams: ended candidates among the first K compete with the places, the others get -1e9 and come
 * last. (transformers also pushes back those of a prompt whose search is over while others of its batch go on; here
 * there is one prompt.) */
static void update_finished(proa_beam *b)
{
    int32_t K = b->beams;
    float divisor = norm(b, b->length);
    for (int32_t i = 0; i < K; i++) b->rank[i] = b->done[i].score;
    for (int64_t c = 0; c < b->kept; c++) {
        float score = b->best[c].sum / divisor;
        if (c >= K || !b->best[c].ended) score += NONE;
        b->rank[K + c] = score;
    }
    rank_largest(b->order, K, b->rank, K + b->kept);
    memcpy(b->done_before, b->done, (size_t)K * sizeof *b->done);
    for (int32_t i = 0; i < K; i++) {
        int64_t c = b->order[i] - K;
        if (c < 0) {
            b->done[i] = b->done_before[b->order[i]];
            continue;
        }
        b->done[i] = (place){.score = b->rank[K + c],
                             .finished = c < K && b->best[c].ended,
                             .parent = b->best[c].parent,
                             .token = b->best[c].token,
                             .length = b->length};
    }
}

/* _check_early_stop_heuristic: whether the best running beam, at the length that suits it, could still beat the worst
 * place. Places are in order, and one that is not finished has the -1e9 that transformers puts in for it. */
static bool can_improve(const proa_beam *b)
{
    bool longest = b->early == PROA_EARLY_NEVER && b->penalty > 0;
    return b->score[0] / norm(b, longest ? b->max_new : b->length) > b->done[b->beams - 1].score;
}

static bool all_ended(const proa_beam *b)
{
    for (int64_t c = 0; c < b->kept; c++)
        if (!b->best[c].ended) return false;
    return true;
}

proa_status proa_beam_advance(proa_beam *b, bool *more, int32_t *parent, int32_t *token,
                              const int32_t *tokens, const float *logprobs, proa_err *err)
{
    PROA_ASSERT(!b->over);
    *more = false;
    PROA_TRY(add_sums(b, tokens, logprobs, err));
    b->length++;
    choose_candidates(b);
    choose_running(b);
    update_finished(b);
    b->over = !can_improve(b) || all_ended(b) || (b->early == PROA_EARLY_TRUE && all_finished(b));
    *more = !b->over;
    memcpy(parent, b->parent + (b->length - 1) * b->beams, (size_t)b->beams * sizeof *parent);
    memcpy(token, b->token + (b->length - 1) * b->beams, (size_t)b->beams * sizeof *token);
    return PROA_OK;
}

/* Follows a path back from its last token. */
static void add_result(proa_beam *b, int32_t parent, int32_t token, int64_t length, float score)
{
    int32_t *ids = b->ids + b->results * b->max_new;
    ids[length - 1] = token;
    for (int64_t step = length - 2; step >= 0; step--) {
        ids[step] = b->token[step * b->beams + parent];
        parent = b->parent[step * b->beams + parent];
    }
    b->result[b->results++] = (proa_beam_result){.ids = ids, .count = length, .score = score};
}

int32_t proa_beam_finish(proa_beam *b)
{
    b->results = 0;
    for (int32_t i = 0; i < b->beams && b->results < b->returned; i++) {
        const place *p = &b->done[i];
        if (p->finished) add_result(b, p->parent, p->token, p->length, p->score);
    }
    if (b->results > 0 || b->length == 0) return b->results;
    const int32_t *parent = b->parent + (b->length - 1) * b->beams,
                  *token = b->token + (b->length - 1) * b->beams;
    for (int32_t i = 0; i < b->beams && b->results < b->returned; i++) {
        if (b->sum[i] <= NONE / 2) continue; /* never came to life */
        add_result(b, parent[i], token[i], b->length, b->sum[i] / norm(b, b->length));
    }
    return b->results;
}

proa_beam_result proa_beam_get(const proa_beam *b, int32_t i)
{
    PROA_ASSERT(i >= 0 && i < b->results);
    return b->result[i];
}
