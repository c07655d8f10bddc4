/* SPDX-License-Identifier: Apache-2.0
 * calibrate.c - which tensors are quantised, the Hessians of their inputs, and the tensors that are made of them. */
#include "convert/calibrate.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/log.h"
#include "kernels/ops.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The inputs of one weight slot of one layer, which its parts share (q, k and v). */
typedef struct input_stats {
    proa_stack_id stack;
    int64_t index; /* of the slot's parameter in its stack */
    int64_t K, rows;
    float *hessian; /* [K][K] */
    float largest;
    proa_gptq_inputs inputs;
} input_stats;

/* A tensor to quantise. */
typedef struct target {
    proa_convert_tensor *tensor;
    int64_t stats; /* its inputs among those of the session */
    int64_t N, K, group;
} target;

typedef struct session {
    const proa_convert_job *job;
    const proa_calibrate *c;
    proa_convert_tensors *tensors;
    proa_calibrated *out;
    target *target; /* [targets] sorted by stats */
    int64_t targets;
    input_stats *stats; /* [stats_count] in the order of layers */
    int64_t stats_count;
    int64_t first, end; /* the stats that are gathered in this run of the text */
    proa_convert_tensor *made;
    int64_t made_count;
    int64_t done, work; /* numbers quantised, in all */
    proa_err *err;
} session;

/* ---- which ---- */

/* The slot that the tensor is of, if it is one slot only: a matrix of a layer. */
static bool find_slot(const session *s, const proa_convert_tensor *t, proa_stack_id *stack, int64_t *index)
{
    int found = 0;
    for (int st = 0; st < PROA_STACK_COUNT; st++) {
        const proa_params *p = &s->tensors->params[st];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) {
            const proa_param *param = &p->param[i];
            bool is_part = false;
            for (int32_t k = 0; k < param->parts; k++) is_part |= param->part[k].tensor == t->whole[0];
            if (!is_part) continue;
            bool in_layer = i < p->layers * PROA_SLOT_COUNT;
            *stack = (proa_stack_id)st, *index = i;
            found += proa_param_is_matrix(param) && in_layer && !param->heads ? 1 : 2;
        }
    }
    return found == 1;
}

static bool is_router(int64_t index)
{
    int64_t slot = index % PROA_SLOT_COUNT;
    return slot == PROA_SLOT_ROUTER || slot == PROA_SLOT_SHARED_GATE;
}

/* Whether it is stored as torch's Linear has it: floats [N, K] named X.weight. */
static bool is_linear(const proa_convert_tensor *t)
{
    bool floats = t->dtype == PROA_DTYPE_F32 || t->dtype == PROA_DTYPE_F16 || t->dtype == PROA_DTYPE_BF16;
    bool plain = t->rank == 2 && !t->turned && t->slices <= 1 && t->whole_count == 1;
    return floats && plain && proa_str_ends(proa_str_c(t->name), proa_str_c(".weight"));
}

/* Sizes that the layouts can express, and the place of its inputs. */
static bool is_target(const session *s, const proa_convert_tensor *t, target *out, proa_stack_id *stack,
                      int64_t *index)
{
    if (!is_linear(t)) return false;
    *out = (target){.N = t->shape[0], .K = t->shape[1]};
    out->group = s->c->kind == PROA_CODES_INT4 ? s->c->group : out->K;
    if (out->N % 8 || out->K % 8 || out->K == 0 || out->K % out->group) return false;
    return find_slot(s, t, stack, index) && !is_router(*index);
}

static int64_t stats_of(session *s, proa_stack_id stack, int64_t index, int64_t K)
{
    for (int64_t i = 0; i < s->stats_count; i++)
        if (s->stats[i].stack == stack && s->stats[i].index == index) return i;
    s->stats[s->stats_count] = (input_stats){.stack = stack, .index = index, .K = K};
    return s->stats_count++;
}

static int by_stats(const void *a, const void *b)
{
    const target *x = a, *y = b;
    return x->stats < y->stats ? -1 : x->stats > y->stats;
}

