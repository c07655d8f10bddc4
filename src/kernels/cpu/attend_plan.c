/* SPDX-License-Identifier: Apache-2.0
 * attend_plan.c - attention on the CPU: spans become blocks, groups and chunks for the workers. */
#include "kernels/cpu/attend_plan.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

#define CHUNK_KEYS (PROA_ATTEND_CHUNK * PROA_PAGE_TOKENS)
#define JOBS_MAX   256 /* (block, chunk)s between two barriers */
/* So many multiplications are worth another thread: about 5 us. */
#define COST_SHARE (1 << 16)

/* One call, as all workers see it. Side keys are a call of their own over the same queries, which follows the other. */
typedef struct attend_call {
    const struct attend_call *side;  /* NULL: there are no side keys */
    const proa_side_keys *side_keys; /* of such a call; else NULL */
    proa_view y, q;
    const proa_kv *kv;
    const proa_spans *spans;
    const proa_attention *a;
    const proa_attend_isa *isa;
    int64_t heads, units;   /* units: KV heads; or heads, where a bias differs by head */
    int64_t group;          /* heads of one unit */
    int64_t pitch, queries; /* of a block at most */
    int parts;              /* workers that get a share */
    int64_t total;          /* cost of all blocks */
    int64_t largest, piece; /* cost of the dearest block; of the dearest chunk of a block */
    /* buckets of the distances -reach..reach; entries outside [nearest, farthest] are not set */
    int32_t reach;
    int16_t buckets[2 * PROA_ATTEND_REACH + 1];
} attend_call;

/* A block by its place: n queries from the first-th of the span's rows * group on, counted row by row. If they are more
 * than that span has left, the rest are all those of the spans after it. */
typedef struct attend_item {
    const proa_span *span;
    int64_t unit, first;
    int n;
} attend_item;

/* ---- which keys a row sees ---- */

/* The keys of a row at this position: [*begin, *end). */
static void position_keys(const attend_call *call, const proa_span *span, int64_t at, int64_t *begin, int64_t *end)
{
    int64_t window = call->a->window;
    *begin = 0;
    *end = span->context;
    if (call->a->causal) *end = proa_max64(0, at + 1);
    if (window > 0) {
        *begin = call->a->chunked ? at / window * window : proa_max64(0, at + 1 - window);
        *end = proa_max64(0, proa_min64(*end, at + window));
    }
    *begin = proa_max64(*begin, proa_side_skipped(call->a->side, span));
    if (call->a->side) *end = proa_max64(*begin, *end);
}

static void row_keys(const attend_call *call, const proa_span *span, int64_t i, int64_t *begin, int64_t *end)
{
    if (!call->side_keys) {
        position_keys(call, span, proa_tree_position(call->spans, span, i), begin, end);
        return;
    }
    *begin = 0;
    *end = proa_side_count(call->side_keys, span);
}

/* The same of the rows [i, end_row) together. Those of a tree are taken as if they were at all of its positions. */
static void rows_keys(const attend_call *call, const proa_span *span, int64_t i, int64_t end_row,
                      int64_t *begin, int64_t *end)
{
    int64_t unused, first = (int64_t)span->context - span->rows;
    int64_t plain = span->rows - span->tree; /* rows before the tree */
    position_keys(call, span, first + proa_min64(i, plain), begin, &unused);
    position_keys(call, span, end_row > plain ? span->context - 1 : first + end_row - 1, &unused, end);
}

/* ---- groups: neighbouring spans that have the same page where both of them begin to see keys ---- */

static int64_t span_queries(const attend_call *call, const proa_span *span)
{
    return proa_attention_rows(call->a, span) * call->group;
}

static bool same_pages(const attend_call *call, const proa_span *a, const proa_span *b)
{
    int64_t begin_a, begin_b, end_a, end_b;
    if (a->rows < 1 || b->rows < 1 || call->kv->row) return false;
    row_keys(call, a, 0, &begin_a, &end_a);
    row_keys(call, b, 0, &begin_b, &end_b);
    int64_t begin = proa_max64(begin_a, begin_b), place = begin / PROA_PAGE_TOKENS;
    if (begin >= proa_min64(end_a, end_b)) return false;
    return a->table == b->table || call->spans->pages[a->table + place] == call->spans->pages[b->table + place];
}

