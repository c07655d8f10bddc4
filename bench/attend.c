/* SPDX-License-Identifier: Apache-2.0
 * attend.c - what one decode step's attention costs when sequences share pages: prints one line of CSV for each shape,
 * the best of several calls in microseconds. Sequences stand at prompt + 20 tokens; those of a group share the prompt's
 * full pages ("shared", as beams do), all their pages ("cross", an encoder's memory) or none ("apart").
 * "hot" repeats one call; "cold" takes turns over layers whose keys and values are COLD_BYTES together.
 *   bench-attend [FORM [THREADS]]  FORM: shared, cross, apart, prompt or all */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HEADS = 8,
    GENERATED = 20,
    SEQUENCES_MAX = 64,
    PAGES_MAX = SEQUENCES_MAX * 80,
    ROUNDS_MIN = 6,
    LAYERS_MAX = 1024
};
#define COLD_BYTES (96 * PROA_MIB)
#define KV_BYTES   (300 * PROA_MIB) /* of keys, and as many of values */
#define BUDGET_NS  15000000

typedef struct subject {
    const char *form;
    int sequences, rows; /* of each */
    int64_t prompt, kv_heads, dh;
    proa_dtype dtype;
} subject;

typedef struct bench {
    proa_ctx ctx;
    int threads;
    char *k, *v;
    float *q, *y;
    proa_span span[SEQUENCES_MAX];
    int32_t table[PAGES_MAX];
    int64_t pages; /* of one layer */
} bench;

