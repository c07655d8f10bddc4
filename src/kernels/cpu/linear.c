/* SPDX-License-Identifier: Apache-2.0
 * linear.c - the driver of the vector versions of linear: prepares rows, cuts the product into tiles, spreads them.
 * Every sum is one chain over all of k inside one tile call, so no cut below changes a result. */
#include "kernels/cpu/linear.h"

#include "base/checked.h"
#include "kernels/groups.h"

/* Rows that are multiplied with a panel while it is in L2: enough to make reading the panel cheap. */
#define CHUNK_ROWS     96
/* Work that is worth a second worker, in multiply-adds: a few microseconds. */
#define WORTH_A_WORKER ((int64_t)1 << 17)
#define ROUND_SHARE    8192 /* numbers of x to quantise or round */
/* What else a panel costs where tiles multiply, in the same unit: the end of an output, and a byte of weights. */
#define FINISH_WORK    64
#define READ_WORK      4

typedef struct linear_job {
    const proa_linear_isa *isa;
    proa_view y, x;
    const proa_weight *w;
    const proa_epilogue *e;
    const char *words; /* rows as the tile reads them: x itself, or scratch */
    int64_t words_stride;
    float *x_scales; /* int8: one for each row */
    char *sums;      /* PROA_LINEAR_WORKER_BYTES for each worker */
    int64_t panels, parts;
    bool one_stream; /* proa_ctx.one_stream */
} linear_job;

static const float *row_of(proa_view v, int64_t t)
{
    return proa_view_f32(v) + t * v.stride[0];
}

static void prepare_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const linear_job *job = arg;
    for (int64_t t = begin; t < end; t++) {
        char *words = (char *)(uintptr_t)job->words + t * job->words_stride;
        if (proa_wfmt_is_grouped(job->w->format))
            job->isa->quantise_groups(words, row_of(job->x, t), job->w->K,
                                      proa_group_factor(job->w->format, job->isa->biased),
                                      proa_group_order(job->w));
        else if (job->w->format == PROA_WFMT_I8)
            job->isa->quantise((int8_t *)words, &job->x_scales[t], row_of(job->x, t), job->w->K);
        else job->isa->round((uint16_t *)(void *)words, row_of(job->x, t), job->w->K);
    }
}

/* Bytes of a row of x as the tiles read it; 0: x itself. */
static int64_t row_bytes(const proa_weight *w)
{
    int64_t steps = proa_panel_steps(w->format, w->K);
    if (proa_wfmt_is_grouped(w->format)) return steps * (PROA_GROUP + 8);
    return w->format == PROA_WFMT_I8 || w->format == PROA_WFMT_BF16DOT ? steps * 4 : 0;
}

/* Rows of x as words in memory, if the format wants them. */
static void make_words(proa_ctx *c, linear_job *job, char *memory)
{
    int64_t rows = job->x.shape[0], whole = proa_max64(1, job->isa->rows_whole);
    job->words = job->x.data;
    job->words_stride = job->x.stride[0] * 4;
    if (row_bytes(job->w) == 0) return;
    job->words_stride = proa_round_up(row_bytes(job->w), 64);
    /* An even number of lines apart, the rows of a tile would fall on few sets of the first cache. */
    if (whole > 1) job->words_stride |= 64;
    job->words = memory;
    job->x_scales = (float *)(void *)(memory + proa_round_up(rows, whole) * job->words_stride);
    int64_t grain = proa_ceil_div(ROUND_SHARE, proa_max64(1, job->w->K));
    proa_pool_run(c->pool, rows, grain, prepare_rows, job);
}

static proa_tile_epilogue finish_of(const linear_job *job, const void *sums, int64_t sums_stride, int64_t t,
                                    int64_t rows, int64_t panel, int64_t panels)
{
    const proa_epilogue *e = job->e;
    const proa_weight *w = job->w;
    int64_t n = panel * PROA_PANEL;
    proa_tile_epilogue f = {.sums = sums, .sums_stride = sums_stride, .rows = rows, .act = e->act};
    f.columns = proa_min64(panels * PROA_PANEL, w->N - n);
    f.alpha = e->alpha == 0.0f ? 1.0f : e->alpha;
    f.bias = e->bias ? e->bias + n : NULL;
    f.y = proa_view_f32(job->y) + t * job->y.stride[0] + n;
    f.y_stride = job->y.stride[0];
    if (e->residual.rank) f.residual = row_of(e->residual, t) + n, f.residual_stride = e->residual.stride[0];
    if (w->format == PROA_WFMT_I8) {
        const char *tail = (const char *)w->data + job->panels * proa_panel_bytes(w->format, w->K);
        f.x_scales = job->x_scales + t;
        f.w_scales = (const float *)(const void *)tail + n;
        if (job->isa->biased) f.w_sums = (const int32_t *)(const void *)tail + job->panels * PROA_PANEL + n;
    }
    return f;
}

