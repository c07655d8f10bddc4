/* SPDX-License-Identifier: Apache-2.0
 * fil.c - the backend `fil`: forests of decision trees, with Triton's tensors and parameters. */
#include "backends/fil/fil.h"

#include "backends/backends.h"
#include "backends/fil/device.h"
#include "backends/common.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/log.h"
#include "forest/packed.h"
#include "forest/shap.h"
#include <string.h>

/* Node visits that an event loop's thread may spend on a request: about 0.2 ms. Larger requests go to the
 * instance's thread. */
#define BRIEF_STEPS 200000
/* Requests are joined while they have few rows: copying costs less than a pass over the trees with an
 * incomplete block of rows. */
#define JOIN_BYTES  (4 << 20)

typedef struct fil {
    const proa_served_model *model;
    proa_forest *forest;
    proa_packed *packed;
    proa_shap *explain; /* NULL: the configuration has no treeshap_output */
    proa_fil_settings settings;
    proa_fil_outputs outputs;
    bool on_gpu;                             /* instances of kind GPU compute there */
    proa_fil_device *devices[PROA_GPUS_MAX]; /* the forest on each GPU that an instance has; by instance_open */
} fil;

typedef struct fil_instance {
    const fil *model;
    proa_pool *pool;               /* NULL: one thread */
    proa_gpu_stream stream;        /* of an instance on a GPU, else zeroed */
    const proa_fil_device *device; /* NULL: computes on the CPU */
    float *scratch;                /* [scratch_cap] */
    int64_t scratch_cap;
} fil_instance;

/* ---- scores to answers ---- */

static float best_class(const float *scores, int64_t count)
{
    float most = 0.0f;
    int64_t best = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!(scores[i] > most)) continue;
        most = scores[i];
        best = i;
    }
    return (float)best;
}

static void write_answers(const fil *m, const float *scores, int64_t rows, float *out)
{
    const int64_t n = m->forest->outputs, targets = m->forest->targets, classes = m->forest->classes;
    switch (m->outputs.answer) {
    case PROA_FIL_SCORES: memcpy(out, scores, (size_t)(rows * n) * sizeof *out); break;
    case PROA_FIL_BEST:
        for (int64_t i = 0; i < rows * targets; i++) out[i] = best_class(scores + i * classes, classes);
        break;
    case PROA_FIL_THRESHOLD:
        for (int64_t i = 0; i < rows * n; i++) out[i] = scores[i] > m->settings.threshold ? 1.0f : 0.0f;
        break;
    case PROA_FIL_BOTH:
        for (int64_t i = 0; i < rows; i++) {
            out[2 * i] = 1.0f - scores[i];
            out[2 * i + 1] = scores[i];
        }
        break;
    }
}

/* ---- requests ---- */

/* Rows that the caller's thread may compute; 0: none. */
static int64_t brief_rows(const fil *m)
{
    return m->explain ? 0 : BRIEF_STEPS / proa_max64(1, proa_packed_steps(m->packed));
}

/* The instance's thread pool, if there are more rows than a caller's thread may compute. */
static proa_pool *threads_for(const fil_instance *in, int64_t rows)
{
    return rows > brief_rows(in->model) ? in->pool : NULL;
}

static float *scratch_floats(fil_instance *in, int64_t count)
{
    if (count > in->scratch_cap) {
        free(in->scratch);
        in->scratch_cap = count + count / 2;
        in->scratch = proa_malloc_aligned((size_t)proa_round_up(in->scratch_cap * (int64_t)sizeof(float), 64));
    }
    return in->scratch;
}

/* Releases the scratch of a large batch, since large batches are rare. */
static void tidy_scratch(fil_instance *in)
{
    if (in->scratch_cap <= JOIN_BYTES / (int64_t)sizeof(float)) return;
    free(in->scratch);
    in->scratch = NULL;
    in->scratch_cap = 0;
}

static int64_t rows_of(const fil *m, const proa_tensor *t)
{
    return (int64_t)(t->bytes / sizeof(float)) / m->forest->features;
}

static const proa_tensor *input_of(const fil *m, proa_infer *r)
{
    const proa_tensor *t = proa_infer_input(r, PROA_FIL_INPUT);
    int64_t elements = t ? proa_shape_elements(t->shape, t->rank) : -1;
    if (elements >= 0 && t->rank > 0 && elements == t->shape[0] * m->forest->features) return t;
    proa_backend_fail(r, PROA_INVALID, "input '" PROA_FIL_INPUT "' must have %d features in each row",
                      m->forest->features);
    return NULL;
}

