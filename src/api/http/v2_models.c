/* SPDX-License-Identifier: Apache-2.0
 * v2_models.c - the read-only routes: health, metadata, configuration, statistics. */
#include "api/http/v2.h"

#include "serve/config/config.h"
#include <string.h>

enum { JSON_BYTES_MAX = 256 << 20 }; /* an index or statistics of all models there may be */

static void put_member(proa_buf *out, const char *name, const char *value)
{
    proa_buf_printf(out, "\"%s\":", name);
    proa_buf_json_str(out, proa_str_c(value));
}

static void put_strings(proa_buf *out, char *const *values, size_t count)
{
    proa_buf_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i) proa_buf_char(out, ',');
        proa_buf_json_str(out, proa_str_c(values[i]));
    }
    proa_buf_char(out, ']');
}

void proa_v2_server_metadata(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    Inference__ServerMetadataResponse *meta;
    proa_buf out;
    PROA_UNUSED(path);
    proa_server_metadata(api->server, &meta, x->arena);
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_char(&out, '{');
    put_member(&out, "name", meta->name);
    proa_buf_char(&out, ',');
    put_member(&out, "version", meta->version);
    proa_buf_printf(&out, ",\"extensions\":");
    put_strings(&out, meta->extensions, meta->n_extensions);
    proa_buf_char(&out, '}');
    proa_http_json(x, 200, &out);
}

static void answer_health(proa_http_exchange *x, bool good)
{
    proa_http_respond(x, good ? 200 : 400, (proa_str){"", 0}, (proa_http_body){0});
}

void proa_v2_live(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    PROA_UNUSED(path);
    answer_health(x, proa_server_live(api->server));
}

/* 503 while the server exits; any other reason is Triton's 400 without a body. */
void proa_v2_ready(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(path);
    proa_status status = proa_server_ready(api->server, &err);
    if (status != PROA_OK && strstr(err.text, "Server exiting")) proa_http_fail(api, x, &err);
    else answer_health(x, status == PROA_OK);
}

void proa_v2_model_ready(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    int64_t version;
    if (proa_version_parse(&version, path->version, &err) != PROA_OK ||
        proa_server_model_ready(api->server, path->model, version, &err) != PROA_OK)
        proa_http_fail(api, x, &err);
    else proa_v2_done(x);
}

/* ---- metadata ---- */

static void add_tensors(proa_buf *out, const char *name,
                        Inference__ModelMetadataResponse__TensorMetadata *const *list, size_t count)
{
    proa_buf_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++) {
        proa_buf_printf(out, i ? ",{" : "{");
        put_member(out, "name", list[i]->name);
        proa_buf_char(out, ',');
        put_member(out, "datatype", list[i]->datatype);
        proa_buf_printf(out, ",\"shape\":[");
        for (size_t d = 0; d < list[i]->n_shape; d++) {
            if (d) proa_buf_char(out, ',');
            proa_int_json(out, list[i]->shape[d]);
        }
        proa_buf_printf(out, "]}");
    }
    proa_buf_char(out, ']');
}

