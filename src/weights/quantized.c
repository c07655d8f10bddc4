/* SPDX-License-Identifier: Apache-2.0
 * quantized.c - weights that a public quantiser stored as several tensors become one tensor "X.weight" each.
 *
 *     GPTQ                X.qweight [K bits/32, N] i32, X.scales [G, N], X.qzeros [G, N bits/32] i32, X.g_idx [K] i32
 *     AWQ                 X.qweight [K, N/8] i32, X.scales [G, N], X.qzeros [G, N/8] i32, eight rows in a word
 *     compressed-tensors  X.weight_packed [N, K bits/32] i32, X.weight_scale [N, G], X.weight_shape [2],
 *                         X.weight_zero_point [N bits/32, G] i32, X.weight_g_idx [K] i32
 *     int8, fp8           X.weight [N, K], X.weight_scale or X.weight_scale_inv [N, 1], [1], [] or blocks [N/a, K/b]
 *     BitNet              X.weight [N/4, K] u8, X.weight_scale [1]; or X.weight [N, K] of floats, X.weight_scale [1]
 *     MXFP4               X_blocks [..., N, K/32, 16] u8, X_scales [..., N, K/32] u8: X [..., K, N] of gpt-oss
 *
 * Layouts: AutoGPTQ and GPTQModel (qlinear pack), AutoAWQ (gemm pack), vllm-project/compressed-tensors (pack_to_int32),
 * DeepSeek-V3's fp8 checkpoints, transformers' mxfp4 and bitnet integrations.
 * The file says what it is by names and shapes; config.json only whether GPTQ's zero points are stored less one, the
 * size of fp8's blocks, and of BitNet whether codes are multiplied by their scale or divided. */
#include "base/checked.h"
#include "tensor/scaled.h"
#include "weights/parts.h"

#include <stdarg.h>

/* The tensors of one weight. */
typedef struct group {
    proa_weights *w;
    const proa_weights_tensor *codes; /* the one that was found first */
    proa_str base;                    /* "X" */
    bool *used;                       /* [tensors]: they are parts of a made one */
    int32_t zero_offset;              /* GPTQ's first format stores zero points less one */
    int64_t block[2];                 /* rows and columns of a block of fp8; 0: the shapes say it */
    bool bitnet, divides;             /* BitNet's layers; their outputs are divided by the scale */
    proa_err *err;
} group;

#define FAIL_GROUP(g, tensor, ...) proa_fail_group(g, tensor, __VA_ARGS__)

PROA_PRINTF(3, 4)
static proa_status proa_fail_group(const group *g, const proa_weights_tensor *t, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return PROA_FAIL(g->err, CORRUPT, "%s: tensor '%.*s': %s", g->w->files[t->file].name, PROA_NAME_SHOWN,
                     t->name, text);
}

/* The tensor "X" + ending; NULL if there is none. It becomes a part of the made one. */
static const proa_weights_tensor *find_part(const group *g, const char *ending)
{
    char name[PROA_TENSOR_NAME_MAX + 32];
    snprintf(name, sizeof name, "%.*s%s", (int)g->base.len, g->base.ptr, ending);
    const proa_weights_tensor *t = proa_weights_find(g->w, name);
    if (t) g->used[t - g->w->tensors] = true;
    return t;
}

static proa_status need_part(const proa_weights_tensor **out, const group *g, const char *ending)
{
    *out = find_part(g, ending);
    return *out ? PROA_OK : FAIL_GROUP(g, g->codes, "there is no '%s' beside it", ending);
}

static bool has_shape(const proa_weights_tensor *t, proa_dtype dtype, int64_t rows, int64_t cols)
{
    const proa_view *v = &t->source.view;
    return v->dtype == dtype && v->rank == 2 && v->shape[0] == rows && v->shape[1] == cols;
}

static bool is_scale(const proa_view *v)
{
    return v->dtype == PROA_DTYPE_F32 || v->dtype == PROA_DTYPE_F16 || v->dtype == PROA_DTYPE_BF16;
}

static bool is_scale_matrix(const proa_view *v)
{
    return is_scale(v) && v->rank == 2 && v->shape[0] > 0 && v->shape[1] > 0;
}

static bool is_word_matrix(const proa_view *v)
{
    return v->dtype == PROA_DTYPE_I32 && v->rank == 2;
}