/* Counts the matrices of layers whose sizes neither the layouts nor the groups fit. */
static void report_others(const session *s)
{
    proa_stack_id stack;
    int64_t index, others = 0;
    for (int64_t i = 0; i < s->tensors->count; i++) {
        const proa_convert_tensor *t = &s->tensors->at[i];
        target unused;
        if (t->rank < 2 || !find_slot(s, t, &stack, &index) || is_router(index)) continue;
        others += !is_target(s, t, &unused, &stack, &index);
    }
    if (others)
        PROA_LOG(WARNING,
                 "--calibrate: %lld matrices of layers stay as they are: they are no [N, K] with N a "
                 "multiple of 8 and "
                 "K one of the group",
                 (long long)others);
}

static proa_status find_targets(session *s)
{
    proa_convert_tensors *all = s->tensors;
    s->target = proa_calloc((size_t)proa_max64(all->count, 1), sizeof *s->target);
    s->stats = proa_calloc((size_t)proa_max64(all->count, 1), sizeof *s->stats);
    if (!all->arch)
        return PROA_FAIL(s->err, UNSUPPORTED, "--calibrate: '%s' is of no known architecture", s->job->in);
    for (int64_t i = 0; i < all->count; i++) {
        proa_stack_id stack = PROA_STACK_ENCODER;
        int64_t index = 0;
        target *t = &s->target[s->targets];
        if (!is_target(s, &all->at[i], t, &stack, &index)) continue;
        t->tensor = &all->at[i];
        t->stats = stats_of(s, stack, index, t->K);
        s->work += t->N * t->K;
        s->targets++;
    }
    qsort(s->target, (size_t)s->targets, sizeof *s->target, by_stats);
    if (s->targets) return report_others(s), PROA_OK;
    return PROA_FAIL(s->err, UNSUPPORTED,
                     "--calibrate: '%s' has no matrices [N, K] of floats with K a multiple of the group",
                     s->job->in);
}

/* ---- Hessians ---- */

static float largest_of(proa_view x)
{
    float most = 0;
    for (int64_t t = 0; t < x.shape[0]; t++) {
        const float *row = (const float *)x.data + t * x.stride[0];
        for (int64_t k = 0; k < x.shape[1]; k++) {
            float a = row[k] < 0 ? -row[k] : row[k];
            if (a > most) most = a;
        }
    }
    return most;
}

/* hessian += x^T x by the kernels' own product: y = x^T W^T + y with W = x^T. */
static proa_status add_product(input_stats *st, proa_ctx *model_ctx, proa_view x)
{
    int64_t T = x.shape[0], K = st->K;
    proa_ctx ctx;
    proa_ctx_need need = {.rows = K, .inputs = T, .heads = 1, .head_dim = 1};
    PROA_TRY(proa_ctx_init(&ctx, model_ctx->ops, model_ctx->pool, &need, NULL));
    float *turned = proa_malloc_aligned((size_t)(K * T) * sizeof *turned + 64);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < K; k++) turned[k * T + t] = ((const float *)x.data)[t * x.stride[0] + k];
    proa_weight w = {.format = PROA_WFMT_F32, .N = K, .K = T};
    w.bytes = ctx.ops->pack_bytes(w.format, K, T);
    w.data = proa_malloc_aligned((size_t)w.bytes);
    proa_view view = proa_view_2d(turned, PROA_DTYPE_F32, K, T);
    proa_tensor_source source = proa_tensor_source_of(view);
    proa_view y = proa_view_2d(st->hessian, PROA_DTYPE_F32, K, K);
    proa_epilogue e = {.residual = y};
    ctx.ops->pack(&ctx, &w, &source, 1);
    ctx.ops->linear(&ctx, y, view, &w, &e);
    free(w.data);
    free(turned);
    proa_ctx_release(&ctx);
    return PROA_OK;
}

static void observe_input(void *context, proa_model *m, proa_stack_id stack, const proa_param *p, proa_view x)
{
    session *s = context;
    int64_t index = p - m->params[stack].param;
    for (int64_t i = s->first; i < s->end; i++) {
        input_stats *st = &s->stats[i];
        if (st->stack != stack || st->index != index || st->K != x.shape[1] || x.shape[0] == 0) continue;
        float largest = largest_of(x);
        if (largest > st->largest) st->largest = largest;
        st->rows += x.shape[0];
        if (add_product(st, &m->ctx, x) != PROA_OK) st->rows = -1;
    }
}