/* The end of the group that begins with this span. */
static const proa_span *group_end(const attend_call *call, const proa_span *span)
{
    const proa_span *end = call->spans->span + call->spans->count;
    while (++span < end && same_pages(call, span - 1, span)) {
    }
    return span;
}

/* The block of a group whose first query this is; n = 0 after the last. It goes on with spans that fit as a whole: a
 * span in two blocks would read the pages that it has for itself twice. */
static attend_item item_at(const attend_call *call, const proa_span *span, const proa_span *end, int64_t unit,
                           int64_t first)
{
    attend_item item = {span, unit, first, 0};
    if (span == end) return item;
    int64_t n = span_queries(call, span) - first, most = call->queries;
    if (span->rows > 1) most = proa_min64(most, PROA_ATTEND_ROWS);
    if (n <= most)
        while (++span < end && n + span_queries(call, span) <= most) n += span_queries(call, span);
    item.n = (int)proa_min64(n, most);
    return item;
}

static attend_item item_after(const attend_call *call, const attend_item *item, const proa_span *end)
{
    const proa_span *span = item->span;
    int64_t first = item->first + item->n;
    while (span < end && first >= span_queries(call, span)) first -= span_queries(call, span++);
    return item_at(call, span, end, item->unit, first);
}

/* ---- biases ---- */

static bool has_bias(const proa_attention *a)
{
    return a->rel_bias || a->alibi;
}

static bool has_side_bias(const proa_attention *a)
{
    return a->side && a->side->rel_bias;
}

/* A block then has the queries of one head. */
static bool differs_by_head(const proa_attention *a)
{
    return has_bias(a) || a->relative || has_side_bias(a);
}

static void fill_buckets(attend_call *call)
{
    const proa_attention *a = call->a;
    int64_t nearest = INT32_MAX, farthest = INT32_MIN; /* distances that occur */
    for (int64_t s = 0; s < call->spans->count; s++) {
        const proa_span *span = &call->spans->span[s];
        nearest = proa_min64(nearest, 1 - (int64_t)span->context);
        farthest = proa_max64(farthest, a->causal ? 0 : (int64_t)span->rows - 1);
    }
    call->reach = (int32_t)proa_min64(a->rel_distance, PROA_ATTEND_REACH);
    nearest = proa_max64(nearest, -call->reach);
    farthest = proa_min64(farthest, call->reach);
    for (int64_t d = nearest; d <= farthest; d++)
        call->buckets[d + call->reach] = (int16_t)proa_rel_bucket((int32_t)d, a->rel_buckets, a->rel_distance,
                                                                  a->rel_bidirectional);
}

/* Fills the distances that the queries of b need. */
static void fill_bias(const attend_call *call, const proa_attend_block *b, proa_attend_bias *bias)
{
    int32_t reach = bias->reach = call->reach;
    bias->by_table = call->a->rel_bias && call->a->rel_distance <= PROA_ATTEND_REACH;
    if (!bias->by_table) return;
    int64_t lowest = b->at[0], highest = b->at[0];
    for (int i = 1; i < b->n; i++) {
        lowest = proa_min64(lowest, b->at[i]);
        highest = proa_max64(highest, b->at[i]);
    }
    /* The 64 entries at either end are used for all that is farther. */
    int64_t begin = proa_max64(proa_min64(b->first - highest, reach), -reach - PROA_PAGE_TOKENS);
    int64_t end = proa_min64(b->last - lowest, reach + PROA_PAGE_TOKENS);
    const float *of_head = call->a->rel_bias + b->head;
    for (int64_t d = begin; d < end; d++) {
        int64_t near = proa_max64(-reach, proa_min64(d, reach));
        bias->at[d + reach + PROA_PAGE_TOKENS] = of_head[call->buckets[near + reach] * call->heads];
    }
}

