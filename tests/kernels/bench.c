/* SPDX-License-Identifier: Apache-2.0
 * bench.c - times every op of every table on shapes of models, beside the ceilings of this machine. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/peak.h"
#include <math.h>

/* One timed call: T rows of width d, or of a product [T,K] x [N]. */
typedef struct subject subject;
struct subject {
    void (*run)(subject *s);
    proa_ctx ctx;
    const char *op;
    char shape[64];
    double bytes, flops; /* that one call must move and do */
    double reference_ns;
    int64_t T, N, K;
    proa_wfmt format;
    proa_weight w;
    proa_weight weights[PROA_WFMT_COUNT];
    float *x, *y, *z, *small;
    int32_t *ints;
    proa_kv kv;
    proa_spans spans;
    proa_attention attention;
    bool warm;               /* the weight was just used */
    int64_t experts, chosen; /* of them [N / 2, K] gates and as many factors; T rows choose */
    proa_weight down;
};

typedef struct bench {
    bool json, first;
    const char *only;
    proa_pool *pool;
    double bandwidth;
    int64_t printed;
} bench;

static proa_view rows_view(float *data, int64_t rows, int64_t cols)
{
    return proa_view_2d(data, PROA_DTYPE_F32, rows, cols);
}

static void run_linear(subject *s)
{
    proa_epilogue e = {0};
    s->ctx.ops->linear(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->K), &s->w, &e);
}

static void run_experts(subject *s)
{
    proa_experts e = {.up = &s->w, .down = &s->down, .act = PROA_ACT_SILU, .gated = true};
    s->ctx.ops->experts(&s->ctx, rows_view(s->y, s->T, s->K), rows_view(s->x, s->T, s->K),
                        rows_view(s->small, s->T, s->chosen), s->ints, &e);
}

static void run_pack(subject *s)
{
    proa_tensor_source source = proa_tensor_source_of(rows_view(s->z, s->N, s->K));
    s->ctx.ops->pack(&s->ctx, &s->w, &source, 1);
}

static void run_rms_norm(subject *s)
{
    s->ctx.ops->rms_norm(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N),
                         proa_view_1d(s->small, PROA_DTYPE_F32, s->N), 1e-6f);
}

static void run_group_squares(subject *s)
{
    s->ctx.ops->group_squares(&s->ctx, rows_view(s->y, s->T, 4), rows_view(s->x, s->T, s->N), 0, 2 * s->N);
}

static void run_group_scale(subject *s)
{
    s->ctx.ops->group_scale(&s->ctx, rows_view(s->x, s->T, s->N), rows_view(s->y, s->T, 4),
                            proa_view_1d(s->small, PROA_DTYPE_F32, s->N), 0, 2 * s->N, 1e-6f);
}

static void run_layer_norm(subject *s)
{
    proa_view w = proa_view_1d(s->small, PROA_DTYPE_F32, s->N);
    s->ctx.ops->layer_norm(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N), w, w, 1e-6f);
}

static void run_act(subject *s)
{
    s->ctx.ops->act(&s->ctx, rows_view(s->x, s->T, s->N), PROA_ACT_TANH); /* a value that stays finite when repeated */
}

static void run_act_mul(subject *s)
{
    s->ctx.ops->act_mul(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N),
                        rows_view(s->z, s->T, s->N), PROA_ACT_SILU);
}

static void run_add(subject *s)
{
    s->ctx.ops->add(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N),
                    rows_view(s->z, s->T, s->N));
}

static void run_soft_cap(subject *s)
{
    s->ctx.ops->soft_cap(&s->ctx, rows_view(s->y, s->T, s->N), 30.0f);
}

static void run_clip(subject *s)
{
    s->ctx.ops->clip(&s->ctx, rows_view(s->y, s->T, s->N), 0.5f);
}

static void run_xielu(subject *s)
{
    s->ctx.ops->xielu(&s->ctx, rows_view(s->y, s->T, s->N), proa_view_cols(rows_view(s->x, 1, s->N), 0, 4));
}

