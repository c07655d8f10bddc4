/* SPDX-License-Identifier: Apache-2.0
 * warmup.c - runs the warm-up samples of a version before it serves. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/limits.h"
#include "serve/core.h"
#include "serve/scheduler.h"
#include <string.h>

/* Who waits for the final reply of one request. */
typedef struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done;
    proa_err error;
} waiter;

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    waiter *w = r->user;
    pthread_mutex_lock(&w->lock);
    if (reply && w->error.status == PROA_OK) w->error = reply->error;
    proa_reply_free(reply);
    if (final) {
        w->done = true;
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- the data of an input ---- */

static void fill_random(char *to, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        to[i] = (char)(seed >> 56);
    }
}

/* One row of a file in the folder "warmup": as many bytes as the shape has, or the whole file for strings. */
static proa_status row_from_file(proa_buf *row, const proa_served_model *m,
                                 const Inference__ModelWarmup__Input *in, int64_t bytes, proa_err *err)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(folder, m->path, "warmup", err));
    PROA_TRY(proa_path_join(path, folder, in->input_data_file, err));
    PROA_TRY(proa_file_read(row, path, PROA_INFLIGHT_BYTES_MAX, err));
    if (in->data_type == INFERENCE__DATA_TYPE__TYPE_STRING) return PROA_OK;
    if (row->len < (size_t)bytes)
        return PROA_FAIL(
            err, INVALID, "warmup setting expects %lld bytes, but the data provided from %s only has %zu bytes",
            (long long)bytes, in->input_data_file, row->len);
    row->len = (size_t)bytes;
    return PROA_OK;
}

/* Bytes of one row; -1: they are negative, or too many. */
static int64_t row_bytes(const Inference__ModelWarmup__Input *in)
{
    int64_t bytes, elements = proa_shape_elements(in->dims, (int32_t)in->n_dims);
    int64_t element = proa_type_bytes((proa_type)in->data_type);
    if (in->data_type == INFERENCE__DATA_TYPE__TYPE_STRING) element = sizeof(uint32_t);
    bool counts = elements >= 0 && element >= 0 && proa_mul(elements, element, &bytes);
    return counts && bytes <= PROA_INFLIGHT_BYTES_MAX ? bytes : -1;
}

/* Strings are empty, for zero data as well as for random data. */
static proa_status make_row(proa_buf *row, const proa_served_model *m, const char *name,
                            const Inference__ModelWarmup__Input *in, proa_err *err)
{
    int64_t bytes = row_bytes(in);
    for (size_t i = 0; i < in->n_dims; i++)
        if (in->dims[i] < 0)
            return PROA_FAIL(
                err, INVALID,
                "warmup setting expects all variable-size dimensions are specified for input '%s'", name);
    if (bytes < 0)
        return PROA_FAIL(err, INVALID, "byte size for tensor '%s' exceeds maximum size of %lld", name,
                         (long long)PROA_INFLIGHT_BYTES_MAX);
    if (in->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE)
        return row_from_file(row, m, in, bytes, err);
    if (in->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE__NOT_SET)
        return PROA_FAIL(err, INVALID, "warmup setting expects input '%s' to have input_data_type set", name);
    if (!proa_buf_reserve(row, (size_t)bytes))
        return PROA_FAIL(err, NO_MEMORY, "not enough memory for warmup tensor '%s' of %lld bytes", name,
                         (long long)bytes);
    row->len = (size_t)bytes;
    if (bytes) memset(row->ptr, 0, (size_t)bytes);
    if (in->input_data_type_case == INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_RANDOM_DATA &&
        in->data_type != INFERENCE__DATA_TYPE__TYPE_STRING && bytes)
        fill_random(row->ptr, (size_t)bytes, (uint64_t)bytes);
    return PROA_OK;
}