/* As many as fit into the limit, at least one. */
static void next_stats(session *s)
{
    int64_t bytes = 0;
    s->first = s->end;
    while (s->end < s->stats_count) {
        input_stats *st = &s->stats[s->end];
        int64_t more = st->K * st->K * (int64_t)sizeof *st->hessian;
        if (s->end > s->first && bytes + more > PROA_HESSIAN_BYTES_MAX) break;
        st->hessian = proa_calloc((size_t)(st->K * st->K), sizeof *st->hessian);
        bytes += more, s->end++;
    }
}

static void factor_stats(const session *s, input_stats *st)
{
    if (st->rows > 0) proa_gptq_factor(&st->inputs, st->hessian, st->K, s->job->pool);
    else proa_gptq_unknown(&st->inputs, st->K); /* of experts, and of what the text does not reach */
    if (st->rows <= 0) free(st->hessian);
    st->hessian = NULL; /* of st->inputs now */
    if (s->c->method == PROA_CALIBRATE_GPTQ) return;
    free(st->inputs.factor);
    free(st->inputs.hessian);
    st->inputs.factor = st->inputs.hessian = NULL;
}

/* ---- the tensors that are made ---- */

/* A tensor in memory of the arena: X + ending. */
static void *make_tensor(session *s, const target *t, const char *ending, proa_dtype dtype, int32_t rank,
                         int64_t rows, int64_t cols)
{
    proa_arena *arena = &s->out->arena;
    proa_weights_tensor *stored = PROA_ARENA_NEW(arena, proa_weights_tensor, 1);
    char name[PROA_TENSOR_NAME_MAX + 32];
    int base = (int)strlen(t->tensor->name) - (int)strlen(".weight");
    snprintf(name, sizeof name, "%.*s.%s", base, t->tensor->name, ending);
    int64_t bytes = rows * cols * proa_dtype_bytes(dtype);
    void *data = proa_arena_alloc(arena, (size_t)proa_max64(bytes, 1));
    proa_view view = rank == 2 ? proa_view_2d(data, dtype, rows, cols) : proa_view_1d(data, dtype, rows * cols);
    *stored = (proa_weights_tensor){.name = proa_arena_strdup(arena, proa_str_c(name))};
    stored->source = proa_tensor_source_of(view);
    proa_convert_tensor *made = &s->made[s->made_count++];
    *made = (proa_convert_tensor){.name = stored->name, .dtype = dtype, .rank = rank, .count = rows * cols};
    for (int i = 0; i < PROA_RANK_MAX; i++) made->shape[i] = i < rank ? view.shape[i] : 1;
    made->stored = stored, made->row_numbers = 1;
    return data;
}

/* Codes along a row, the first in the lowest bits. */
static void pack_rows(uint32_t *to, const uint8_t *codes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i / 8] |= (uint32_t)codes[i] << 4 * (i % 8);
}

/* Zero points [N][G] as words of eight neighbouring rows. */
static void pack_zeros(uint32_t *to, const uint8_t *zeros, int64_t N, int64_t G)
{
    for (int64_t n = 0; n < N; n++)
        for (int64_t g = 0; g < G; g++) to[n / 8 * G + g] |= (uint32_t)zeros[n * G + g] << 4 * (n % 8);
}

static void keep_scales(void *to, const proa_codes *m)
{
    int64_t count = m->N * (m->K / m->group);
    if (m->scale_dtype == PROA_DTYPE_F32) memcpy(to, m->scales, (size_t)count * sizeof *m->scales);
    else proa_from_f32(to, m->scale_dtype, m->scales, count);
}