/* The biases of the 64 keys from distance d on. */
static const float *relative_of(const proa_attend_block *b, int64_t d, float tmp[PROA_PAGE_TOKENS])
{
    const proa_attend_bias *bias = b->bias;
    if (bias->by_table) {
        /* A page wholly beyond the reach reads the last entries, which are all alike. */
        d = proa_max64(-bias->reach - PROA_PAGE_TOKENS, proa_min64(d, bias->reach));
        return bias->at + d + bias->reach + PROA_PAGE_TOKENS;
    }
    const proa_attention *a = b->a;
    for (int64_t j = 0; j < PROA_PAGE_TOKENS; j++) {
        int32_t bucket = proa_rel_bucket((int32_t)(d + j), a->rel_buckets, a->rel_distance, a->rel_bidirectional);
        tmp[j] = a->rel_bias[bucket * b->heads + b->head];
    }
    return tmp;
}

const float *proa_attend_bias_of(const proa_attend_block *b, int i, int64_t key, float tmp[PROA_PAGE_TOKENS])
{
    const proa_attention *a = b->a;
    int64_t d = key - b->at[i];
    const float *relative = a->rel_bias ? relative_of(b, d, tmp) : NULL;
    if (!a->alibi) return relative;
    for (int j = 0; j < PROA_PAGE_TOKENS; j++)
        tmp[j] = -a->alibi[b->head] * fabsf((float)((int32_t)d + j)) + (relative ? relative[j] : 0.0f);
    return tmp;
}

/* ---- blocks ---- */

/* Query i of the block into row i of `out`, with this bias [H dh] of its head (NULL: none). */
static void copy_query(const proa_attend_block *b, float *out, int i, int64_t dh, const float *bias)
{
    out += i * b->pitch;
    memcpy(out, b->q[i], (size_t)dh * sizeof(float));
    memset(out + dh, 0, (size_t)(b->pitch - dh) * sizeof(float));
    for (int64_t j = 0; bias && j < dh; j++) out[j] += bias[b->head * dh + j];
}

/* What a key of another segment than query i adds to the product. */
static float segment_term(const proa_attend_block *b, const proa_relative *r, int i, int64_t dh)
{
    const float *bias = r->segment_bias + b->head * dh, *same = r->segments + b->head * dh;
    const float *other = same + b->heads * dh;
    float sum = 0;
    for (int64_t j = 0; j < dh; j++) sum += (b->q[i][j] + bias[j]) * (other[j] - same[j]);
    return sum;
}

/* Query i of the block is query `flat` of this span. */
static void block_query(const attend_call *call, proa_attend_block *b, int i, const proa_span *span, int64_t flat)
{
    int64_t row = flat / call->group, head = b->head + flat % call->group, t = span->row + row;
    b->q[i] = proa_view_f32(call->q) + t * call->q.stride[0] + head * call->q.stride[1];
    b->y[i] = proa_view_f32(call->y) + t * call->y.stride[0] + head * call->y.stride[1];
    b->pages[i] = call->spans->pages + span->table;
    const proa_side_keys *side = call->side_keys;
    b->row[i] = side ? proa_side_first(side, span) : span->row, b->query_head[i] = head;
    b->at[i] = side ? proa_side_at(side, span, row) : proa_tree_position(call->spans, span, row);
    b->tree[i] = proa_tree_first(span), b->seen[i] = proa_tree_seen(call->spans, span, row);
    row_keys(call, span, row, &b->begin[i], &b->end[i]);
    b->sees[i] = b->begin[i] < b->end[i];
    if (b->sees[i]) {
        b->first = proa_min64(b->first, b->begin[i]);
        b->last = proa_max64(b->last, b->end[i]);
    }
    const proa_relative *r = call->a->relative;
    copy_query(b, b->query, i, call->kv->head_dim, r ? r->content_bias : NULL);
    if (r) copy_query(b, b->placed, i, call->kv->head_dim, r->position_bias);
    if (r && r->types) b->segment[i] = segment_term(b, r, i, call->kv->head_dim);
}

static void block_queries(const attend_call *call, proa_attend_block *b, const attend_item *item)
{
    const proa_span *span = item->span;
    int64_t flat = item->first;
    for (int i = 0; i < item->n; i++, flat++) {
        if (flat == span_queries(call, span)) span++, flat = 0; /* spans in the middle of a group have rows */
        block_query(call, b, i, span, flat);
    }
}

