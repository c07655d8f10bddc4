/* SPDX-License-Identifier: Apache-2.0
 * rows.c - the ops that look up, move, add and scale rows. */
#include "kernels/reference/reference.h"

#include "kernels/reference/view_at.h"

void proa_embed_reference(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale,
                          bool accumulate)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++) {
        int64_t row = ids[t] < table.shape[0] ? ids[t] : 0;
        for (int64_t j = 0; j < y.shape[1]; j++) {
            float v = scale * load_element(table.data, table.dtype, row * table.stride[0] + j * table.stride[1]);
            *at_row(y, t, j) = accumulate ? *at_row(y, t, j) + v : v;
        }
    }
}

void proa_gather_reference(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < y.shape[0]; i++)
        for (int64_t j = 0; j < y.shape[1]; j++) *at_row(y, i, j) = *at_row(x, rows[i], j);
}

/* Work on the rows of spans, shared among workers by columns. */
typedef struct span_job {
    proa_view y, x;
    const proa_spans *spans;
    int64_t width; /* of unfold; rows of a block of block_sums */
} span_job;

static void unfold_row(const span_job *job, const proa_span *span, int64_t i, int64_t begin, int64_t end)
{
    for (int64_t s = 0; s < job->width; s++) {
        int64_t from = i + s - (job->width - 1) / 2;
        bool there = from >= 0 && from < span->rows;
        for (int64_t k = begin; k < end; k++)
            *at_row(job->y, span->row + i, k * job->width + s) = there ? *at_row(job->x, span->row + from, k)
                                                                       : 0.0f;
    }
}

static void unfold_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const span_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++)
        for (int64_t i = 0; i < job->spans->span[s].rows; i++)
            unfold_row(job, &job->spans->span[s], i, begin, end);
}

void proa_unfold_reference(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t width)
{
    span_job job = {y, x, spans, width};
    proa_pool_run(c->pool, x.shape[1], 64, unfold_columns, &job);
}

static void mean_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const span_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++) {
        const proa_span *span = &job->spans->span[s];
        for (int64_t k = begin; k < end && span->rows > 0; k++) {
            double sum = 0;
            for (int64_t i = 0; i < span->rows; i++) sum += (double)*at_row(job->x, span->row + i, k);
            *at_row(job->y, span->row, k) = (float)(sum / (double)span->rows);
        }
    }
}

void proa_span_mean_reference(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans)
{
    span_job job = {y, x, spans, 1};
    proa_pool_run(c->pool, x.shape[1], 64, mean_columns, &job);
}

void proa_drop_masked_reference(proa_ctx *c, proa_view y, const int32_t *ids, const proa_spans *spans,
                                int32_t mask, float keep)
{
    PROA_UNUSED(c);
    for (int64_t s = 0; s < spans->count; s++) {
        const proa_span *span = &spans->span[s];
        int64_t kept = 0;
        for (int64_t i = 0; i < span->rows; i++) kept += ids[span->row + i] != mask;
        for (int64_t i = 0; i < span->rows; i++) {
            bool masked = ids[span->row + i] == mask;
            float factor = masked ? 0 : keep * (float)span->rows / (float)kept;
            for (int64_t j = 0; j < y.shape[1]; j++) {
                float *at = at_row(y, span->row + i, j);
                *at = masked ? 0 : factor * *at;
            }
        }
    }
}

/* Rows [begin, end) of x into row t of y. */
static void sum_rows(const span_job *job, int64_t t, int64_t begin, int64_t end, int64_t k)
{
    double sum = 0;
    for (int64_t i = begin; i < end; i++) sum += (double)*at_row(job->x, i, k);
    *at_row(job->y, t, k) = (float)sum;
}

static void sum_blocks(const span_job *job, const proa_span *span, int64_t k)
{
    int64_t first = span->row / job->width, last = (span->row + span->rows) / job->width;
    int64_t blocks = span->rows / job->width, row = span->row;
    for (int64_t b = 0; b < last - first; b++) {
        int64_t begin = b < blocks ? row + b * job->width : 0, end = b < blocks ? begin + job->width : 0;
        sum_rows(job, first + b, begin, b == blocks - 1 ? row + span->rows : end, k);
    }
}

static void sum_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const span_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++)
        for (int64_t k = begin; k < end; k++) sum_blocks(job, &job->spans->span[s], k);
}

void proa_block_sums_reference(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t block)
{
    span_job job = {y, x, spans, block};
    proa_pool_run(c->pool, x.shape[1], 64, sum_columns, &job);
}

void proa_add_reference(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[1]; j++) *at_row(y, t, j) = *at_row(a, t, j) + *at_row(b, t, j);
}

void proa_scale_reference(proa_ctx *c, proa_view y, proa_view x, float factor)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) *at_row(y, t, j) = factor * *at_row(x, t, j);
}
