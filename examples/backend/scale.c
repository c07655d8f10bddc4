/* SPDX-License-Identifier: Apache-2.0
 * scale.c - a backend as a shared library: OUTPUT = INPUT * factor, for a float32 tensor of any shape. The factor is a
 * parameter of the model's configuration.
 *
 * It shows what every backend does: a state for each model that is checked when the model is loaded, a loop over the
 * requests of a batch, one response for each, and errors. */
#include <proa/backend.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const proa_backend_host *host;

typedef struct scale {
    float factor;
} scale;

static proa_status scale_open(void **state, proa_backend_model *model, proa_err *err)
{
    const char *text = host->model_parameter(model, "factor");
    char *end;
    float factor = strtof(text ? text : "1", &end);
    if (*end || !isfinite(factor)) return host->fail(err, PROA_INVALID, "parameter 'factor' is not a number");
    scale *s = malloc(sizeof *s);
    if (!s) return host->fail(err, PROA_NO_MEMORY, "not enough memory for the model");
    s->factor = factor;
    *state = s;
    return PROA_OK;
}

/* An instance needs nothing of its own: its state is the model's. */
static proa_status scale_instance_open(void **state, void *model_state, const proa_backend_instance *instance,
                                       proa_err *err)
{
    (void)instance;
    (void)err;
    *state = model_state;
    return PROA_OK;
}

static proa_status compute(const scale *s, const proa_backend_request *request,
                           proa_backend_response *response, proa_err *err)
{
    proa_backend_tensor in;
    void *data;
    if (!host->request_find_input(request, "INPUT", &in) || in.type != PROA_BACKEND_FP32)
        return host->fail(err, PROA_INVALID, "a float32 tensor INPUT is needed");
    proa_status status = host->response_output(response, "OUTPUT", PROA_BACKEND_FP32, in.shape, in.rank, 0,
                                               &data, err);
    for (size_t i = 0; status == PROA_OK && i < in.bytes / sizeof(float); i++) {
        float x; /* the input may lie at any address */
        memcpy(&x, (const char *)in.data + i * sizeof x, sizeof x);
        ((float *)data)[i] = x * s->factor;
    }
    return status;
}

static void scale_execute(void *state, proa_backend_request *const *requests, int count)
{
    for (int i = 0; i < count; i++) {
        proa_err err = {0};
        proa_backend_response *response = host->response_new(requests[i]);
        proa_status status = compute(state, requests[i], response, &err);
        if (status != PROA_OK) host->response_error(response, status, err.text);
        host->response_send(requests[i], response, true);
    }
}

static const proa_backend_table table = {
    .bytes = sizeof table,
    .version = PROA_BACKEND_VERSION,
    .model_open = scale_open,
    .model_close = free,
    .instance_open = scale_instance_open,
    .execute = scale_execute,
};

PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *err);
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *h, proa_err *err)
{
    (void)err;
    host = h;
    return h->version == PROA_BACKEND_VERSION ? &table : NULL;
}