static void block_init(const attend_call *call, const attend_item *item, proa_attend_block *b,
                       proa_attend_bias *bias)
{
    int64_t heads_per_kv = call->heads / call->kv->kv_heads;
    b->n = item->n;
    b->pitch = call->pitch;
    b->kv = call->kv;
    b->head = item->unit * call->group;
    b->heads = call->heads;
    b->kv_head = b->head / heads_per_kv;
    b->a = call->a;
    b->bias = NULL;
    b->first = INT64_MAX, b->last = 0;
    block_queries(call, b, item);
    b->first = proa_min64(b->first, b->last);
    if (!has_bias(call->a)) return;
    b->bias = bias;
    fill_bias(call, b, bias);
}

static void run_chunk(const attend_call *call, const proa_attend_block *b, int64_t chunk, proa_attend_state *part)
{
    int64_t begin = proa_max64(chunk * PROA_ATTEND_CHUNK, b->first / PROA_PAGE_TOKENS);
    int64_t end = proa_min64((chunk + 1) * PROA_ATTEND_CHUNK, proa_ceil_div(b->last, PROA_PAGE_TOKENS));
    call->isa->chunk(b, begin, end, part);
}

/* Takes in the part of one chunk. A query's first part is copied: it must not matter what came before. before: the
 * block of the keys that are not side keys, if the chunk is one of these; else NULL. */
static void take_part(const attend_call *call, const proa_attend_block *b, const proa_attend_block *before,
                      int64_t chunk, proa_attend_state *total, const proa_attend_state *part)
{
    for (int i = 0; i < b->n; i++) {
        int64_t first = b->begin[i] / CHUNK_KEYS;
        if (b->begin[i] >= b->end[i] || chunk < first || chunk * CHUNK_KEYS >= b->end[i]) continue;
        if (chunk > first || (before && before->begin[i] < before->end[i])) {
            call->isa->merge(total, part, i, b->pitch);
            continue;
        }
        total->m[i] = part->m[i];
        total->l[i] = part->l[i];
        memcpy(total->acc + i * b->pitch, part->acc + i * b->pitch, (size_t)b->pitch * sizeof(float));
    }
}

static void finish_block(const attend_call *call, const proa_attend_block *b, proa_attend_state *total)
{
    int64_t dh = call->kv->head_dim;
    for (int i = 0; i < b->n; i++) {
        if (call->a->sinks) {
            double sink = (double)call->a->sinks[b->query_head[i]];
            total->l[i] += (float)exp(sink - (total->m[i] == -INFINITY ? 0 : (double)total->m[i]));
        }
        if (b->sees[i]) call->isa->finish(b->y[i], total, i, b->pitch, dh);
        else memset(b->y[i], 0, (size_t)dh * sizeof(float));
    }
}

/* The side keys of the block's queries, of which total has the other keys. */
static void add_side_keys(const attend_call *call, const attend_item *item, proa_attend_block *b,
                          proa_attend_state *total, proa_attend_state *part)
{
    proa_attend_block side;
    proa_attend_bias bias;
    block_init(call, item, &side, &bias);
    for (int64_t c = 0, end = proa_ceil_div(side.last, CHUNK_KEYS); c < end; c++) {
        run_chunk(call, &side, c, part);
        take_part(call, &side, b, c, total, part);
    }
    for (int i = 0; i < b->n; i++) b->sees[i] = b->sees[i] || side.sees[i];
}

static void run_item(const attend_call *call, const attend_item *item)
{
    proa_attend_block b;
    proa_attend_bias bias;
    proa_attend_state part, total;
    block_init(call, item, &b, &bias);
    int64_t first = b.first / CHUNK_KEYS, end = proa_ceil_div(b.last, CHUNK_KEYS);
    bool merges = end - first > 1 || call->side;
    for (int64_t c = first; c < end; c++) {
        run_chunk(call, &b, c, &part);
        if (merges) take_part(call, &b, NULL, c, &total, &part);
    }
    if (call->side) add_side_keys(call->side, item, &b, &total, &part);
    finish_block(call, &b, merges ? &total : &part);
}

/* ---- all blocks in order, with their cost ---- */

typedef void visit_fn(void *arg, const attend_item *item);

/* The keys that any query of an item sees, and the item's cost. */
typedef struct attend_size {
    int64_t begin, end, cost;
} attend_size;