/* Matrix [rows, cols] seen as [cols, rows]. */
static proa_view swapped_view(proa_view v)
{
    return proa_view_transpose(v);
}

/* ---- layouts of packed integers; bits is 4 or 8, an element is a code ---- */

/* [N, K bits/32] words: codes follow each other along a row. */
static proa_code_layout along_rows(const void *data, int64_t K)
{
    return (proa_code_layout){.data = data, .row = {8 * K, K}, .col = {1}, .cols = 1};
}

/* [K bits/32, N] words of 32/bits codes of one column. */
static proa_code_layout down_columns(const void *data, int64_t N, int bits)
{
    int64_t each = 32 / bits;
    return (proa_code_layout){.data = data, .row = {8 * each, each}, .col = {each * N, 1}, .cols = each};
}

/* [G, N bits/32] words of codes of neighbouring columns n, as a layout of (n, g). */
static proa_code_layout across_columns(const void *data, int64_t N, bool interleaved)
{
    return (proa_code_layout){.data = data, .row = {8, 1}, .col = {N}, .cols = 1, .interleaved = interleaved};
}

/* ---- the made tensor ---- */

static proa_status make_tensor(const group *g, proa_str name, const proa_scaled_codes *codes, proa_view view)
{
    proa_weights *w = g->w;
    int32_t other = 0;
    if (proa_map_find(&w->by_name, name, &other) && &w->tensors[other] != g->codes)
        return FAIL_GROUP(g, &w->tensors[other], "it is there quantised too");
    proa_scaled_codes *kept = PROA_ARENA_NEW(&w->arena, proa_scaled_codes, 1);
    proa_weights_tensor *t = &w->tensors[g->codes - w->tensors]; /* it takes the place of its codes */
    *kept = *codes;
    t->name = proa_arena_strdup(&w->arena, name);
    t->source = (proa_tensor_source){.encoding = PROA_ENCODING_SCALED, .scaled = kept, .view = view};
    g->used[g->codes - w->tensors] = false;
    return PROA_OK;
}

static proa_status make_weight(const group *g, const proa_scaled_codes *codes, int64_t N, int64_t K)
{
    char name[PROA_TENSOR_NAME_MAX + 32];
    snprintf(name, sizeof name, "%.*s.weight", (int)g->base.len, g->base.ptr);
    proa_view view = proa_view_2d((void *)(uintptr_t)codes->code.data, PROA_DTYPE_F16, N, K);
    return make_tensor(g, proa_str_c(name), codes, view);
}

/* ---- GPTQ and AWQ ---- */

/* g_idx: which group each column belongs to. NULL if they are in order. */
static proa_status read_group_index(const int32_t **out, const group *g, const proa_weights_tensor *t,
                                    int64_t K, int64_t groups, int64_t each)
{
    const proa_view *v = &t->source.view;
    bool in_order = true;
    *out = NULL;
    if (v->dtype != PROA_DTYPE_I32 || v->rank != 1 || v->shape[0] != K)
        return FAIL_GROUP(g, t, "it is not i32 of %lld columns", (long long)K);
    int32_t *index = PROA_ARENA_NEW(&g->w->arena, int32_t, K);
    memcpy(index, v->data, (size_t)K * sizeof *index);
    for (int64_t k = 0; k < K; k++) {
        if (index[k] < 0 || index[k] >= groups)
            return FAIL_GROUP(g, t, "column %lld is in group %d of %lld", (long long)k, index[k],
                              (long long)groups);
        in_order = in_order && index[k] == k / each;
    }
    if (!in_order) *out = index;
    return PROA_OK;
}

/* Zero points that are all the same are one for all: then formats without a minimum hold the codes. */
static void join_equal_zeros(proa_scaled_codes *s, const proa_weights_tensor *zeros, int bits)
{
    const uint8_t *bytes = zeros->source.view.data;
    int64_t n = proa_view_count(zeros->source.view) * 4;
    for (int64_t i = 1; i < n; i++)
        if (bytes[i] != bytes[0]) return;
    if (n == 0 || (bits == 4 && bytes[0] >> 4 != (bytes[0] & 15))) return;
    s->has_zeros = false;
    s->zero += bits == 4 ? bytes[0] & 15 : bytes[0];
}

