/* SPDX-License-Identifier: Apache-2.0
 * relative.c - makes and projects the tables of relative positions while a model is loaded. */
#include "model/relative.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <string.h>

int32_t proa_relative_bucket(int32_t distance, int32_t buckets, int32_t most)
{
    int32_t middle = buckets / 2, far = distance < 0 ? -distance : distance;
    if (far <= middle) return distance;
    float share = logf((float)far / (float)middle) / logf((float)((double)(most - 1) / (double)middle));
    float bucket = ceilf(share * (float)(middle - 1)) + (float)middle;
    if (bucket > (float)buckets) bucket = (float)buckets;
    return distance < 0 ? -(int32_t)bucket : (int32_t)bucket;
}

/* The position of a distance: a row of the learned table, or of sinusoids the distance itself. It rises with the
 * distance, or stays. */
static int64_t position_of(const proa_config *c, int64_t distance)
{
    const proa_relative_params *r = &c->relative;
    if (r->clamp > 0) distance = proa_max64(-r->clamp, proa_min64(distance, r->clamp));
    if (!r->span) return distance;
    int64_t bucket = distance;
    if (r->distance > 0)
        bucket = proa_relative_bucket((int32_t)distance, (int32_t)r->span, (int32_t)r->distance);
    return proa_max64(0, proa_min64(bucket + r->span, 2 * r->span - 1));
}

/* Rows for the distances -reach..reach, and the position of each row. row, position: NULL, or to be filled. */
static int64_t map_rows(const proa_config *c, int32_t *row, int64_t *position)
{
    int64_t reach = proa_relative_reach(c), last = 0, rows = 0;
    for (int64_t d = -reach; d <= reach; d++) {
        int64_t now = position_of(c, d);
        if (rows == 0 || now != last) {
            if (position) position[rows] = now;
            rows++;
        }
        if (row) row[d + reach] = (int32_t)(rows - 1);
        last = now;
    }
    return rows;
}

int64_t proa_relative_rows(const proa_config *c)
{
    return c->relative.used ? map_rows(c, NULL, NULL) : 0;
}

/* ---- positions ---- */

static const proa_param *own_param(const proa_model *m, proa_weight_slot slot)
{
    const proa_params *p = &m->params[PROA_STACK_ENCODER];
    return proa_params_at(p, p->layers, slot);
}

/* XLNet's sinusoids of a distance: all sines, then all cosines (modeling_xlnet.py, positional_embedding). */
static void fill_sinusoid(float *to, int64_t distance, int64_t hidden)
{
    for (int64_t i = 0; i < hidden / 2; i++) {
        float angle = (float)distance * (1.0f / powf(10000.0f, (float)(2 * i) / (float)hidden));
        to[i] = sinf(angle), to[hidden / 2 + i] = cosf(angle);
    }
}

/* All parts of a vector. */
static float *read_vector(const proa_param *param)
{
    float *values = proa_malloc((size_t)proa_max64(param->rows, 1) * sizeof *values), *to = values;
    for (int32_t i = 0; i < param->parts; i++) {
        const proa_tensor_source *s = &param->part[i].source;
        for (int64_t row = 0; row < proa_tensor_source_rows(s); row++)
            proa_tensor_source_read(s, row, 0, 1, to++);
    }
    return values;
}

static void norm_positions(proa_model *m, proa_view positions)
{
    float *weight = read_vector(own_param(m, PROA_SLOT_REL_NORM));
    float *bias = read_vector(own_param(m, PROA_SLOT_REL_NORM_B));
    m->host.ops->layer_norm(&m->host, positions, positions,
                            proa_view_1d(weight, PROA_DTYPE_F32, positions.shape[1]),
                            proa_view_1d(bias, PROA_DTYPE_F32, positions.shape[1]), (float)m->config.norm_eps);
    free(weight);
    free(bias);
}

