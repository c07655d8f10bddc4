/* SPDX-License-Identifier: Apache-2.0
 * tune_cpu.c - `proa tune` on the CPU: times the matrix products of a model at each instruction set
 * level. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/thread.h"
#include "cli/output.h"
#include "cli/bench/tune.h"
#include "model/model.h"
#include <string.h>

enum { SHAPES_MAX = 64, RUNS_NS = 20000000, RUNS_LEAST = 3 };
static const int64_t widths[] = {1, 4, 16, 64};

typedef struct shape {
    int64_t N, K, count; /* count: of matrices like this in the model */
} shape;

typedef struct tune_run {
    const proa_tuner *tuner;
    proa_wfmt format;
    shape shapes[SHAPES_MAX];
    int count;
    proa_pool *pool;
    float *x, *y, *source;
    proa_progress progress;
    int64_t shown;
} tune_run;

static void add_shape(tune_run *m, const proa_param *p)
{
    if (!proa_param_is_matrix(p)) return;
    for (int i = 0; i < m->count; i++)
        if (m->shapes[i].N == p->rows && m->shapes[i].K == p->cols) {
            m->shapes[i].count++;
            return;
        }
    if (m->count < SHAPES_MAX) m->shapes[m->count++] = (shape){p->rows, p->cols, 1};
}

/* The model's plan lists the products; no weights are loaded. */
static proa_status read_shapes(tune_run *m, proa_err *err)
{
    const proa_common *c = &m->tuner->common;
    proa_model *model = NULL;
    proa_device *device;
    proa_model_options options = {.dtype = c->dtype, .quant = c->quant, .rows_max = 1, .head_rows = 1};
    PROA_TRY(proa_device_open(&device, "cpu", err));
    proa_status status = proa_model_prepare(&model, c->model, &options, device, m->pool, err);
    for (int s = 0; s < PROA_STACK_COUNT && status == PROA_OK; s++) {
        const proa_params *p = &model->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) add_shape(m, &p->param[i]);
        m->format = model->formats.main;
    }
    proa_model_free(model);
    proa_device_close(device);
    return status;
}

/* Not zeros, which multiply faster. */
static void fill_random(float *to, int64_t count)
{
    uint32_t bits = 1;
    for (int64_t i = 0; i < count; i++) {
        bits = bits * 1664525u + 1013904223u;
        to[i] = (float)(int32_t)(bits >> 8) * 0x1p-24f - 0.5f;
    }
}

/* The least of some runs, in microseconds. */
static double best_us(proa_ctx *c, const proa_weight *w, const tune_run *m, int64_t rows)
{
    int64_t begin = proa_clock_ns(), least = INT64_MAX;
    const proa_epilogue plain = {0};
    for (int64_t i = 0; i < RUNS_LEAST || proa_clock_ns() - begin < RUNS_NS; i++) {
        int64_t start = proa_clock_ns();
        c->ops->linear(c, proa_view_2d(m->y, PROA_DTYPE_F32, rows, w->N),
                       proa_view_2d(m->x, PROA_DTYPE_F32, rows, w->K), w, &plain);
        least = proa_min64(least, proa_clock_ns() - start);
    }
    return (double)least * 1e-3;
}

/* One shape at one level: us[] by width. UNSUPPORTED where the level has no such format. */
static proa_status time_shape(tune_run *m, const shape *s, proa_isa isa, double us[], proa_err *err)
{
    proa_ctx c = {.ops = proa_ops_cpu(isa)};
    const proa_ctx_need need = {
        .rows = widths[PROA_COUNT(widths) - 1], .inputs = s->K, .heads = 1, .head_dim = 64, .columns = 64};
    proa_weight w = {
        .format = m->format, .N = s->N, .K = s->K, .bytes = c.ops->pack_bytes(m->format, s->N, s->K)};
    proa_tensor_source source = proa_tensor_source_of(proa_view_2d(m->source, PROA_DTYPE_F32, s->N, s->K));
    if (w.bytes < 0) return PROA_UNSUPPORTED;
    w.data = proa_pages_alloc(w.bytes);
    proa_status status = w.data ? proa_ctx_init(&c, c.ops, m->pool, &need, err)
                                : PROA_FAIL(err, NO_MEMORY, "cannot take %lld bytes", (long long)w.bytes);
    if (status == PROA_OK) {
        c.ops->pack(&c, &w, &source, 1);
        for (size_t i = 0; i < PROA_COUNT(widths); i++)
            us[i] = widths[i] <= m->tuner->rows ? best_us(&c, &w, m, widths[i]) : 0;
    }
    proa_ctx_release(&c);
    if (w.data) proa_pages_free(w.data, w.bytes);
    return status;
}