/* What the shapes of GPTQ's and AWQ's tensors say. */
typedef struct packed_shape {
    int64_t N, K, G; /* rows, columns, groups of columns */
    int bits;
    bool awq;
} packed_shape;

/* Both have scales [G, N] and zeros [G, N bits/32]; they differ in how qweight is packed. */
static proa_status read_packed_shape(packed_shape *p, const group *g, const proa_weights_tensor *scales,
                                     const proa_weights_tensor *zeros)
{
    const proa_view *q = &g->codes->source.view, *s = &scales->source.view, *z = &zeros->source.view;
    if (!is_word_matrix(q) || !is_scale_matrix(s))
        return FAIL_GROUP(g, g->codes, "its shape or that of its scales is not a quantised matrix");
    *p = (packed_shape){.N = s->shape[1], .G = s->shape[0]};
    p->bits = z->shape[1] * 8 == p->N ? 4 : z->shape[1] * 4 == p->N ? 8 : 0;
    if (!p->bits || !has_shape(zeros, PROA_DTYPE_I32, p->G, z->shape[1]))
        return FAIL_GROUP(g, zeros, "it is not [%lld, %lld / 8] words of 4 bits or [.., .. / 4] of 8",
                          (long long)p->G, (long long)p->N);
    p->awq = p->bits == 4 && q->shape[1] * 8 == p->N;
    p->K = p->awq ? q->shape[0] : q->shape[0] * (32 / p->bits);
    bool fits = p->awq || q->shape[1] == p->N;
    if (!fits || p->K < 1 || p->K % 8 || p->N % 8 || p->K % p->G)
        return FAIL_GROUP(g, g->codes, "its shape does not fit scales [%lld, %lld]", (long long)p->G,
                          (long long)p->N);
    return PROA_OK;
}

static proa_status make_gptq_or_awq(const group *g)
{
    const proa_weights_tensor *scales, *zeros, *index;
    packed_shape p = {0};
    PROA_TRY(need_part(&scales, g, ".scales"));
    PROA_TRY(need_part(&zeros, g, ".qzeros"));
    index = find_part(g, ".g_idx");
    PROA_TRY(read_packed_shape(&p, g, scales, zeros));
    const void *data = g->codes->source.view.data;
    proa_code_kind kind = p.bits == 4 ? PROA_CODE_U4 : PROA_CODE_U8;
    proa_scaled_codes c = {.kind = kind, .scale = swapped_view(scales->source.view), .row_group = 1};
    c.col_group = p.K / p.G;
    c.code = p.awq ? across_columns(data, p.N, true) : down_columns(data, p.N, p.bits);
    c.has_zeros = true, c.zero_kind = kind, c.zero = p.awq ? 0 : g->zero_offset;
    c.zeros = across_columns(zeros->source.view.data, p.N, p.awq);
    join_equal_zeros(&c, zeros, p.bits);
    if (index) PROA_TRY(read_group_index(&c.group_of, g, index, p.K, p.G, c.col_group));
    return make_weight(g, &c, p.N, p.K);
}

/* ---- compressed-tensors: packed integers ---- */

static proa_status read_weight_shape(packed_shape *p, const group *g, const proa_weights_tensor *shape,
                                     const proa_weights_tensor *scale)
{
    const proa_view *q = &g->codes->source.view, *s = &scale->source.view;
    int64_t size[2];
    if (shape->source.view.dtype != PROA_DTYPE_I64 || proa_view_count(shape->source.view) != 2)
        return FAIL_GROUP(g, shape, "it is not two i64");
    memcpy(size, shape->source.view.data, sizeof size);
    *p = (packed_shape){.N = size[0], .K = size[1]};
    if (!is_word_matrix(q) || q->shape[0] != p->N || p->K < 1 || p->K % 8 || p->N % 8)
        return FAIL_GROUP(g, g->codes, "it is not [%lld, %lld] packed", (long long)p->N, (long long)p->K);
    p->bits = q->shape[1] == p->K / 8 ? 4 : q->shape[1] == p->K / 4 ? 8 : 0;
    if (!p->bits) return FAIL_GROUP(g, g->codes, "its codes have neither 4 nor 8 bits");
    if (!is_scale_matrix(s) || s->shape[0] != p->N || p->K % s->shape[1])
        return FAIL_GROUP(g, scale, "its shape does not fit [%lld, %lld]", (long long)p->N, (long long)p->K);
    p->G = s->shape[1];
    return PROA_OK;
}