void proa_v2_metadata(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__ModelMetadataResponse *meta;
    int64_t version;
    proa_buf out;
    if (proa_version_parse(&version, path->version, &err) != PROA_OK ||
        proa_server_model_metadata(api->server, path->model, version, &meta, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_char(&out, '{');
    put_member(&out, "name", meta->name);
    proa_buf_printf(&out, ",\"versions\":");
    put_strings(&out, meta->versions, meta->n_versions);
    proa_buf_char(&out, ',');
    put_member(&out, "platform", meta->platform);
    add_tensors(&out, "inputs", meta->inputs, meta->n_inputs);
    add_tensors(&out, "outputs", meta->outputs, meta->n_outputs);
    proa_buf_char(&out, '}');
    proa_http_json(x, 200, &out);
}

void proa_v2_config(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__ModelConfigResponse *reply;
    int64_t version;
    proa_buf out;
    if (proa_version_parse(&version, path->version, &err) != PROA_OK ||
        proa_server_model_config(api->server, path->model, version, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_config_print_json(&out, reply->config); /* proa_http_json reports a full buffer */
    proa_http_json(x, 200, &out);
}

/* ---- statistics ---- */

static void put_duration(proa_buf *out, const char *comma, const char *name,
                         const Inference__StatisticDuration *d)
{
    proa_buf_printf(out, "%s\"%s\":{\"count\":", comma, name);
    proa_uint_json(out, d ? d->count : 0);
    proa_buf_printf(out, ",\"ns\":");
    proa_uint_json(out, d ? d->ns : 0);
    proa_buf_char(out, '}');
}

static void inference_stats(proa_buf *out, const Inference__InferStatistics *s)
{
    static const Inference__InferStatistics none = INFERENCE__INFER_STATISTICS__INIT;
    if (!s) s = &none;
    proa_buf_printf(out, ",\"inference_stats\":{");
    put_duration(out, "", "success", s->success);
    put_duration(out, ",", "fail", s->fail);
    put_duration(out, ",", "queue", s->queue);
    put_duration(out, ",", "compute_input", s->compute_input);
    put_duration(out, ",", "compute_infer", s->compute_infer);
    put_duration(out, ",", "compute_output", s->compute_output);
    put_duration(out, ",", "cache_hit", s->cache_hit);
    put_duration(out, ",", "cache_miss", s->cache_miss);
    proa_buf_char(out, '}');
}

static void response_stats(proa_buf *out, const Inference__ModelStatistics *m)
{
    proa_buf_printf(out, ",\"response_stats\":{");
    for (size_t i = 0; i < m->n_response_stats; i++) {
        const Inference__InferResponseStatistics *s = m->response_stats[i]->value;
        if (!s) continue;
        if (i) proa_buf_char(out, ',');
        proa_buf_json_str(out, proa_str_c(m->response_stats[i]->key));
        proa_buf_printf(out, ":{");
        put_duration(out, "", "compute_infer", s->compute_infer);
        put_duration(out, ",", "compute_output", s->compute_output);
        put_duration(out, ",", "success", s->success);
        put_duration(out, ",", "fail", s->fail);
        put_duration(out, ",", "empty_response", s->empty_response);
        put_duration(out, ",", "cancel", s->cancel);
        proa_buf_char(out, '}');
    }
    proa_buf_char(out, '}');
}

static void batch_stats(proa_buf *out, const Inference__ModelStatistics *m)
{
    proa_buf_printf(out, ",\"batch_stats\":[");
    for (size_t i = 0; i < m->n_batch_stats; i++) {
        const Inference__InferBatchStatistics *s = m->batch_stats[i];
        proa_buf_printf(out, "%s{\"batch_size\":", i ? "," : "");
        proa_uint_json(out, s->batch_size);
        put_duration(out, ",", "compute_input", s->compute_input);
        put_duration(out, ",", "compute_infer", s->compute_infer);
        put_duration(out, ",", "compute_output", s->compute_output);
        proa_buf_char(out, '}');
    }
    proa_buf_printf(out, "],\"memory_usage\":[");
    for (size_t i = 0; i < m->n_memory_usage; i++) {
        proa_buf_printf(out, i ? ",{" : "{");
        put_member(out, "type", m->memory_usage[i]->type);
        proa_buf_printf(out, ",\"id\":");
        proa_int_json(out, m->memory_usage[i]->id);
        proa_buf_printf(out, ",\"byte_size\":");
        proa_uint_json(out, m->memory_usage[i]->byte_size);
        proa_buf_char(out, '}');
    }
    proa_buf_char(out, ']');
}

static void model_stats(proa_buf *out, const Inference__ModelStatistics *m)
{
    proa_buf_char(out, '{');
    put_member(out, "name", m->name);
    proa_buf_char(out, ',');
    put_member(out, "version", m->version);
    proa_buf_printf(out, ",\"last_inference\":");
    proa_uint_json(out, m->last_inference);
    proa_buf_printf(out, ",\"inference_count\":");
    proa_uint_json(out, m->inference_count);
    proa_buf_printf(out, ",\"execution_count\":");
    proa_uint_json(out, m->execution_count);
    inference_stats(out, m->inference_stats);
    response_stats(out, m);
    batch_stats(out, m);
    proa_buf_char(out, '}');
}

void proa_v2_stats(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__ModelStatisticsResponse *stats;
    int64_t version;
    proa_buf out;
    if (proa_version_parse(&version, path->version, &err) != PROA_OK ||
        proa_server_statistics(api->server, path->model, version, &stats, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    proa_buf_printf(&out, "{\"model_stats\":[");
    for (size_t i = 0; i < stats->n_model_stats; i++) {
        if (i) proa_buf_char(&out, ',');
        model_stats(&out, stats->model_stats[i]);
    }
    proa_buf_printf(&out, "]}");
    proa_http_json(x, 200, &out);
}