static void make_tensors(session *s, const target *t, const proa_codes *m)
{
    int64_t N = t->N, K = t->K, G = K / t->group;
    if (m->kind == PROA_CODES_INT4) {
        pack_rows(make_tensor(s, t, "weight_packed", PROA_DTYPE_I32, 2, N, K / 8), m->codes, N * K);
        int64_t shape[2] = {N, K};
        memcpy(make_tensor(s, t, "weight_shape", PROA_DTYPE_I64, 1, 2, 1), shape, sizeof shape);
        if (m->zeros)
            pack_zeros(make_tensor(s, t, "weight_zero_point", PROA_DTYPE_I32, 2, N / 8, G), m->zeros, N, G);
    } else {
        proa_dtype dtype = m->kind == PROA_CODES_INT8 ? PROA_DTYPE_I8 : PROA_DTYPE_FP8;
        memcpy(make_tensor(s, t, "weight", dtype, 2, N, K), m->codes, (size_t)(N * K));
    }
    keep_scales(make_tensor(s, t, "weight_scale", m->scale_dtype, 2, N, G), m);
    if (m->kind != PROA_CODES_FP8 || s->stats[t->stats].rows <= 0) return;
    float scale = s->stats[t->stats].largest / 448.0f;
    *(float *)make_tensor(s, t, "input_scale", PROA_DTYPE_F32, 1, 1, 1) = scale > 0 ? scale : 1;
}

static proa_status quantise_tensor(session *s, const target *t)
{
    proa_convert_tensor *from = t->tensor;
    bool int4 = s->c->kind == PROA_CODES_INT4;
    proa_codes m = {.kind = s->c->kind, .N = t->N, .K = t->K, .group = t->group};
    m.asymmetric = int4 && s->c->asymmetric;
    m.scale_dtype = int4 ? (from->dtype == PROA_DTYPE_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16) : PROA_DTYPE_F32;
    int64_t count = t->N * t->K, scales = t->N * (t->K / t->group);
    float *numbers = proa_malloc((size_t)count * sizeof *numbers);
    proa_convert_tensor_read_f32(from, 0, count, numbers);
    m.numbers = numbers;
    m.codes = proa_malloc((size_t)count);
    m.scales = proa_malloc((size_t)scales * sizeof *m.scales);
    m.zeros = m.asymmetric ? proa_malloc((size_t)scales) : NULL;
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < count && status == PROA_OK; i++)
        if (!(numbers[i] - numbers[i] == 0))
            status = PROA_FAIL(s->err, INVALID, "tensor '%.120s' holds NaN or infinity", from->name);
    if (status == PROA_OK) {
        proa_gptq_round(&m, &s->stats[t->stats].inputs, s->c->sweeps, s->job->pool);
        make_tensors(s, t, &m);
    }
    proa_convert_tensor_drop(s->job, from);
    from->count = -1; /* replaced */
    free(numbers), free(m.codes), free(m.scales), free(m.zeros);
    return status;
}

/* ---- config.json ---- */

static void write_ignored(const session *s, proa_buf *out)
{
    bool head = false;
    const char *comma = "";
    proa_buf_str(out, proa_str_c("["));
    for (int64_t i = 0; i < s->tensors->count; i++) {
        const proa_convert_tensor *t = &s->tensors->at[i];
        proa_str name = proa_str_c(t->name), end = proa_str_c(".weight");
        if (t->count < 0 || t->rank != 2 || !proa_str_ends(name, end)) continue;
        name.len -= end.len;
        head = head || proa_str_is(name, "lm_head");
        proa_buf_str(out, proa_str_c(comma));
        proa_buf_json_str(out, name);
        comma = ",";
    }
    if (!head) proa_buf_printf(out, "%s\"lm_head\"", comma); /* tied: torch has the module all the same */
    proa_buf_str(out, proa_str_c("]"));
}

/* As compressed-tensors 0.9 and later write it. */
static void write_config(const session *s)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized", "float-quantized"};
    proa_codes_kind kind = s->c->kind;
    bool int4 = kind == PROA_CODES_INT4, fp8 = kind == PROA_CODES_FP8;
    proa_buf *out = &s->out->config;
    proa_buf_printf(out, "{\"quant_method\":\"compressed-tensors\",\"format\":\"%s\",", formats[kind]);
    proa_buf_printf(out,
                    "\"quantization_status\":\"compressed\",\"global_compression_ratio\":null,"
                    "\"kv_cache_scheme\":null,\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],");
    proa_buf_printf(out, "\"weights\":{\"num_bits\":%d,\"type\":\"%s\",\"symmetric\":%s,\"strategy\":\"%s\",",
                    int4 ? 4 : 8, fp8 ? "float" : "int", int4 && s->c->asymmetric ? "false" : "true",
                    int4 ? "group" : "channel");
    if (int4) proa_buf_printf(out, "\"group_size\":%lld,", (long long)s->c->group);
    proa_buf_printf(out, "\"dynamic\":false,\"observer\":\"minmax\"},\"input_activations\":");
    if (int4) proa_buf_printf(out, "null");
    else
        proa_buf_printf(
            out, "{\"num_bits\":8,\"type\":\"%s\",\"symmetric\":true,\"strategy\":\"%s\",\"dynamic\":%s}",
            fp8 ? "float" : "int", fp8 ? "tensor" : "token", fp8 ? "false" : "true");
    proa_buf_printf(out, ",\"output_activations\":null}},\"ignore\":");
    write_ignored(s, out);
    proa_buf_str(out, proa_str_c("}"));
}