static void run_round_rows(subject *s)
{
    s->ctx.ops->round_rows(&s->ctx, rows_view(s->y, s->T, s->N), 8);
}

static void run_scale(subject *s)
{
    s->ctx.ops->scale(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N), 7.5f);
}

static void run_gather(subject *s)
{
    s->ctx.ops->gather(&s->ctx, rows_view(s->y, s->T, s->N), rows_view(s->x, s->T, s->N), s->ints);
}

static void run_embed(subject *s)
{
    s->ctx.ops->embed(&s->ctx, rows_view(s->y, s->T, s->N), proa_view_2d(s->x, PROA_DTYPE_BF16, s->T, s->N),
                      s->ints, 1.0f, false);
}

static void run_rope_table(subject *s)
{
    const proa_rope_freqs freqs = {.inv_freq = s->small, .scale = 1};
    s->ctx.ops->rope_table(&s->ctx, rows_view(s->y, s->T, s->K), s->ints, NULL, &freqs);
}

static void run_rope(subject *s)
{
    proa_view x = proa_view_heads(rows_view(s->x, s->T, s->N), s->N / s->K);
    s->ctx.ops->rope(&s->ctx, x, rows_view(s->small, s->T, s->K), false);
}

static void run_log_sum_exp(subject *s)
{
    s->ctx.ops->log_sum_exp(&s->ctx, s->y, rows_view(s->x, s->T, s->N));
}

static void run_top_k(subject *s)
{
    s->ctx.ops->top_k(&s->ctx, rows_view(s->y, s->T, s->K), s->ints, rows_view(s->x, s->T, s->N), s->K);
}

/* K 0: the likeliest; else a draw from the best K. */
static void run_sample(subject *s)
{
    proa_sample_params how[64];
    for (int64_t i = 0; i < s->T; i++)
        how[i] = (proa_sample_params){.temperature = 0.8F, .top_k = (int32_t)s->K, .uniform = 0.4};
    s->ctx.ops->decode->sample(&s->ctx, s->ints, s->y, rows_view(s->x, s->T, s->N), s->K ? how : NULL);
}

static void run_gather_token_ids(subject *s)
{
    s->ctx.ops->decode->gather_token_ids(&s->ctx, s->ints + 1024, s->ints, s->ints + 2048, s->T);
}

static proa_view heads_view(float *data, int64_t T, int64_t heads, int64_t dim)
{
    return proa_view_3d(data, PROA_DTYPE_F32, T, heads, dim);
}

static void run_kv_append(subject *s)
{
    proa_view x = heads_view(s->x, s->T, s->kv.kv_heads, s->kv.head_dim);
    s->ctx.ops->kv_append(&s->ctx, &s->kv, x, x, &s->spans);
}

static void run_attend(subject *s)
{
    s->ctx.ops->attend(&s->ctx, heads_view(s->y, s->T, s->N, s->kv.head_dim),
                       heads_view(s->x, s->T, s->N, s->kv.head_dim), &s->kv, &s->spans, &s->attention);
}

/* Best of several batches; a batch is as many calls as fill 5 ms. A slow call (the reference) is timed once. */
static double time_ns(subject *s)
{
    int64_t start = proa_clock_ns();
    s->run(s);
    double once = (double)(proa_clock_ns() - start);
    if (once > 3e8) return once;
    int calls = once > 5e6 ? 1 : (int)(5e6 / fmax(once, 100)) + 1;
    double best = once;
    for (int batch = 0; batch < 12; batch++) {
        start = proa_clock_ns();
        for (int i = 0; i < calls; i++) s->run(s);
        best = fmin(best, (double)(proa_clock_ns() - start) / calls);
    }
    return best;
}