static void show_line(tune_run *m, const shape *s, proa_isa isa, const double us[], proa_output *out)
{
    if (m->tuner->common.json) {
        proa_output_printf(out, "%s{\"N\":%lld,\"K\":%lld,\"count\":%lld,\"isa\":\"%s\",\"us\":{",
                           m->shown++ ? "," : "", (long long)s->N, (long long)s->K, (long long)s->count,
                           proa_isa_name(isa));
        for (size_t i = 0; i < PROA_COUNT(widths) && us[i] > 0; i++)
            proa_output_printf(out, "%s\"%lld\":%.3f", i ? "," : "", (long long)widths[i], us[i]);
        proa_output_str(out, "}}");
        return;
    }
    proa_output_printf(out, "%7lld  %7lld  %5lld  %-12s", (long long)s->N, (long long)s->K,
                       (long long)s->count, proa_isa_name(isa));
    for (size_t i = 0; i < PROA_COUNT(widths) && us[i] > 0; i++) proa_output_printf(out, "  %9.1f", us[i]);
    proa_output_str(out, "\n");
}

static proa_status time_level(tune_run *m, const shape *s, proa_isa isa, proa_output *out, proa_err *err)
{
    double us[PROA_COUNT(widths)];
    proa_status status = time_shape(m, s, isa, us, err);
    if (status == PROA_OK) show_line(m, s, isa, us, out);
    return status == PROA_UNSUPPORTED ? PROA_OK : status;
}

static proa_status time_all(tune_run *m, proa_output *out, proa_err *err)
{
    proa_isa best = proa_isa_detect();
    const char *format = proa_wfmt_name(m->format), *takes = proa_isa_name(proa_isa_choose());
    bool json = m->tuner->common.json;
    if (json)
        proa_output_printf(out, "{\"format\":\"%s\",\"kept\":false,\"takes\":\"%s\",\"products\":[", format,
                           takes);
    else proa_output_str(out, "      N        K  times  level        us a product of 1, 4, 16, 64 rows\n");
    for (int i = 0; i < m->count; i++)
        for (int isa = best > PROA_ISA_GENERIC ? PROA_ISA_AVX2 : PROA_ISA_GENERIC; isa <= (int)best; isa++) {
            if (proa_interrupted()) return PROA_FAIL(err, CANCELLED, "cancelled");
            proa_progress_show(&m->progress, (double)i / m->count, "%lld x %lld", (long long)m->shapes[i].N,
                               (long long)m->shapes[i].K);
            PROA_TRY(time_level(m, &m->shapes[i], (proa_isa)isa, out, err));
        }
    if (json) proa_output_str(out, "]}\n");
    else
        proa_output_printf(out,
                           "\n%s weights. Nothing is kept: the program takes the widest level, %s; "
                           "PROA_ISA=LEVEL forces another\n",
                           format, takes);
    return PROA_OK;
}

static proa_status take_memory(tune_run *m, proa_err *err)
{
    int64_t matrix = 1, inputs = 1, outputs = 1, rows = widths[PROA_COUNT(widths) - 1];
    for (int i = 0; i < m->count; i++) {
        matrix = proa_max64(matrix, m->shapes[i].N * m->shapes[i].K);
        inputs = proa_max64(inputs, m->shapes[i].K);
        outputs = proa_max64(outputs, m->shapes[i].N);
    }
    if (8 * matrix > proa_memory_available()) /* as stored and packed */
        return PROA_FAIL(err, NO_MEMORY, "the largest matrix needs %.0f MB to be timed", (double)matrix * 8e-6);
    m->source = proa_malloc((size_t)matrix * sizeof *m->source);
    m->x = proa_malloc((size_t)(rows * inputs) * sizeof *m->x);
    m->y = proa_malloc((size_t)(rows * outputs) * sizeof *m->y);
    fill_random(m->source, matrix);
    fill_random(m->x, rows * inputs);
    return PROA_OK;
}

proa_status proa_tune_cpu(const proa_tuner *t, proa_err *err)
{
    tune_run m = {.tuner = t, .pool = proa_pool_new((int)t->common.threads)};
    proa_output out;
    proa_progress_init(&m.progress);
    proa_status status = read_shapes(&m, err);
    if (status == PROA_OK) status = take_memory(&m, err);
    if (status == PROA_OK) status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) {
        status = time_all(&m, &out, err);
        proa_progress_clear(&m.progress);
        proa_status closed = proa_output_close(&out, status == PROA_OK ? err : NULL);
        if (status == PROA_OK) status = closed;
    }
    free(m.source), free(m.x), free(m.y);
    proa_pool_free(m.pool);
    return status;
}