/* A new output of the reply, NULL if the request does not want it. */
static float *add_output(proa_reply *reply, const proa_infer *r, const char *name,
                         const proa_fil_output *like, int64_t rows)
{
    int64_t shape[PROA_SERVE_RANK_MAX];
    void *data = NULL;
    if (!proa_infer_wants(r, name)) return NULL;
    memcpy(shape, like->shape, sizeof shape);
    shape[0] = rows;
    proa_reply_add_array(reply, name, PROA_TYPE_FP32, shape, like->rank, &data);
    return data;
}

static void answer_request(const fil *m, proa_infer *r, int64_t rows, const float *scores)
{
    proa_reply *reply = proa_reply_new(r);
    float *out = add_output(reply, r, PROA_FIL_OUTPUT, &m->outputs.scores, rows);
    if (out) write_answers(m, scores, rows, out);
    proa_infer_reply(r, reply, true);
}

/* Writes scores directly into the reply where they are the output. */
static void execute_one(fil_instance *in, proa_infer *r)
{
    const fil *m = in->model;
    const proa_tensor *t = input_of(m, r);
    if (!t) return;
    int64_t rows = rows_of(m, t);
    const float *x = (const float *)(const void *)t->data;
    bool aligned = (uintptr_t)x % sizeof(float) == 0, direct = m->outputs.answer == PROA_FIL_SCORES;
    int64_t copied = aligned ? 0 : rows * m->forest->features;
    float *own = scratch_floats(in, copied + (direct ? 0 : rows * m->forest->outputs));
    if (copied) x = memcpy(own, t->data, t->bytes);
    proa_reply *reply = proa_reply_new(r);
    float *out = add_output(reply, r, PROA_FIL_OUTPUT, &m->outputs.scores, rows);
    if (out)
        proa_packed_predict(m->packed, x, rows, false, direct ? out : own + copied, threads_for(in, rows));
    if (out && !direct) write_answers(m, own + copied, rows, out);
    out = m->explain ? add_output(reply, r, PROA_FIL_SHAP, &m->outputs.shap, rows) : NULL;
    if (out) proa_shap_values(m->explain, x, rows, out, in->pool);
    proa_infer_reply(r, reply, true);
}

/* Executes requests whose rows are stored one after the other at x. */
static void execute_joined(fil_instance *in, proa_infer *const *requests, int count, int64_t rows)
{
    const fil *m = in->model;
    float *x = scratch_floats(in, rows * (m->forest->features + m->forest->outputs)), *at = x;
    for (int i = 0; i < count; i++) {
        const proa_tensor *t = proa_infer_input(requests[i], PROA_FIL_INPUT);
        if (t->bytes) memcpy(at, t->data, t->bytes);
        at += rows_of(m, t) * m->forest->features;
    }
    proa_infer_input_done(requests, count);
    float *scores = x + rows * m->forest->features;
    proa_packed_predict(m->packed, x, rows, false, scores, threads_for(in, rows));
    proa_infer_output_begins(requests, count);
    for (int i = 0; i < count; i++) {
        int64_t own = rows_of(m, proa_infer_input(requests[i], PROA_FIL_INPUT));
        answer_request(m, requests[i], own, scores);
        scores += own * m->forest->outputs;
    }
}

/* How many of the requests to join, at least 1, and their rows. */
static int may_join(const fil *m, proa_infer *const *requests, int count, int64_t *rows)
{
    int n = 0;
    int64_t elements = 0, of_row = m->forest->features + m->forest->outputs;
    *rows = 0;
    while (n < count) {
        const proa_tensor *t = proa_infer_input(requests[n], PROA_FIL_INPUT);
        if (!t || t->rank < 1 || proa_shape_elements(t->shape, t->rank) != t->shape[0] * m->forest->features)
            break;
        elements += rows_of(m, t) * of_row;
        if (elements > JOIN_BYTES / (int64_t)sizeof(float)) break;
        *rows += rows_of(m, t);
        n++;
    }
    return n;
}

static void execute_on_cpu(fil_instance *in, proa_infer *const *requests, int count)
{
    while (count > 0) {
        int64_t rows = 0;
        int n = count == 1 || in->model->explain ? 0 : may_join(in->model, requests, count, &rows);
        if (n < 2) {
            n = 1;
            execute_one(in, requests[0]);
        } else {
            execute_joined(in, requests, n, rows);
        }
        requests += n;
        count -= n;
    }
    tidy_scratch(in);
}