static proa_status make_packed(const group *g)
{
    const proa_weights_tensor *scale, *shape;
    packed_shape p = {0};
    PROA_TRY(need_part(&scale, g, ".weight_scale"));
    PROA_TRY(need_part(&shape, g, ".weight_shape"));
    const proa_weights_tensor *zeros = find_part(g, ".weight_zero_point"),
                              *index = find_part(g, ".weight_g_idx");
    PROA_TRY(read_weight_shape(&p, g, shape, scale));
    proa_code_kind kind = p.bits == 4 ? PROA_CODE_U4 : PROA_CODE_U8;
    proa_scaled_codes c = {.kind = kind, .scale = scale->source.view, .row_group = 1, .col_group = p.K / p.G};
    c.code = along_rows(g->codes->source.view.data, p.K);
    c.zero = 1 << (p.bits - 1);
    if (zeros && (p.bits != 4 || !has_shape(zeros, PROA_DTYPE_I32, p.N / 8, p.G)))
        return FAIL_GROUP(g, zeros, "it is not [%lld, %lld] of 4 bits", (long long)(p.N / 8), (long long)p.G);
    if (zeros) {
        c.has_zeros = true, c.zero = 0, c.zero_kind = kind;
        c.zeros = (proa_code_layout){.data = zeros->source.view.data, .row = {8 * p.G, 1}, .col = {8}, .cols = 1};
    }
    if (index) PROA_TRY(read_group_index(&c.group_of, g, index, p.K, p.G, c.col_group));
    return make_weight(g, &c, p.N, p.K);
}

/* ---- int8 and fp8 with scales ---- */

/* The size of `count` blocks over n: `given`, if it makes as many; else n / count, or, where a last block is smaller,
 * the power of two that gives as many; 0 if there is none. */
static int64_t block_size(int64_t n, int64_t count, int64_t given)
{
    if (given > 0 && proa_ceil_div(n, given) == count) return given;
    if (n % count == 0) return n / count;
    int64_t size = 1;
    while (size < proa_ceil_div(n, count)) size *= 2;
    return proa_ceil_div(n, size) == count ? size : 0;
}

/* Scales of [N, 1], [N], [1], [] or of blocks [N/a, K/b]. */
static proa_status fit_scales(proa_scaled_codes *c, const group *g, const proa_weights_tensor *t, int64_t N,
                              int64_t K)
{
    proa_view v = t->source.view;
    int64_t R = v.rank == 0 ? 1 : v.shape[0], G = v.rank == 2 ? v.shape[1] : 1;
    if (!is_scale(&v) || v.rank > 2 || R < 1 || G < 1 || R > N || G > K)
        return FAIL_GROUP(g, t, "its shape does not fit [%lld, %lld]", (long long)N, (long long)K);
    c->row_group = block_size(N, R, g->block[0]), c->col_group = block_size(K, G, g->block[1]);
    if (!c->row_group || !c->col_group)
        return FAIL_GROUP(g, t, "no block size divides [%lld, %lld] so", (long long)N, (long long)K);
    c->scale = proa_view_2d(v.data, v.dtype, R, G);
    return PROA_OK;
}

static proa_status make_scaled(const group *g, const proa_weights_tensor *scale)
{
    const proa_view *q = &g->codes->source.view;
    const proa_weights_tensor *zeros = find_part(g, ".weight_zero_point");
    find_part(g, ".input_scale"), find_part(g, ".input_zero_point"), find_part(g, ".output_scale");
    if (q->rank != 2 || zeros)
        return FAIL_GROUP(g, zeros ? zeros : g->codes, "only symmetric matrices with scales are supported");
    int64_t N = q->shape[0], K = q->shape[1];
    proa_scaled_codes c = {.kind = q->dtype == PROA_DTYPE_I8 ? PROA_CODE_I8 : PROA_CODE_FP8};
    PROA_TRY(fit_scales(&c, g, scale, N, K));
    c.code = along_rows(q->data, K);
    return make_weight(g, &c, N, K);
}

/* ---- BitNet ---- */