static void print_result(bench *b, const subject *s, double ns)
{
    double ratio = s->reference_ns / ns;
    if (b->json)
        printf("%s\n    "
               "{\"op\":\"%s\",\"shape\":\"%s\",\"table\":\"%s\",\"us\":%.3f,\"gb_s\":%.2f,\"gflop_s\":%.2f,"
               "\"reference_ratio\":%.2f}",
               b->printed ? "," : "", s->op, s->shape, s->ctx.ops->name, ns * 1e-3, s->bytes / ns,
               s->flops / ns, ratio);
    else
        printf("%-12s %-30s %-12s %11.2f %8.1f %5.0f %9.1f %8.1f\n", s->op, s->shape, s->ctx.ops->name,
               ns * 1e-3, s->bytes / ns, 100 * s->bytes / ns / (b->bandwidth * 1e-9), s->flops / ns, ratio);
    b->printed++;
    fflush(stdout);
}

static proa_weight weight_for(subject *s, const proa_ops *ops)
{
    proa_weight w = {.format = s->format, .N = s->N, .K = s->K, .bytes = ops->pack_bytes(s->format, s->N, s->K)};
    w.data = proa_pages_alloc(w.bytes);
    PROA_ASSERT(w.data);
    return w;
}

/* Fills a buffer with numbers that no kernel slows down on. */
static float *numbers(int64_t n)
{
    float *f = proa_pages_alloc(n * 4);
    PROA_ASSERT(f);
    uint64_t seed = 1;
    for (int64_t i = 0; i < n; i++) f[i] = (float)(int32_t)rng_next(&seed) * 0x1p-31f;
    return f;
}

/* The same numbers for each expert. */
static proa_weight pack_experts(subject *s, int64_t N, int64_t K)
{
    proa_weight w = {.format = s->format, .N = N, .K = K, .experts = s->experts};
    proa_tensor_source source = proa_tensor_source_of(rows_view(s->z, N, K));
    w.bytes = s->ctx.ops->pack_bytes(s->format, N, K), w.stride = proa_round_up(w.bytes, 64);
    char *data = w.data = proa_pages_alloc(w.stride * s->experts);
    PROA_ASSERT(data);
    for (int64_t e = 0; e < s->experts; e++) {
        proa_weight one = w;
        one.data = data + e * w.stride, one.experts = 0;
        s->ctx.ops->pack(&s->ctx, &one, &source, 1);
    }
    return w;
}

static void free_experts(proa_weight *w)
{
    proa_pages_free(w->data, w->stride * w->experts);
}