static attend_size item_size(const attend_call *call, const attend_item *item)
{
    attend_size size = {INT64_MAX, 0, 0};
    const proa_span *span = item->span;
    int64_t first = item->first, left = item->n, begin, end, keys, pages = 2; /* 2: the pages have to come, too */
    for (; left > 0; span++, first = 0, pages = 0) {
        int64_t n = proa_min64(left, span_queries(call, span) - first);
        int64_t row = first / call->group, last = (first + n - 1) / call->group;
        rows_keys(call, span, row, last + 1, &begin, &end);
        size.begin = proa_min64(size.begin, begin);
        size.end = proa_max64(size.end, end);
        row_keys(call, span, row, &begin, &end);
        keys = end - begin;
        row_keys(call, span, last, &begin, &end);
        keys = (keys + end - begin) / 2; /* of the middle row */
        size.cost += (keys + 32) * (n + pages) * call->pitch;
        left -= n;
    }
    return size;
}

/* The chunks [first, end) of an item's keys; one, of zeros, if it has none. */
static int64_t first_chunk(const attend_size *size)
{
    return size->begin / CHUNK_KEYS;
}

static int64_t end_chunk(const attend_size *size)
{
    return proa_max64(size->begin / CHUNK_KEYS + 1, proa_ceil_div(size->end, CHUNK_KEYS));
}

/* Cost of one unit of a group. */
static int64_t unit_cost(const attend_call *call, const proa_span *span, const proa_span *end)
{
    int64_t cost = 0;
    for (attend_item item = item_at(call, span, end, 0, 0); item.n > 0; item = item_after(call, &item, end))
        cost += item_size(call, &item).cost;
    return cost;
}

/* Visits the blocks whose cost starts within [from, to) of the call's total: group by group, unit by unit, so that
 * the blocks of one unit find its pages in the second cache. */
static void visit_runs(const attend_call *call, int64_t from, int64_t to, visit_fn *visit, void *arg)
{
    const proa_span *last = call->spans->span + call->spans->count;
    int64_t at = 0;
    for (const proa_span *span = call->spans->span, *end; span < last && at < to; span = end) {
        end = group_end(call, span);
        int64_t cost = unit_cost(call, span, end);
        for (int64_t u = 0; u < call->units && at < to; u++) {
            if (at + cost <= from) {
                at += cost;
                continue;
            }
            for (attend_item item = item_at(call, span, end, u, 0); item.n > 0;
                 item = item_after(call, &item, end)) {
                if (at >= from && at < to) visit(arg, &item);
                at += item_size(call, &item).cost;
            }
        }
    }
}

static void visit_run(void *arg, const attend_item *item)
{
    run_item(arg, item);
}

static void run_part(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    attend_call *call = arg;
    int64_t share = call->total / call->parts;
    visit_runs(call, share * begin, end == call->parts ? call->total : share * end, visit_run, call);
}

/* ---- the context split, too: rounds of (block, chunk)s, merged in order after each round ---- */

typedef struct attend_job {
    attend_item item;
    int64_t chunk;
    bool last; /* of its block */
} attend_job;

typedef struct attend_round {
    attend_call *call;
    proa_pool *pool;
    proa_attend_state *parts; /* [jobs_max], in scratch */
    proa_attend_state total;  /* of the block that the last round left unfinished */
    int count, jobs_max;
    attend_job jobs[JOBS_MAX];
} attend_round;

static void run_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    attend_round *round = arg;
    proa_attend_block b;
    proa_attend_bias bias;
    for (int64_t j = begin; j < end; j++) {
        block_init(round->call, &round->jobs[j].item, &b, &bias);
        run_chunk(round->call, &b, round->jobs[j].chunk, &round->parts[j]);
    }
}

static void flush_round(attend_round *round)
{
    proa_attend_block b;
    proa_attend_bias bias;
    proa_pool_run(round->pool, round->count, 1, run_jobs, round);
    for (int j = 0; j < round->count; j++) {
        attend_job *job = &round->jobs[j];
        if (j == 0 || round->jobs[j - 1].last) block_init(round->call, &job->item, &b, &bias);
        take_part(round->call, &b, NULL, job->chunk, &round->total, &round->parts[j]);
        if (job->last) finish_block(round->call, &b, &round->total);
    }
    round->count = 0;
}