/* The scale of a matrix, as what its codes are multiplied by; 1 where the file has none. */
static proa_status read_ternary_scale(float **out, const group *g)
{
    const proa_weights_tensor *t = find_part(g, ".weight_scale");
    float *scale = PROA_ARENA_NEW(&g->w->arena, float, 1);
    *out = scale, *scale = 1;
    if (!t) return PROA_OK;
    const proa_view *v = &t->source.view;
    if (!is_scale(v) || proa_view_count(*v) != 1) return FAIL_GROUP(g, t, "it is not one number");
    proa_to_f32(scale, v->data, v->dtype, 1);
    if (g->divides) *scale = 1 / *scale;
    return PROA_OK;
}

/* Byte (r, k) has the codes 0, 1 and 2 of rows r, r + N/4, r + N/2 and r + 3N/4, for -1, 0 and 1. */
static proa_status make_ternary(const group *g)
{
    const proa_view *q = &g->codes->source.view;
    float *scale;
    if (q->rank != 2 || q->shape[0] < 1 || q->shape[1] < 1)
        return FAIL_GROUP(g, g->codes, "it is no matrix of ternary codes");
    int64_t R = q->shape[0], K = q->shape[1];
    PROA_TRY(read_ternary_scale(&scale, g));
    proa_scaled_codes c = {.kind = PROA_CODE_U2, .zero = 1, .row_group = 4 * R, .col_group = K};
    c.code = (proa_code_layout){.data = q->data, .row = {1, 4 * K}, .rows = R, .col = {4}, .cols = 1};
    c.scale = proa_view_2d(scale, PROA_DTYPE_F32, 1, 1);
    return make_weight(g, &c, 4 * R, K);
}

/* Codes that are stored as floats, with a scale: the numbers are multiplied by it where they are read. */
static proa_status scale_floats(const group *g)
{
    proa_tensor_source *source = &g->w->tensors[g->codes - g->w->tensors].source;
    float *scale;
    PROA_TRY(read_ternary_scale(&scale, g));
    if (source->view.rank != 2 || *scale == 1) return PROA_OK;
    float *factor = PROA_ARENA_NEW(&g->w->arena, float, source->view.shape[0]);
    for (int64_t i = 0; i < source->view.shape[0]; i++) factor[i] = *scale;
    source->factor = factor;
    return PROA_OK;
}

/* ---- MXFP4 ---- */

static proa_status make_mxfp4(const group *g)
{
    const proa_weights_tensor *scales;
    proa_view q = g->codes->source.view;
    PROA_TRY(need_part(&scales, g, "_scales"));
    const proa_view *s = &scales->source.view;
    int32_t rank = q.rank - 1;
    bool fits = q.dtype == PROA_DTYPE_U8 && s->dtype == PROA_DTYPE_U8 && (rank == 2 || rank == 3) &&
                q.shape[rank] == 16 && s->rank == rank && memcmp(q.shape, s->shape, (size_t)rank * 8) == 0;
    if (!fits) return FAIL_GROUP(g, g->codes, "it is not blocks of 16 bytes with a scale each");
    int64_t groups = q.shape[rank - 1], K = 32 * groups, N = q.shape[rank - 2],
            experts = rank == 3 ? q.shape[0] : 1;
    proa_scaled_codes c = {.kind = PROA_CODE_FP4, .row_group = 1, .col_group = 32};
    c.code = along_rows(q.data, K);
    c.scale = proa_view_2d(s->data, PROA_DTYPE_U8, experts * N, groups);
    /* the model's tensor has the inputs first: its matrices are the transposed of what is stored */
    proa_view view = proa_view_2d(q.data, PROA_DTYPE_F16, N, K);
    if (rank == 3) {
        view = proa_view_3d(q.data, PROA_DTYPE_F16, experts, K, N);
        view.stride[1] = 1, view.stride[2] = K;
    }
    return make_tensor(g, g->base, &c, view);
}

/* ---- all of a checkpoint ---- */

static bool has_ending(const proa_weights_tensor *t, const char *ending, proa_str *base)
{
    proa_str name = proa_str_c(t->name), end = proa_str_c(ending);
    if (!proa_str_ends(name, end)) return false;
    *base = (proa_str){name.ptr, name.len - end.len};
    return true;
}