/* ---- on a GPU ---- */

/* Requests whose rows go through the forest in one pass. */
typedef struct gpu_group {
    int first, count;
    int64_t rows;
    proa_status status;
    proa_fil_pass pass;
} gpu_group;

/* How many of the requests to join: of those whose rows are on the host. Rows on a GPU stay where they are. */
static int may_join_on_gpu(const fil *m, proa_infer *const *requests, int count, int64_t *rows)
{
    int n = 0;
    for (const proa_tensor *t; n < count; n++)
        if (!(t = proa_infer_input(requests[n], PROA_FIL_INPUT)) || proa_tensor_device(t)) break;
    return may_join(m, requests, n, rows);
}

static proa_status launch_joined(fil_instance *in, proa_infer *const *requests, gpu_group *g, proa_err *err)
{
    const fil *m = in->model;
    float *x = scratch_floats(in, proa_max64(1, g->rows * m->forest->features)), *at = x;
    for (int i = 0; i < g->count; i++) {
        const proa_tensor *t = proa_infer_input(requests[g->first + i], PROA_FIL_INPUT);
        if (t->bytes) memcpy(at, t->data, t->bytes);
        at += rows_of(m, t) * m->forest->features;
    }
    const proa_tensor all = {.type = PROA_TYPE_FP32,
                             .data = (const char *)x,
                             .bytes = (size_t)(g->rows * m->forest->features) * sizeof *x};
    return proa_fil_device_run(in->device, &in->stream, &all, g->rows, &g->pass, err);
}

static proa_status launch_group(fil_instance *in, proa_infer *const *requests, gpu_group *g, proa_err *err)
{
    if (g->count > 1) return launch_joined(in, requests, g, err);
    const proa_tensor *t = proa_infer_input(requests[g->first], PROA_FIL_INPUT);
    g->rows = rows_of(in->model, t);
    return proa_fil_device_run(in->device, &in->stream, t, g->rows, &g->pass, err);
}

static void answer_from_gpu(const fil *m, proa_infer *r, const gpu_group *g, int64_t row)
{
    proa_reply *reply = proa_reply_new(r);
    int64_t rows = rows_of(m, proa_infer_input(r, PROA_FIL_INPUT)), shape[PROA_SERVE_RANK_MAX];
    memcpy(shape, m->outputs.scores.shape, sizeof shape);
    shape[0] = rows;
    const proa_output_spec spec = {PROA_FIL_OUTPUT, PROA_TYPE_FP32, shape, m->outputs.scores.rank};
    if (proa_infer_wants(r, PROA_FIL_OUTPUT))
        proa_gpu_output(reply, &spec, g->pass.out, (size_t)(row * m->outputs.scores.width) * sizeof(float));
    proa_infer_reply(r, reply, true);
}

/* After the wait: kernels have ended or failed. */
static void answer_group(const fil *m, proa_infer *const *requests, gpu_group *g, const proa_err *err)
{
    int64_t row = 0;
    for (int i = 0; i < g->count; i++) {
        proa_infer *r = requests[g->first + i];
        int64_t own = rows_of(m, proa_infer_input(r, PROA_FIL_INPUT));
        if (g->status != PROA_OK) proa_infer_fail(r, err);
        else answer_from_gpu(m, r, g, row);
        row += own;
    }
    proa_fil_pass_release(&g->pass);
}

/* All passes are launched before the first is waited for. */
static void execute_on_gpu(fil_instance *in, proa_infer *const *requests, int count)
{
    gpu_group *groups = proa_calloc((size_t)count, sizeof *groups);
    proa_err err = {.status = PROA_OK};
    int n = 0;
    proa_gpu_stream_begin(&in->stream);
    for (int at = 0; at < count;) {
        gpu_group *g = &groups[n];
        *g = (gpu_group){.first = at, .count = 1};
        g->count = (int)proa_max64(1, may_join_on_gpu(in->model, requests + at, count - at, &g->rows));
        at += g->count;
        if (g->count == 1 && !input_of(in->model, requests[g->first])) continue; /* it was refused */
        g->status = launch_group(in, requests, g, &err);
        n++;
    }
    proa_status waited = proa_gpu_stream_wait(&in->stream, &err);
    for (int i = 0; i < n; i++) {
        if (waited != PROA_OK) groups[i].status = waited;
        answer_group(in->model, requests, &groups[i], &err);
    }
    free(groups);
}