/* ---- all of it ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const proa_convert_tensor *)a)->name, ((const proa_convert_tensor *)b)->name);
}

/* The list without what was replaced and with what was made. */
static void join_lists(session *s)
{
    proa_convert_tensors *all = s->tensors;
    proa_convert_tensor *at = PROA_ARENA_NEW(&all->arena, proa_convert_tensor, all->count + s->made_count);
    int64_t n = 0;
    for (int64_t i = 0; i < all->count; i++)
        if (all->at[i].count >= 0) at[n++] = all->at[i];
    memcpy(at + n, s->made, (size_t)s->made_count * sizeof *at);
    all->at = at, all->count = n + s->made_count;
    qsort(at, (size_t)all->count, sizeof *at, by_name);
}

static proa_status quantise_all(session *s)
{
    int64_t next = 0;
    while (s->end < s->stats_count) {
        proa_observer observer = {observe_input, s};
        next_stats(s);
        PROA_TRY(s->c->run(s->c->context, &observer, s->err));
        for (int64_t i = s->first; i < s->end; i++) {
            if (s->stats[i].rows < 0)
                return PROA_FAIL(s->err, NO_MEMORY, "no memory for the products of --calibrate");
            factor_stats(s, &s->stats[i]);
            for (; next < s->targets && s->target[next].stats == i; next++) {
                PROA_TRY(quantise_tensor(s, &s->target[next]));
                s->done += s->target[next].N * s->target[next].K;
                if (s->job->progress && !s->job->progress(s->job->context, s->done, s->work))
                    return PROA_FAIL(s->err, CANCELLED, "interrupted");
            }
            proa_gptq_release(&s->stats[i].inputs);
        }
    }
    return PROA_OK;
}

proa_status proa_calibrate_tensors(proa_calibrated *out, proa_convert_tensors *tensors,
                                   const proa_convert_job *job, proa_err *err)
{
    session s = {.job = job, .c = job->calibrate, .tensors = tensors, .out = out, .err = err};
    *out = (proa_calibrated){.matrices = 0};
    proa_arena_init(&out->arena);
    proa_buf_init(&out->config, (size_t)PROA_CONFIG_BYTES_MAX);
    proa_status status = find_targets(&s);
    s.made = proa_calloc((size_t)(5 * s.targets + 1), sizeof *s.made);
    if (status == PROA_OK) status = quantise_all(&s);
    if (status == PROA_OK) {
        out->matrices = s.targets;
        write_config(&s);
        join_lists(&s);
        if (out->config.full)
            status = PROA_FAIL(err, LIMIT,
                               "the names of matrices that stay as they are take more than %lld bytes",
                               (long long)PROA_CONFIG_BYTES_MAX);
    }
    for (int64_t i = 0; i < s.stats_count; i++) {
        free(s.stats[i].hessian);
        proa_gptq_release(&s.stats[i].inputs);
    }
    free(s.made), free(s.stats), free(s.target);
    return status;
}

void proa_calibrated_release(proa_calibrated *c)
{
    proa_arena_release(&c->arena);
    proa_buf_release(&c->config);
}

uint64_t proa_calibrate_key(const proa_calibrate *c, uint64_t key)
{
    const uint64_t parts[] = {c->text_key, (uint64_t)c->kind, (uint64_t)c->method, (uint64_t)c->group,
                              c->asymmetric};
    for (size_t i = 0; i < PROA_COUNT(parts); i++) key = (key ^ parts[i]) * 0x100000001b3ULL + (key >> 29);
    return key;
}