static proa_status make_of(group *g, const proa_weights_tensor *t)
{
    g->codes = t;
    proa_dtype d = t->source.view.dtype;
    if (t->source.encoding != PROA_ENCODING_PLAIN) return PROA_OK;
    if (has_ending(t, ".qweight", &g->base)) return make_gptq_or_awq(g);
    if (has_ending(t, ".weight_packed", &g->base)) return make_packed(g);
    if (has_ending(t, "_blocks", &g->base)) return make_mxfp4(g);
    if (!has_ending(t, ".weight", &g->base)) return PROA_OK;
    if (g->bitnet) return d == PROA_DTYPE_U8 ? make_ternary(g) : scale_floats(g);
    if (d != PROA_DTYPE_I8 && d != PROA_DTYPE_FP8) return PROA_OK;
    const proa_weights_tensor *scale = find_part(g, ".weight_scale");
    if (!scale) scale = find_part(g, ".weight_scale_inv");
    return scale ? make_scaled(g, scale) : PROA_OK;
}

/* BitLinear divides by the scale, AutoBitLinear multiplies. */
static proa_status read_bitnet(group *g, const proa_json *quant, proa_err *err)
{
    proa_str method = {"", 0}, layers = {"bitlinear", 9};
    PROA_TRY(proa_json_get_str(&method, quant, "quant_method", err));
    PROA_TRY(proa_json_get_str(&layers, quant, "linear_class", err));
    g->bitnet = proa_str_is(method, "bitnet");
    g->divides = g->bitnet && proa_str_is(layers, "bitlinear");
    return PROA_OK;
}

/* GPTQ's first format, which is the usual one, stores zero points less one; "gptq_v2" does not. The blocks of fp8 are
 * "weight_block_size" [rows, columns]; what is no such list is left to the shapes. */
static proa_status read_config(group *g, const proa_weights *w, proa_err *err)
{
    proa_json *config = NULL;
    proa_str format = {"gptq", 4};
    g->zero_offset = 1;
    if (!proa_files_has(proa_weights_files(w), "config.json")) return PROA_OK;
    PROA_TRY(proa_files_json(&config, proa_weights_files(w), "config.json", PROA_CONFIG_BYTES_MAX, err));
    const proa_json *quant = proa_json_get(config, "quantization_config");
    proa_status status = quant ? proa_json_get_str(&format, quant, "checkpoint_format", err) : PROA_OK;
    if (proa_str_is(format, "gptq_v2")) g->zero_offset = 0;
    if (quant && status == PROA_OK) status = read_bitnet(g, quant, err);
    const proa_json *block = quant ? proa_json_get(quant, "weight_block_size") : NULL;
    for (int64_t i = 0; i < 2 && proa_json_len(block) == 2; i++) {
        int64_t size = proa_json_int(proa_json_at(block, i));
        g->block[i] = size <= PROA_FP8_BLOCK_MAX ? size : 0;
    }
    proa_json_free(config);
    return status;
}

static bool is_quantized(const proa_weights *w)
{
    static const char *const endings[] = {".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv",
                                          "_blocks"};
    for (int64_t i = 0; i < w->count; i++)
        for (size_t e = 0; e < PROA_COUNT(endings); e++)
            if (proa_str_ends(proa_str_c(w->tensors[i].name), proa_str_c(endings[e]))) return true;
    for (int64_t i = 0; i < w->count; i++)
        if (w->tensors[i].source.view.dtype == PROA_DTYPE_U8 &&
            w->tensors[i].source.encoding == PROA_ENCODING_PLAIN)
            return true; /* BitNet's codes may have no scales */
    return false;
}

/* What became part of a made tensor is taken out of the list. */
static void drop_parts(proa_weights *w, const bool *used)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < w->count; i++)
        if (!used[i]) w->tensors[kept++] = w->tensors[i];
    w->count = kept;
}

proa_status proa_quantized_join(proa_weights *w, bool *joined, proa_err *err)
{
    *joined = is_quantized(w);
    if (!*joined) return PROA_OK;
    group g = {.w = w, .err = err};
    PROA_TRY(read_config(&g, w, err));
    g.used = PROA_ARENA_NEW(&w->arena, bool, w->count);
    for (int64_t i = 0; i < w->count; i++)
        if (!g.used[i]) PROA_TRY(make_of(&g, &w->tensors[i]));
    drop_parts(w, g.used);
    return PROA_OK;
}
