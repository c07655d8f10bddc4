/* SPDX-License-Identifier: Apache-2.0
 * write.c - tensors and config.json of quantised matrices as compressed-tensors has them (calibrate.h). */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "convert/calibrate/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the tensors that are made ---- */

void *proa_calibrate_new_tensor(proa_calibrate_session *s, const char *name, proa_dtype dtype, int32_t rank,
                                int64_t rows, int64_t cols)
{
    proa_arena *arena = &s->out->arena;
    proa_weights_tensor *stored = PROA_ARENA_NEW(arena, proa_weights_tensor, 1);
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

/* One of the tensors that X.weight becomes: X.ending. */
static void *make_part(proa_calibrate_session *s, const proa_calibrate_target *t, const char *ending,
                       proa_dtype dtype, int64_t rows, int64_t cols)
{
    char name[PROA_TENSOR_NAME_MAX + 32];
    int base = (int)strlen(t->tensor->name) - (int)strlen(".weight");
    snprintf(name, sizeof name, "%.*s.%s", base, t->tensor->name, ending);
    return proa_calibrate_new_tensor(s, name, dtype, cols ? 2 : 1, rows, cols ? cols : 1);
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

/* The largest input becomes the largest number of e4m3. 1 if none was seen. */
static float input_scale(const proa_calibrate_session *s, const proa_calibrate_target *t)
{
    const proa_input_stats *st = &s->stats[t->stats];
    float largest = 0;
    for (int64_t k = 0; k < st->K; k++) largest = fmaxf(largest, st->most[k]);
    return largest > 0 ? largest / 448.0f : 1;
}

void proa_calibrate_new_matrix(proa_calibrate_session *s, const proa_calibrate_target *t, const proa_codes *m)
{
    int64_t N = t->N, K = t->K, G = K / t->group, shape[2] = {N, K};
    if (m->kind == PROA_CODES_INT4) {
        pack_rows(make_part(s, t, "weight_packed", PROA_DTYPE_I32, N, K / 8), m->codes, N * K);
        memcpy(make_part(s, t, "weight_shape", PROA_DTYPE_I64, 2, 0), shape, sizeof shape);
        if (m->zeros)
            pack_zeros(make_part(s, t, "weight_zero_point", PROA_DTYPE_I32, N / 8, G), m->zeros, N, G);
    } else {
        proa_dtype dtype = m->kind == PROA_CODES_INT8 ? PROA_DTYPE_I8 : PROA_DTYPE_FP8;
        memcpy(make_part(s, t, "weight", dtype, N, K), m->codes, (size_t)(N * K));
    }
    keep_scales(make_part(s, t, "weight_scale", m->scale_dtype, N, G), m);
    if (m->kind == PROA_CODES_FP8)
        *(float *)make_part(s, t, "input_scale", PROA_DTYPE_F32, 1, 0) = input_scale(s, t);
}

/* ---- config.json ---- */

static void write_ignored(const proa_calibrate_session *s, proa_buf *out)
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
void proa_calibrate_write_config(const proa_calibrate_session *s)
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