static void bench_subject(bench *b, subject *s)
{
    if (b->only && strcmp(b->only, s->op) != 0) return;
    bool weighs = s->run == run_linear || s->run == run_pack;
    const proa_ops *previous = NULL;
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        const proa_ops *ops = proa_ops_cpu((proa_isa)isa);
        if (!ops) continue;
        /* the reference takes seconds on large products: it is timed up to 1 GFLOP */
        if (isa == 0 && s->flops > 1e9) continue;
        bool same = false;
#define PROA_OP(name, args)                                                                                  \
    same = same || (previous && strcmp(s->op, #name) == 0 && ops->name == previous->name);
#include "kernels/ops.def"
#undef PROA_OP
#define PROA_OP(name, args)                                                                                  \
    same = same || (previous && strcmp(s->op, #name) == 0 && ops->decode->name == previous->decode->name);
#include "kernels/decode.def"
#undef PROA_OP
        if (same) continue;
        proa_ctx_need need = {.rows = s->T, .inputs = 16384, .heads = 64, .head_dim = 256, .columns = 1 << 18};
        need.experts = s->experts, need.chosen = s->chosen, need.expert_width = s->K, need.expert_ffn = s->N;
        proa_err err = {0};
        PROA_ASSERT(proa_ctx_init(&s->ctx, ops, b->pool, &need, &err) == PROA_OK);
        if (weighs) s->w = weight_for(s, ops);
        if (s->run == run_linear) run_pack(s);
        if (s->experts) s->w = pack_experts(s, s->N, s->K), s->down = pack_experts(s, s->K, s->N / 2);
        double ns = time_ns(s);
        if (isa == 0) s->reference_ns = ns;
        print_result(b, s, ns);
        if (weighs) proa_pages_free(s->w.data, s->w.bytes);
        if (s->experts) free_experts(&s->w), free_experts(&s->down);
        proa_ctx_release(&s->ctx);
        previous = ops;
    }
}

/* As the best table packs it; negative if the format is only for devices. */
static double weight_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    return (double)proa_ops_cpu(proa_isa_choose())->pack_bytes(format, N, K);
}

static void bench_linear(bench *b)
{
    /* in L2, in L3, beyond L3 (a decode step of a large model reads its weights once), and prompts */
    static const int64_t shapes[][3] = {{1, 512, 512},    {1, 2048, 512},    {1, 4096, 4096},
                                        {1, 32000, 8192}, {4, 4096, 4096},   {16, 4096, 4096},
                                        {64, 2048, 2048}, {512, 2048, 2048}, {128, 4096, 11008}};
    int64_t most = 32000 * 8192;
    subject s = {.run = run_linear,
                 .op = "linear",
                 .x = numbers(512 * 16384),
                 .y = numbers(512 * 32768),
                 .z = numbers(most)};
    for (int format = 0; format < PROA_WFMT_COUNT; format++)
        for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
            s.T = shapes[i][0], s.N = shapes[i][1], s.K = shapes[i][2], s.format = (proa_wfmt)format;
            s.bytes = weight_bytes(s.format, s.N, s.K);
            if (s.bytes < 0) continue;
            s.flops = 2.0 * (double)s.T * (double)s.N * (double)s.K;
            s.reference_ns = (double)NAN;
            snprintf(s.shape, sizeof s.shape, "%s [%d,%d]x[%d]", proa_wfmt_name(s.format), (int)s.T, (int)s.K,
                     (int)s.N);
            bench_subject(b, &s);
        }
    s.run = run_pack, s.op = "pack", s.N = 2048, s.K = 2048, s.T = 1;
    for (int format = 0; format < PROA_WFMT_COUNT; format++) {
        s.format = (proa_wfmt)format;
        if (weight_bytes(s.format, s.N, s.K) < 0) continue;
        s.bytes = 4.0 * (double)(s.N * s.K), s.flops = 0, s.reference_ns = (double)NAN;
        snprintf(s.shape, sizeof s.shape, "%s [%d,%d]", proa_wfmt_name(s.format), (int)s.N, (int)s.K);
        bench_subject(b, &s);
    }
    proa_pages_free(s.x, 512 * 16384 * 4), proa_pages_free(s.y, 512 * 32768 * 4), proa_pages_free(s.z, most * 4);
}

/* Experts of Qwen3-30B-A3B, but 32 of 128. Bytes: of those that the rows choose. */
static void bench_experts(bench *b)
{
    enum { EXPERTS = 32, CHOSEN = 8, ROWS = 256, HIDDEN = 2048, FFN = 768 };
    static const proa_wfmt formats[] = {PROA_WFMT_BF16, PROA_WFMT_I8};
    static const int64_t rows[] = {1, 4, 16, ROWS};
    subject s = {
        .run = run_experts, .op = "experts", .experts = EXPERTS, .chosen = CHOSEN, .N = 2 * FFN, .K = HIDDEN};
    s.x = numbers(ROWS * HIDDEN), s.y = numbers(ROWS * HIDDEN), s.z = numbers(2 * FFN * HIDDEN);
    s.small = numbers(ROWS * CHOSEN), s.ints = proa_calloc(ROWS * CHOSEN, 4);
    for (int t = 0; t < ROWS; t++)
        for (int j = 0; j < CHOSEN; j++) s.ints[t * CHOSEN + j] = (t * 5 + j * 4 + t / 8) % EXPERTS;
    for (size_t f = 0; f < PROA_COUNT(formats); f++)
        for (size_t i = 0; i < PROA_COUNT(rows); i++) {
            int64_t read = proa_min64(EXPERTS, rows[i] * CHOSEN);
            s.T = rows[i], s.format = formats[f], s.reference_ns = (double)NAN;
            s.bytes = (double)read * (weight_bytes(s.format, s.N, s.K) + weight_bytes(s.format, s.K, FFN));
            s.flops = 6.0 * (double)(s.T * CHOSEN) * HIDDEN * FFN;
            snprintf(s.shape, sizeof s.shape, "%s %d rows, %d of %d", proa_wfmt_name(s.format), (int)s.T,
                     CHOSEN, EXPERTS);
            bench_subject(b, &s);
        }
    proa_pages_free(s.x, ROWS * HIDDEN * 4), proa_pages_free(s.y, ROWS * HIDDEN * 4);
    proa_pages_free(s.z, 2 * FFN * HIDDEN * 4), proa_pages_free(s.small, ROWS * CHOSEN * 4);
    free(s.ints);
}

typedef struct simple {
    const char *op;
    void (*run)(subject *s);
    int64_t T, N, K;
    double bytes_each, flops_each; /* for each of T * N elements */
} simple;

static void bench_simple(bench *b)
{
    static const simple list[] = {{"embed", run_embed, 64, 1024, 0, 6, 1},
                                  {"rms_norm", run_rms_norm, 1, 1024, 0, 8, 3},
                                  {"rms_norm", run_rms_norm, 256, 1024, 0, 8, 3},
                                  {"layer_norm", run_layer_norm, 256, 1024, 0, 8, 5},
                                  {"group_squares", run_group_squares, 256, 1024, 0, 4, 2},
                                  {"group_scale", run_group_scale, 256, 1024, 0, 8, 2},
                                  {"rope_table", run_rope_table, 64, 64, 64, 4, 1},
                                  {"rope", run_rope, 256, 1024, 64, 8, 3},
                                  {"act", run_act, 256, 4096, 0, 8, 20},
                                  {"act_mul", run_act_mul, 256, 4096, 0, 12, 20},
                                  {"soft_cap", run_soft_cap, 16, 32000, 0, 8, 20},
                                  {"clip", run_clip, 256, 4096, 0, 8, 2},
                                  {"xielu", run_xielu, 256, 4096, 0, 8, 2},
                                  {"round_rows", run_round_rows, 256, 4096, 0, 8, 4},
                                  {"scale", run_scale, 256, 4096, 0, 8, 1},
                                  {"add", run_add, 256, 4096, 0, 12, 1},
                                  {"gather", run_gather, 256, 1024, 0, 8, 0},
                                  {"log_sum_exp", run_log_sum_exp, 16, 32000, 0, 4, 20},
                                  {"top_k", run_top_k, 16, 32000, 50, 4, 1},
                                  {"top_k", run_top_k, 1, 151936, 1, 4, 1},
                                  {"sample", run_sample, 16, 32000, 0, 4, 20},
                                  {"sample", run_sample, 16, 32000, 50, 4, 20},
                                  {"gather_token_ids", run_gather_token_ids, 512, 1, 0, 12, 0}};
    int64_t most = 1 << 21;
    subject s = {.x = numbers(most), .y = numbers(most), .z = numbers(most), .small = numbers(1 << 16)};
    s.ints = proa_calloc(4096, 4);
    for (int i = 0; i < 4096; i++) s.ints[i] = i % 61;
    for (size_t i = 0; i < PROA_COUNT(list); i++) {
        s.op = list[i].op, s.run = list[i].run, s.T = list[i].T, s.N = list[i].N, s.K = list[i].K;
        s.bytes = list[i].bytes_each * (double)(s.T * s.N), s.flops = list[i].flops_each * (double)(s.T * s.N);
        s.reference_ns = (double)NAN;
        snprintf(s.shape, sizeof s.shape, s.K ? "[%d,%d] %d" : "[%d,%d]", (int)s.T, (int)s.N, (int)s.K);
        bench_subject(b, &s);
    }
    proa_pages_free(s.x, most * 4), proa_pages_free(s.y, most * 4), proa_pages_free(s.z, most * 4);
    proa_pages_free(s.small, (1 << 16) * 4);
    free(s.ints);
}

/* count spans of `rows` queries that each see `context` keys; H query heads on Hk heads of keys. */
static void bench_attend_case(bench *b, int64_t count, int64_t rows, int64_t context, int64_t H, int64_t Hk,
                              int64_t dh)
{
    int64_t pages = proa_ceil_div(context, PROA_PAGE_TOKENS), T = count * rows;
    int64_t elements = count * pages * Hk * PROA_PAGE_TOKENS * dh;
    proa_span *span = proa_calloc((size_t)count, sizeof *span);
    int32_t *table = proa_calloc((size_t)(count * pages), 4);
    for (int64_t i = 0; i < count * pages; i++) table[i] = (int32_t)i;
    for (int64_t i = 0; i < count; i++)
        span[i] = (proa_span){
            (int32_t)(i * rows), (int32_t)rows, (int32_t)context, (int32_t)(i * pages), 0, 0, 0};
    subject s = {.op = "attend",
                 .run = run_attend,
                 .T = T,
                 .N = H,
                 .reference_ns = (double)NAN,
                 .x = numbers(T * H * dh),
                 .y = numbers(T * H * dh)};
    s.kv = (proa_kv){numbers(elements), numbers(elements), PROA_DTYPE_F32, Hk, dh, 0};
    s.spans = (proa_spans){.span = span, .count = count, .pages = table};
    s.attention = (proa_attention){.scale = 1.0f / sqrtf((float)dh), .causal = true};
    s.bytes = 8.0 * (double)(count * context * Hk * dh);
    double seen = rows == 1 ? (double)context : (double)context - (double)rows / 2;
    s.flops = 4.0 * (double)(T * H * dh) * seen;
    snprintf(s.shape, sizeof s.shape, "%dx%d of %d, %d/%d heads, %d", (int)count, (int)rows, (int)context,
             (int)H, (int)Hk, (int)dh);
    bench_subject(b, &s);
    s.op = "kv_append", s.run = run_kv_append, s.reference_ns = (double)NAN, s.flops = 0;
    s.bytes = 16.0 * (double)(T * Hk * dh);
    bench_subject(b, &s);
    proa_pages_free(s.kv.k, elements * 4), proa_pages_free(s.kv.v, elements * 4);
    proa_pages_free(s.x, T * H * dh * 4), proa_pages_free(s.y, T * H * dh * 4);
    free(span), free(table);
}

bool bench_run(const char *only, bool json, int threads)
{
    bench b = {.json = json, .only = only, .pool = proa_pool_new(threads)};
    b.bandwidth = proa_peak_read_bandwidth(b.pool, 0, NULL, NULL);
    proa_peak_rates rates = proa_peak_compute(b.pool, proa_isa_detect());
    if (json)
        printf("{\"threads\":%d,\"read_gb_s\":%.2f,\"f32_gflop_s\":%.1f,\"int8_gop_s\":%.1f,\"bf16_gflop_s\":"
               "%.1f,"
               "\"results\":[",
               proa_pool_threads(b.pool), b.bandwidth * 1e-9, rates.f32 * 1e-9, rates.i8 * 1e-9,
               rates.bf16 * 1e-9);
    else
        printf("%d threads; read %.1f GB/s, f32 %.0f GFLOP/s, int8 dot %.0f GOP/s, bf16 dot %.0f GFLOP/s\n\n"
               "%-12s %-30s %-12s %11s %8s %5s %9s %8s\n",
               proa_pool_threads(b.pool), b.bandwidth * 1e-9, rates.f32 * 1e-9, rates.i8 * 1e-9,
               rates.bf16 * 1e-9, "op", "shape", "table", "us", "GB/s", "% bw", "GFLOP/s", "x ref");
    if (!only || strcmp(only, "linear") == 0 || strcmp(only, "pack") == 0) bench_linear(&b);
    if (!only || strcmp(only, "experts") == 0) bench_experts(&b);
    bench_simple(&b);
    bench_attend_case(&b, 1, 1, 1024, 16, 16, 64);
    bench_attend_case(&b, 16, 1, 1024, 16, 4, 64);
    bench_attend_case(&b, 1, 256, 256, 16, 16, 64);
    if (json) printf("\n]}\n");
    proa_pool_free(b.pool);
    return b.printed > 0;
}