static void make_positions(proa_model *m, const int64_t *position, int64_t rows)
{
    int64_t hidden = m->config.hidden;
    const proa_param *table = own_param(m, PROA_SLOT_REL_EMBED);
    m->relative_positions = proa_malloc((size_t)(rows * hidden) * sizeof(float));
    for (int64_t i = 0; i < rows; i++) {
        float *to = m->relative_positions + i * hidden;
        if (table->parts) proa_tensor_source_read(&table->part[0].source, position[i], 0, hidden, to);
        else fill_sinusoid(to, position[i], hidden);
    }
    if (own_param(m, PROA_SLOT_REL_NORM)->parts)
        norm_positions(m, proa_view_2d(m->relative_positions, PROA_DTYPE_F32, rows, hidden));
}

void proa_relative_begin(proa_model *m)
{
    const proa_config *c = &m->config;
    int64_t count = 2 * proa_relative_reach(c) + 1;
    if (!c->relative.used) return;
    int32_t *row = proa_malloc((size_t)count * sizeof *row);
    int64_t *position = proa_malloc((size_t)count * sizeof *position);
    m->relative_rows = map_rows(c, row, position);
    m->device->upload(m->device, m->relative_row, row, count * (int64_t)sizeof *row);
    if (m->weights && !m->packed) make_positions(m, position, m->relative_rows);
    free(position);
    free(row);
}

void proa_relative_end(proa_model *m)
{
    free(m->relative_positions);
    m->relative_positions = NULL;
}

/* ---- projections: on the host, in f32 whatever the format of the model's matrices is ---- */

static void multiply_positions(proa_model *m, const proa_param *param, const float *bias, float *to)
{
    const proa_ops *ops = m->host.ops;
    int64_t rows = m->relative_rows,
            bytes = proa_round_up(ops->pack_bytes(PROA_WFMT_F32, param->rows, param->cols), 64);
    proa_weight w = {.format = PROA_WFMT_F32, .N = param->rows, .K = param->cols, .bytes = bytes};
    proa_tensor_source *sources = proa_calloc((size_t)param->parts, sizeof *sources);
    w.data = proa_pages_alloc(bytes);
    PROA_ASSERT(w.data);
    for (int32_t i = 0; i < param->parts; i++) sources[i] = param->part[i].source;
    ops->pack(&m->host, &w, sources, param->parts);
    ops->linear(&m->host, proa_view_2d(to, PROA_DTYPE_F32, rows, param->rows),
                proa_view_2d(m->relative_positions, PROA_DTYPE_F32, rows, param->cols), &w,
                &(proa_epilogue){.bias = bias});
    proa_pages_free(w.data, bytes);
    free(sources);
}

void proa_relative_project(proa_model *m, proa_param *param)
{
    const proa_param *bias = param + 1; /* a slot's bias follows it */
    int64_t bytes = m->relative_rows * param->rows * (int64_t)sizeof(float);
    float *values = m->device->host ? param->values : proa_malloc((size_t)bytes);
    float *bias_values = bias->parts ? read_vector(bias) : NULL;
    multiply_positions(m, param, bias_values, values);
    free(bias_values);
    if (m->device->host) return;
    m->device->upload(m->device, param->values, values, bytes);
    free(values);
}

/* ---- in a pass ---- */

bool proa_relative_of_layer(const proa_model *m, proa_stack_id stack, int64_t layer, proa_relative *out)
{
    const proa_config *c = &m->config;
    const proa_params *p = &m->params[stack];
    if (!c->relative.used) return false;
    const proa_param *table = proa_params_at(p, layer, PROA_SLOT_REL);
    int64_t q = proa_dim_size(c, PROA_DIM_Q);
    *out = (proa_relative){.row = m->relative_row, .reach = (int32_t)proa_relative_reach(c)};
    out->rows = (int32_t)m->relative_rows;
    out->stride = table->rows;
    out->keys = table->values;
    if (c->relative.queries) out->queries = table->values, out->keys = table->values + q;
    if (c->relative.keys_alone) out->keys = NULL;
    out->content_bias = proa_params_at(p, layer, PROA_SLOT_CONTENT_BIAS)->values;
    out->position_bias = proa_params_at(p, layer, PROA_SLOT_POSITION_BIAS)->values;
    out->segments = proa_params_at(p, layer, PROA_SLOT_SEGMENTS)->values;
    out->segment_bias = proa_params_at(p, layer, PROA_SLOT_SEGMENT_BIAS)->values;
    return true;
}