static void visit_split(void *arg, const attend_item *item)
{
    attend_round *round = arg;
    attend_size size = item_size(round->call, item);
    int64_t end = end_chunk(&size);
    for (int64_t c = first_chunk(&size); c < end; c++) {
        round->jobs[round->count++] = (attend_job){*item, c, c + 1 == end};
        if (round->count == round->jobs_max) flush_round(round);
    }
}

static void run_split(proa_ctx *c, attend_call *call, int slots)
{
    attend_round round = {.call = call, .pool = c->pool, .parts = c->scratch, .jobs_max = slots};
    visit_runs(call, 0, call->total, visit_split, &round);
    flush_round(&round);
}

/* ---- how finely to cut ---- */

static void measure_call(attend_call *call)
{
    const proa_span *last = call->spans->span + call->spans->count;
    call->total = call->largest = call->piece = 0;
    for (const proa_span *span = call->spans->span, *end; span < last; span = end) {
        end = group_end(call, span);
        for (attend_item item = item_at(call, span, end, 0, 0); item.n > 0; item = item_after(call, &item, end)) {
            attend_size size = item_size(call, &item);
            call->total += call->units * size.cost;
            call->largest = proa_max64(call->largest, size.cost);
            call->piece = proa_max64(call->piece, size.cost / (end_chunk(&size) - first_chunk(&size)));
        }
    }
}

/* Chooses the size of blocks and who works; true: chunks of blocks are spread, not blocks. If one block is more than a
 * thread's fair share, its context is cut where it has chunks enough; else the block is, though its parts then read
 * the same pages. */
static bool cut_spans(attend_call *call, int threads, int64_t slots)
{
    measure_call(call);
    threads = (int)proa_max64(1, proa_min64(threads, call->total / COST_SHARE));
    call->parts = threads;
    while (call->parts > 1 && call->largest > call->total / threads) {
        bool chunks = slots >= 2 && call->piece < call->largest && !call->side;
        if (chunks && (call->queries == 1 || call->piece * 2 <= call->total / threads)) return true;
        if (call->queries == 1) return false;
        call->queries /= 2;
        measure_call(call);
    }
    return false;
}

/* The call of the side keys, whose attention and keys are a and kv. */
static attend_call side_call(const attend_call *of, proa_attention *a, proa_kv *kv)
{
    const proa_side_keys *s = of->a->side;
    attend_call call = *of;
    *a = *of->a;
    a->side = NULL, a->window = 0, a->rel_bias = s->rel_bias;
    *kv = *of->kv;
    kv->k = s->k, kv->v = s->v, kv->dtype = PROA_DTYPE_F32, kv->row = s->row;
    call.a = a, call.kv = kv, call.side_keys = s;
    if (a->rel_bias) fill_buckets(&call);
    return call;
}

void proa_attend_run(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                     const proa_attention *a, const proa_attend_isa *isa)
{
    attend_call call = {.y = y, .q = q, .kv = kv, .spans = spans, .a = a, .isa = isa, .heads = q.shape[1]};
    call.units = differs_by_head(a) ? call.heads : kv->kv_heads;
    call.group = call.heads / call.units;
    call.pitch = proa_round_up(kv->head_dim, 16);
    call.queries = proa_min64(PROA_ATTEND_QUERIES, PROA_ATTEND_FLOATS / call.pitch);
    PROA_DASSERT(kv->head_dim <= PROA_HEAD_DIM_MAX && call.heads % kv->kv_heads == 0);
    PROA_DASSERT(!spans->seen || (a->causal && !kv->row));
    PROA_DASSERT(!a->relative || (kv->row && kv->dtype == PROA_DTYPE_F32));
    PROA_DASSERT(!a->side || (!a->causal && !a->alibi && !a->relative));
    PROA_DASSERT(!a->of_globals || (!a->causal && kv->row));
    if (a->rel_bias) fill_buckets(&call);
    proa_attention side_attention;
    proa_kv side_kv;
    attend_call side;
    if (a->side) side = side_call(&call, &side_attention, &side_kv), call.side = &side;
    int64_t slots = proa_min64(c->scratch_bytes / (int64_t)sizeof(proa_attend_state), JOBS_MAX);
    if (cut_spans(&call, proa_pool_threads(c->pool), slots)) run_split(c, &call, (int)slots);
    else proa_pool_run(c->pool, call.parts, 1, run_part, &call);
}