/* Rows [t, t + rows) with panels [panel, panel + panels): one tile. */
static void do_tile(const linear_job *job, char *sums, int64_t t, int64_t rows, int64_t panel, int64_t panels)
{
    const proa_weight *w = job->w;
    int64_t panel_bytes = proa_panel_bytes(w->format, w->K), stride = panels * PROA_PANEL;
    proa_tile tile = {.x = job->words + t * job->words_stride,
                      .x_stride = job->words_stride,
                      .w = (const char *)w->data + panel * panel_bytes,
                      .panel_bytes = panel_bytes,
                      .steps = proa_panel_steps(w->format, w->K),
                      .sums = sums,
                      .sums_stride = stride,
                      .rows = (int)rows,
                      .panels = (int)panels,
                      .hardware_prefetch = job->one_stream};
    job->isa->tile[w->format](&tile);
    proa_tile_epilogue f = finish_of(job, sums, stride, t, rows, panel, panels);
    job->isa->finish(&f);
}

/* Panels that a tile of few rows takes at once. Formats in groups have chains enough in one panel. */
static int64_t panels_at_once(const linear_job *job, int64_t rows)
{
    return job->one_stream || proa_wfmt_is_grouped(job->w->format) ? 1 : job->isa->panels_of[rows];
}

/* Few rows: several panels at a time, so that enough chains run side by side. */
static void do_skinny(const linear_job *job, char *sums, int64_t t, int64_t rows, int64_t begin, int64_t end)
{
    int64_t wide = panels_at_once(job, rows);
    for (int64_t panel = begin; panel < end;) {
        while (wide > end - panel) wide /= 2;
        do_tile(job, sums, t, rows, panel, wide);
        panel += wide;
    }
}

/* Where the i-th of n parts of the rows begins. Rows are cut evenly: 13 rows are 7 and 6, not 12 and 1; but where
 * tiles are always whole, 40 are 32 and 8. */
static int64_t cut_columns(const linear_job *job, int64_t rows, int64_t i, int64_t n)
{
    int64_t at = rows * i / n, whole = proa_max64(1, job->isa->rows_whole);
    return proa_min64(rows, proa_round_up(at, whole));
}

/* Rows [t, t_end) with panels [begin, end). */
static void do_range(const linear_job *job, char *sums, int64_t t, int64_t t_end, int64_t begin, int64_t end)
{
    if (t_end - t <= job->isa->rows_skinny) {
        if (t < t_end) do_skinny(job, sums, t, t_end - t, begin, end);
        return;
    }
    for (; t < t_end; t += CHUNK_ROWS) {
        int64_t chunk = proa_min64(CHUNK_ROWS, t_end - t), tiles = proa_ceil_div(chunk, job->isa->rows_max);
        for (int64_t panel = begin; panel < end; panel++)
            for (int64_t i = 0; i < tiles; i++) {
                int64_t first = cut_columns(job, chunk, i, tiles), last = cut_columns(job, chunk, i + 1, tiles);
                do_tile(job, sums, t + first, last - first, panel, 1);
            }
    }
}

/* Items are (part of the rows, panel), panels running fastest. */
static void run_panels(void *arg, int64_t begin, int64_t end, int worker)
{
    const linear_job *job = arg;
    char *sums = job->sums + worker * PROA_LINEAR_WORKER_BYTES;
    int64_t rows = job->y.shape[0];
    if (job->isa->enter) job->isa->enter();
    while (begin < end) {
        int64_t part = begin / job->panels, first = begin % job->panels;
        int64_t last = proa_min64(job->panels, first + end - begin);
        do_range(job, sums, cut_columns(job, rows, part, job->parts),
                 cut_columns(job, rows, part + 1, job->parts), first, last);
        begin += last - first;
    }
    if (job->isa->leave) job->isa->leave();
}

/* The cost of a panel for that many rows. */
static int64_t panel_work(const linear_job *job, int64_t rows)
{
    const proa_weight *w = job->w;
    int64_t outputs = rows * PROA_PANEL, speed = job->isa->speed;
    if (speed <= 1 || rows <= job->isa->rows_skinny) return outputs * w->K;
    return outputs * (w->K / speed + FINISH_WORK) + READ_WORK * proa_panel_bytes(w->format, w->K);
}