/* One thread is timed by what it worked, so that other programs count less; several by the clock. */
static int64_t now_ns(const bench *b)
{
    struct timespec t;
    clock_gettime(b->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void place(bench *b, const subject *s)
{
    int64_t context = s->prompt +
                      (strcmp(s->form, "shared") == 0 || strcmp(s->form, "apart") == 0 ? GENERATED : 0);
    int64_t each = proa_ceil_div(context, PROA_PAGE_TOKENS), at = 0;
    int64_t shared = strcmp(s->form, "shared") == 0 ? s->prompt / PROA_PAGE_TOKENS : 0;
    b->pages = shared;
    for (int i = 0; i < s->sequences; i++) {
        bool again = i > 0 && strcmp(s->form, "cross") == 0;
        b->span[i] = (proa_span){i * s->rows, s->rows, (int32_t)context, again ? 0 : (int32_t)at};
        for (int64_t p = 0; p < each && !again; p++) b->table[at++] = (int32_t)(p < shared ? p : b->pages++);
    }
}

static void call(bench *b, const subject *s, int64_t layer)
{
    int64_t bytes = b->pages * s->kv_heads * PROA_PAGE_TOKENS * s->dh * proa_dtype_bytes(s->dtype),
            T = s->sequences * s->rows;
    proa_kv kv = {b->k + layer * bytes, b->v + layer * bytes, s->dtype, s->kv_heads, s->dh};
    proa_spans spans = {b->span, s->sequences, b->table};
    proa_attention a = {.scale = 1 / sqrtf((float)s->dh), .causal = strcmp(s->form, "cross") != 0};
    b->ctx.ops->attend(&b->ctx, proa_view_3d(b->y, PROA_DTYPE_F32, T, HEADS, s->dh),
                       proa_view_3d(b->q, PROA_DTYPE_F32, T, HEADS, s->dh), &kv, &spans, &a);
}

/* Mean over layers of the best time of each: an interruption costs one sample of one layer. */
static double best_us(bench *b, const subject *s, int64_t layers)
{
    static int64_t best[LAYERS_MAX];
    int64_t spent = 0, sum = 0;
    for (int64_t n = 0; n < ROUNDS_MIN || spent < BUDGET_NS; n++) {
        for (int64_t layer = 0; layer < layers; layer++) {
            int64_t begin = now_ns(b);
            call(b, s, layer);
            int64_t ns = now_ns(b) - begin;
            spent += ns;
            if (n < 2 || ns < best[layer])
                best[layer] = ns; /* the first round fills caches and wakes workers */
        }
    }
    for (int64_t layer = 0; layer < layers; layer++) sum += best[layer];
    return (double)sum * 1e-3 / (double)layers;
}

static void measure(bench *b, const subject *s)
{
    place(b, s);
    int64_t bytes = 2 * b->pages * s->kv_heads * PROA_PAGE_TOKENS * s->dh * proa_dtype_bytes(s->dtype);
    int64_t layers = proa_min64(proa_ceil_div(COLD_BYTES, bytes), LAYERS_MAX);
    if (bytes > 2 * KV_BYTES || layers * bytes > 2 * KV_BYTES) return;
    double hot = best_us(b, s, 1), cold = best_us(b, s, layers);
    printf("%s,%d,%d,%d,%d,%d,%s,%d,%.1f,%.1f,%.1f\n", s->form, b->threads, s->sequences, (int)s->prompt,
           (int)s->kv_heads, (int)s->dh, s->dtype == PROA_DTYPE_F32 ? "f32" : "bf16", (int)(bytes >> 10), hot,
           cold, (double)bytes * 1e-3 / cold);
    fflush(stdout);
}

static void measure_form(bench *b, const char *form)
{
    static const int widths[] = {4, 32};
    static const int64_t prompts[] = {800, 4000}, kv_heads[] = {1, 4, 8}, dims[] = {64, 128};
    static const proa_dtype dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16};
    bool prompt = strcmp(form, "prompt") == 0; /* one sequence of so many rows, to see that these stay as fast */
    for (int w = 0; w < (prompt ? 1 : 2); w++)
        for (int p = 0; p < (prompt ? 1 : 2); p++)
            for (int h = 0; h < 3; h++)
                for (int d = 0; d < 2; d++)
                    for (int t = 0; t < 2; t++)
                        measure(b, &(subject){form, prompt ? 1 : widths[w], prompt ? (int)prompts[p] / 4 : 1,
                                              prompt ? prompts[p] / 4 : prompts[p], kv_heads[h], dims[d],
                                              dtypes[t]});
}

int main(int argc, char **argv)
{
    static bench b;
    static const char *const forms[] = {"shared", "cross", "apart", "prompt"};
    const char *form = argc > 1 ? argv[1] : "all";
    const proa_ctx_need need = {.rows = 1024, .inputs = 1024, .heads = HEADS, .head_dim = 128, .columns = 64};
    b.threads = argc > 2 ? atoi(argv[2]) : 1;
    proa_pool *pool = proa_pool_new(b.threads);
    if (proa_ctx_init(&b.ctx, NULL, pool, &need, NULL) != PROA_OK) return 1;
    b.k = proa_pages_alloc(KV_BYTES), b.v = proa_pages_alloc(KV_BYTES);
    b.q = proa_pages_alloc(1 << 22), b.y = proa_pages_alloc(1 << 22);
    if (!b.k || !b.v || !b.q || !b.y) return 1;
    uint32_t bits = 1; /* every 16 bits a bf16 of magnitude 2^-7 to 2, every 32 such an f32 */
    for (int64_t i = 0; i < KV_BYTES / 2; i++) {
        bits = bits * 1664525u + 1013904223u;
        uint16_t number = (uint16_t)((bits >> 16 & 0x83ff) | 0x3c00);
        memcpy(b.k + 2 * i, &number, 2), memcpy(b.v + 2 * i, &number, 2);
    }
    for (int64_t i = 0; i < 1 << 20; i++) b.q[i] = (float)(i * 7 % 13 - 6) * 0.1f;
    printf("form,threads,sequences,prompt,kv_heads,dh,dtype,KiB,hot_us,cold_us,cold_GB_s\n");
    for (size_t i = 0; i < PROA_COUNT(forms); i++)
        if (strcmp(form, "all") == 0 || strcmp(form, forms[i]) == 0) measure_form(&b, forms[i]);
    proa_pool_free(pool);
    proa_ctx_release(&b.ctx);
    return 0;
}