/* The row as often as the batch has rows. */
static proa_status set_tensor(proa_tensor *t, const proa_served_model *m,
                              const Inference__ModelWarmup__Input *in, proa_str row, int64_t batch, proa_err *err)
{
    int64_t bytes;
    bool batched = m->batch_max > 0;
    if (in->n_dims + batched > PROA_SERVE_RANK_MAX || !proa_mul((int64_t)row.len, batch, &bytes) ||
        bytes > PROA_INFLIGHT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "warmup tensor '%s' is too large", t->name);
    t->type = (proa_type)in->data_type;
    t->rank = (int32_t)(in->n_dims + batched);
    t->shape[0] = batch;
    if (in->n_dims) memcpy(t->shape + batched, in->dims, in->n_dims * sizeof *in->dims);
    t->bytes = (size_t)bytes;
    if (!bytes) return PROA_OK;
    PROA_TRY(proa_buffer_try(&t->buffer, t->bytes, err));
    t->data = t->buffer->data;
    for (int64_t i = 0; i < batch; i++) memcpy(t->buffer->data + (size_t)i * row.len, row.ptr, row.len);
    return PROA_OK;
}

static proa_status add_input(proa_infer *r, const proa_served_model *m,
                             const Inference__ModelWarmup__InputsEntry *entry, int64_t batch, proa_err *err)
{
    proa_buf row;
    if (!proa_served_model_input(m, entry->key))
        return PROA_OK; /* a control tensor: the scheduler makes it */
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(entry->key));
    if (!t) return PROA_FAIL(err, LIMIT, "a warm-up has too many inputs");
    proa_buf_init(&row, PROA_INFLIGHT_BYTES_MAX);
    proa_status status = make_row(&row, m, entry->key, entry->value, err);
    if (status == PROA_OK) status = set_tensor(t, m, entry->value, proa_buf_view(&row), batch, err);
    proa_buf_release(&row);
    return status;
}

/* ---- one request ---- */

static proa_status run_warmup(proa_served_model *m, proa_infer *r, waiter *w, proa_err *err)
{
    PROA_TRY(proa_infer_check(m, r, err));
    r->model = proa_served_model_hold(m);
    PROA_TRY(proa_scheduler_enqueue(m->scheduler, r, err));
    pthread_mutex_lock(&w->lock);
    while (!w->done) pthread_cond_wait(&w->wake, &w->lock);
    pthread_mutex_unlock(&w->lock);
    if (w->error.status != PROA_OK && err) *err = w->error;
    return w->error.status;
}

static proa_status run_sample(proa_served_model *m, const Inference__ModelWarmup *sample, proa_err *err)
{
    waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    proa_infer *r = proa_infer_new();
    proa_status status = PROA_OK;
    int64_t batch = m->batch_max > 0 ? (int64_t)sample->batch_size : 1;
    r->model_name = m->name;
    r->model_version = m->version;
    r->on_reply = on_reply;
    r->user = &w;
    r->silent = true;
    if (m->config->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING) {
        r->sequence_id = 1;
        r->sequence_start = r->sequence_end = true;
        batch = 1;
    }
    for (size_t i = 0; i < sample->n_inputs && status == PROA_OK; i++)
        status = add_input(r, m, sample->inputs[i], batch, err);
    if (status == PROA_OK) status = run_warmup(m, r, &w, err);
    proa_infer_drop(r);
    return status;
}

proa_status proa_served_model_warm(proa_served_model *model, proa_err *err)
{
    for (size_t i = 0; i < model->config->n_model_warmup; i++) {
        const Inference__ModelWarmup *sample = model->config->model_warmup[i];
        uint32_t count = sample->batch_size == 0 ? 0 : sample->count ? sample->count : 1;
        if (count > PROA_WARMUP_RUNS_MAX)
            return PROA_FAIL(err, LIMIT, "warmup sample '%s' has count %u, at most %d are run", sample->name,
                             count, PROA_WARMUP_RUNS_MAX);
        for (uint32_t k = 0; k < count; k++) {
            proa_status status = run_sample(model, sample, err);
            if (status == PROA_OK) continue;
            proa_err_prefix(err, "failed to run warmup sample '%s'", sample->name);
            return status;
        }
    }
    return PROA_OK;
}