static void run_product(proa_ctx *c, linear_job *job)
{
    int64_t rows = job->y.shape[0], threads = proa_pool_threads(c->pool);
    /* Too few panels for the workers: cut the rows too, into whole tiles. */
    if (job->panels < 4 * threads && rows >= 2 * job->isa->rows_max)
        job->parts = proa_min64(rows / job->isa->rows_max, proa_ceil_div(4 * threads, job->panels));
    int64_t work = proa_max64(1, panel_work(job, proa_ceil_div(rows, job->parts)));
    int64_t grain = proa_ceil_div(WORTH_A_WORKER, work);
    int64_t wide = rows <= job->isa->rows_skinny ? panels_at_once(job, rows) : 1;
    if (job->panels >= 4 * wide * threads) grain = proa_round_up(grain, wide);
    proa_pool_run(c->pool, job->panels * job->parts, grain, run_panels, job);
}

/* At most PROA_LINEAR_ROWS rows. */
static void run_rows(proa_ctx *c, linear_job *job)
{
    int64_t rows = job->y.shape[0], threads = proa_pool_threads(c->pool);
    char *scratch = c->scratch,
         *workers = scratch + (c->scratch_bytes - threads * PROA_LINEAR_WORKER_BYTES) / 64 * 64;
    job->sums = workers;
    make_words(c, job, scratch);
    PROA_ASSERT(!job->x_scales || (char *)(job->x_scales + rows) <= workers); /* proa_ctx_need was too small */
    run_product(c, job);
}

/* A gate's rows and its factor's are far apart: multiplying both panels of an output before its end is reached was no
 * faster than a pass of its own (README.md). */
static void run_gated(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                      const proa_linear_isa *isa)
{
    const proa_epilogue sums = {.alpha = e->alpha, .bias = e->bias};
    int64_t F = w->N / 2;
    proa_linear_run(c, e->workspace, x, w, &sums, isa);
    c->ops->act_mul(c, y, proa_view_cols(e->workspace, 0, F), proa_view_cols(e->workspace, F, 2 * F), e->act);
}

void proa_linear_run(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                     const proa_linear_isa *isa)
{
    PROA_DASSERT(w->format != PROA_WFMT_I8 || w->K <= PROA_I8_INPUTS_MAX);
    PROA_DASSERT(x.shape[1] == w->K && y.shape[1] * (1 + e->gated) == w->N && x.shape[0] == y.shape[0]);
    if (e->gated) {
        run_gated(c, y, x, w, e, isa);
        return;
    }
    for (int64_t t = 0; t < x.shape[0]; t += PROA_LINEAR_ROWS) {
        int64_t end = proa_min64(x.shape[0], t + PROA_LINEAR_ROWS);
        proa_epilogue part = *e;
        if (part.residual.rank) part.residual = proa_view_rows(part.residual, t, end);
        linear_job job = {.isa = isa, .w = w, .e = &part, .panels = proa_panel_count(w->N), .parts = 1};
        job.one_stream = c->one_stream;
        job.y = proa_view_rows(y, t, end);
        job.x = proa_view_rows(x, t, end);
        run_rows(c, &job);
    }
}

/* ---- rows in groups, each with a weight of its own ---- */

typedef struct grouped_job {
    const linear_job *all;           /* of the rows of all groups */
    const proa_linear_group *groups; /* in parts of CHUNK_ROWS at most */
} grouped_job;

/* Items are (group, panel), panels running fastest. */
static void grouped_product(void *arg, int64_t begin, int64_t end, int worker)
{
    const grouped_job *grouped = arg;
    const linear_job *all = grouped->all;
    char *sums = all->sums + worker * PROA_LINEAR_WORKER_BYTES;
    if (all->isa->enter) all->isa->enter();
    while (begin < end) {
        const proa_linear_group *group = &grouped->groups[begin / all->panels];
        int64_t first = begin % all->panels, last = proa_min64(all->panels, first + end - begin);
        linear_job job = *all;
        proa_weight w = *all->w;
        proa_epilogue e = *all->e;
        w.data = (char *)w.data + group->expert * w.stride;
        if (e.bias) e.bias += group->expert * w.N;
        job.w = &w, job.e = &e;
        do_range(&job, sums, group->first, group->first + group->rows, first, last);
        begin += last - first;
    }
    if (all->isa->leave) all->isa->leave();
}

void proa_linear_run_grouped(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w,
                             const proa_epilogue *e, const proa_linear_group *groups, int64_t count,
                             char *words, char *sums, const proa_linear_isa *isa)
{
    linear_job job = {.isa = isa, .y = y, .x = x, .w = w, .e = e, .sums = sums, .parts = 1};
    grouped_job grouped = {&job, groups};
    if (!count) return;
    job.panels = proa_panel_count(w->N);
    job.one_stream = c->one_stream;
    make_words(c, &job, words);
    int64_t work = proa_max64(1, panel_work(&job, proa_ceil_div(x.shape[0], count)));
    proa_pool_run(c->pool, job.panels * count, proa_ceil_div(WORTH_A_WORKER, work), grouped_product, &grouped);
}
