/* SPDX-License-Identifier: Apache-2.0
 * attend.c - decode attention alone on a GPU: `batch` sequences of one row each over contexts of their own, in the
 * shapes of models. Prints microseconds a call, GB/s of keys and values, and the share of the card's read rate measured
 * before.
 *   bench-gpu-attend [BATCH [CONTEXT [DEVICE [ROWS [TOKENS]]]]]   32, 4096 and cuda without them
 * With ROWS, a chunk of a prompt is beside the decoding rows: so many rows at the end of a context of TOKENS tokens. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 20, ROUNDS = 7 };

typedef struct shape {
    const char *model;
    int64_t heads, kv_heads, head_dim;
    proa_dtype dtype;
} shape;

typedef struct bench {
    proa_device *d;
    int64_t batch, context;
    int64_t rows, tokens; /* of the chunk; 0: there is none */
    double read_rate;
    proa_span *span; /* on the device, as pages */
    proa_span *spans_here;
    int32_t *pages;
    int64_t pages_count;
} bench;

static int64_t spans_of(const bench *b)
{
    return b->batch + (b->rows > 0);
}

static int64_t rows_of(const bench *b)
{
    return b->batch + b->rows;
}

/* The pages of a sequence lie apart, as they do in a server: page p of sequence i is p * batch + i. Those of the
 * chunk's context come behind. */
static int place(bench *b)
{
    int64_t each = proa_ceil_div(b->context, PROA_PAGE_TOKENS),
            chunk = proa_ceil_div(b->tokens, PROA_PAGE_TOKENS);
    b->pages_count = each * b->batch + chunk;
    proa_span *span = proa_calloc((size_t)spans_of(b), sizeof *span);
    int32_t *pages = proa_calloc((size_t)b->pages_count, sizeof *pages);
    for (int64_t i = 0; i < b->batch; i++) {
        span[i] = (proa_span){(int32_t)i, 1, (int32_t)b->context, (int32_t)(i * each)};
        for (int64_t p = 0; p < each; p++) pages[i * each + p] = (int32_t)(p * b->batch + i);
    }
    if (b->rows)
        span[b->batch] = (proa_span){(int32_t)b->batch, (int32_t)b->rows, (int32_t)b->tokens,
                                     (int32_t)(each * b->batch)};
    for (int64_t p = each * b->batch; p < b->pages_count; p++) pages[p] = (int32_t)p;
    b->span = b->d->alloc(b->d, spans_of(b) * (int64_t)sizeof *span);
    b->pages = b->d->alloc(b->d, b->pages_count * (int64_t)sizeof *pages);
    if (b->span && b->pages) {
        b->d->upload(b->d, b->span, span, spans_of(b) * (int64_t)sizeof *span);
        b->d->upload(b->d, b->pages, pages, b->pages_count * (int64_t)sizeof *pages);
    }
    b->spans_here = span;
    free(pages);
    return b->span && b->pages ? 0 : -1;
}

/* Seconds of one call, the median round. The spans are uploaded before each, so that it begins when the one before has ended:
 * in a model kernels stand between that release nothing earlier (cuBLASLt's), while two calls of attention in a row share the
 * SMs unevenly. */
static double time_calls(bench *b, const shape *s, const proa_kv *kv, proa_view y, proa_view q, proa_err *err)
{
    proa_ctx ctx = {.ops = b->d->ops, .device = b->d};
    const proa_spans spans = {.span = b->span,
                              .count = spans_of(b),
                              .pages = b->pages,
                              .rows_max = (int32_t)proa_max64(1, b->rows),
                              .context_max = (int32_t)proa_max64(b->context, b->tokens),
                              .rows_min = 1,
                              .long_count = b->rows > 0,
                              .long_rows = (int32_t)b->rows};
    const proa_attention a = {.scale = 1 / sqrtf((float)s->head_dim), .causal = true};
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int64_t begin = proa_clock_ns();
        for (int i = 0; i < CALLS; i++) {
            b->d->upload(b->d, b->span, b->spans_here, spans_of(b) * (int64_t)sizeof *b->span);
            ctx.ops->attend(&ctx, y, q, kv, &spans, &a);
        }
        if (b->d->check(b->d, err) != PROA_OK) return 0;
        rounds[r] = (double)(proa_clock_ns() - begin) * 1e-9 / CALLS;
    }
    for (int i = 1; i < ROUNDS; i++) /* few */
        for (int k = i; k > 0 && rounds[k] < rounds[k - 1]; k--) {
            double t = rounds[k];
            rounds[k] = rounds[k - 1], rounds[k - 1] = t;
        }
    return rounds[ROUNDS / 2];
}