/* Instances of both kinds may serve one model: one on the CPU may get rows that are on a GPU. */
static void execute_requests(void *instance_state, proa_infer *const *requests, int count)
{
    fil_instance *in = instance_state;
    if (in->device) {
        execute_on_gpu(in, requests, count);
        tidy_scratch(in);
        return;
    }
    for (int i = 0; in->model->on_gpu && i < count; i++) {
        proa_err err = {.status = PROA_OK};
        if (proa_infer_inputs_to_host(requests[i], &err) == PROA_OK) execute_on_cpu(in, &requests[i], 1);
        else proa_infer_fail(requests[i], &err);
    }
    if (!in->model->on_gpu) execute_on_cpu(in, requests, count);
}

/* ---- opening ---- */

static void model_close(void *state)
{
    fil *m = state;
    for (int i = 0; i < PROA_GPUS_MAX; i++) proa_fil_device_free(m->devices[i]);
    proa_shap_free(m->explain);
    proa_packed_free(m->packed);
    proa_forest_free(m->forest);
    free(m);
}

/* What a GPU does not compute its instances compute on the CPU. */
static bool computes_on_gpu(const fil *m)
{
    const Inference__ModelConfig *c = proa_served_model_config(m->model);
    const char *transform = proa_fil_device_refuses(m->forest);
    if (!proa_config_uses_gpu(c)) return false;
    if (!m->explain && !transform) return true;
    PROA_LOG(WARNING, "model '%s': its instances of KIND_GPU compute on the CPU: a GPU does not compute %s",
             c->name, transform ? transform : PROA_FIL_SHAP);
    return false;
}

static proa_status open_all(fil *m, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(m->model);
    PROA_TRY(proa_fil_read(&m->settings, c, true, err));
    PROA_TRY(proa_fil_forest(&m->forest, &m->settings, proa_served_model_version_path(m->model), err));
    PROA_TRY(proa_fil_tensors(&m->outputs, c, &m->settings, m->forest, err));
    if (m->outputs.has_shap) PROA_TRY(proa_shap_new(&m->explain, m->forest, err));
    PROA_TRY(proa_packed_new(&m->packed, m->forest, err));
    m->on_gpu = computes_on_gpu(m);
    int64_t slow = proa_packed_slow_trees(m->packed);
    if (slow)
        PROA_LOG(INFO, "model '%s': %lld of %lld trees have splits that packed nodes cannot hold and are slower",
                 c->name, (long long)slow, (long long)m->forest->tree_count);
    return PROA_OK;
}

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    fil *m = proa_calloc(1, sizeof *m);
    m->model = model;
    proa_status status = open_all(m, err);
    if (status != PROA_OK) {
        model_close(m);
        return status;
    }
    if (m->on_gpu) proa_served_model_set_device_inputs(model);
    if (!m->on_gpu && brief_rows(m) > 0) proa_served_model_set_inline_rows(model, brief_rows(m));
    else proa_served_model_set_long(model);
    *state = m;
    return PROA_OK;
}

/* The forest is copied to a GPU with its first instance there. */
static proa_status open_on_gpu(fil *m, fil_instance *in, int gpu, proa_err *err)
{
    PROA_TRY(proa_gpu_stream_open(&in->stream, gpu, err));
    if (!m->devices[gpu])
        PROA_TRY(proa_fil_device_new(&m->devices[gpu], &in->stream, m->forest, m->outputs.answer,
                                     m->settings.threshold, err));
    in->device = m->devices[gpu];
    return PROA_OK;
}

static void instance_close(void *state)
{
    fil_instance *in = state;
    proa_gpu_stream_close(&in->stream);
    proa_pool_free(in->pool);
    free(in->scratch);
    free(in);
}

static proa_status instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    fil *m = model_state;
    fil_instance *in = proa_calloc(1, sizeof *in);
    int gpu = proa_instance_device(instance);
    proa_status status = PROA_OK;
    in->model = m;
    if (m->on_gpu && gpu >= 0) status = open_on_gpu(m, in, gpu, err);
    else if (proa_served_model_config(m->model)->max_batch_size > brief_rows(m))
        in->pool = proa_pool_new(m->settings.threads);
    if (status != PROA_OK) return instance_close(in), status;
    *state = in;
    return PROA_OK;
}

const proa_backend proa_backend_fil = {.name = "fil",
                                       .flags = PROA_BACKEND_INLINE | PROA_BACKEND_GPU,
                                       .complete = proa_fil_complete,
                                       .model_open = model_open,
                                       .model_close = model_close,
                                       .instance_open = instance_open,
                                       .instance_close = instance_close,
                                       .execute = execute_requests};