static int measure(bench *b, const shape *s)
{
    proa_device *d = b->d;
    int64_t numbers = b->pages_count * PROA_PAGE_TOKENS * s->kv_heads * s->head_dim,
            size = proa_dtype_bytes(s->dtype);
    int64_t rows = rows_of(b) * s->heads * s->head_dim;
    proa_err err = {.status = PROA_OK};
    proa_kv kv = {.k = d->alloc(d, numbers * size),
                  .v = d->alloc(d, numbers * size),
                  .dtype = s->dtype,
                  .kv_heads = s->kv_heads,
                  .head_dim = s->head_dim};
    float *q = d->alloc(d, rows * 4), *y = d->alloc(d, rows * 4);
    /* steps with chunks have many rows, which keep 16 bits between the kernels */
    proa_dtype type = !b->rows ? PROA_DTYPE_F32 : s->dtype == PROA_DTYPE_FP8 ? PROA_DTYPE_F16 : s->dtype;
    double seconds = 0;
    if (kv.k && kv.v && q && y) {
        d->random(d, kv.k, s->dtype, numbers, 0, 1, 1);
        d->random(d, kv.v, s->dtype, numbers, 0, 1, 2);
        d->random(d, q, type, rows, 0, 1, 3);
        seconds = time_calls(b, s, &kv, proa_view_3d(y, type, rows_of(b), s->heads, s->head_dim),
                             proa_view_3d(q, type, rows_of(b), s->heads, s->head_dim), &err);
    }
    double bytes = 2.0 * (double)((b->batch * b->context + b->tokens) * s->kv_heads * s->head_dim * size);
    if (seconds > 0)
        printf("%-12s %5lld %8lld %4lld  %-5s %9.1f %8.0f %6.0f %%\n", s->model, (long long)s->heads,
               (long long)s->kv_heads, (long long)s->head_dim, proa_dtype_name(s->dtype), seconds * 1e6,
               bytes / seconds * 1e-9, 100 * bytes / seconds / b->read_rate);
    else fprintf(stderr, "%s: %s\n", s->model, err.status == PROA_OK ? "no memory for it" : err.text);
    void *all[] = {kv.k, kv.v};
    for (size_t i = 0; i < PROA_COUNT(all); i++) d->free(d, all[i], numbers * size);
    d->free(d, q, rows * 4);
    d->free(d, y, rows * 4);
    return seconds > 0 ? 0 : 1;
}

static int64_t number_of(int argc, char **argv, int which, int64_t usual)
{
    return argc > which ? strtoll(argv[which], NULL, 10) : usual;
}

static bool sizes_fit(const bench *b)
{
    if (b->batch < 1 || b->batch > 4096 || b->context < 1 || b->context > 1 << 20) return false;
    return !b->rows || (b->rows > 1 && b->rows <= 8192 && b->tokens >= b->rows && b->tokens <= 1 << 20);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {
        {"Llama-3-8B", 32, 8, 128, PROA_DTYPE_F16},  {"Llama-3-8B", 32, 8, 128, PROA_DTYPE_FP8},
        {"Llama-2-7B", 32, 32, 128, PROA_DTYPE_F16}, {"GPT-J-6B", 16, 16, 256, PROA_DTYPE_F16},
        {"GPT-2 XL", 25, 25, 64, PROA_DTYPE_F16},    {"Phi-2", 32, 32, 80, PROA_DTYPE_F16},
        {"Phi-3-mini", 32, 32, 96, PROA_DTYPE_F16},  {"Phi-3-mini", 32, 32, 96, PROA_DTYPE_FP8}};
    bench b = {.batch = number_of(argc, argv, 1, 32),
               .context = number_of(argc, argv, 2, 4096),
               .rows = number_of(argc, argv, 4, 0)};
    b.tokens = b.rows ? number_of(argc, argv, 5, b.context) : 0;
    proa_err err = {.status = PROA_OK};
    int failed = 0;
    if (!sizes_fit(&b)) return 2;
    if (proa_device_open(&b.d, argc > 3 ? argv[3] : "cuda", &err) != PROA_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    b.read_rate = b.d->read_rate ? b.d->read_rate(b.d) : 0;
    if (b.read_rate <= 0 || !b.d->random || place(&b) != 0)
        return fprintf(stderr, "bench-gpu-attend: not on this device\n"), 1;
    printf("%s: reads %.0f GB/s; %lld sequences of %lld tokens\n", b.d->name, b.read_rate * 1e-9,
           (long long)b.batch, (long long)b.context);
    printf("model        heads kv-heads size  pages    us a call     GB/s  of peak\n");
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) failed |= measure(&b, &shapes[i]);
    b.d->free(b.d, b.span, 0);
    b.d->free(b.d, b.pages, 0);
    free(b.spans_here);
    proa_device_close(b.d);
    return failed;
}
