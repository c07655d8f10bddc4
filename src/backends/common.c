/* SPDX-License-Identifier: Apache-2.0
 * common.c - helpers of the backends: sleeping until a cancel, failing a request, reading numeric
 * parameters. */
#include "backends/common.h"

#include "base/clock.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define LOOK_NS 5000000

static bool all_cancelled(proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++)
        if (!proa_infer_cancelled(requests[i])) return false;
    return count > 0;
}

void proa_backend_sleep(proa_infer *const *requests, int count, int64_t ns)
{
    int64_t end = proa_clock_ns() + ns;
    while (ns > 0 && !all_cancelled(requests, count)) {
        int64_t part = ns < LOOK_NS ? ns : LOOK_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)part}, NULL);
        ns = end - proa_clock_ns();
    }
}

bool proa_backend_end_if_cancelled(proa_infer *r)
{
    if (!proa_infer_cancelled(r)) return false;
    proa_backend_fail(r, PROA_CANCELLED, "cancelled");
    return true;
}

void proa_backend_fail(proa_infer *r, proa_status status, const char *fmt, ...)
{
    char text[400];
    proa_err err = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)proa_err_set(&err, status, __FILE__, __LINE__, "%s", text);
    proa_infer_fail(r, &err);
}

void proa_backend_take_completed(Inference__ModelConfig *config, const Inference__ModelConfig *made)
{
    config->max_batch_size = made->max_batch_size;
    config->n_input = made->n_input;
    config->input = made->input;
    config->n_output = made->n_output;
    config->output = made->output;
    config->model_transaction_policy = made->model_transaction_policy;
    if (made->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING) {
        config->scheduling_choice_case = made->scheduling_choice_case;
        config->dynamic_batching = made->dynamic_batching;
    }
}

static void check_output(proa_reply *reply, const proa_tensor *t)
{
    char text[PROA_DIMS_TEXT];
    int64_t elements = proa_shape_elements(t->shape, t->rank), found = 0;
    bool fits = elements >= 0 && (t->type == PROA_TYPE_BYTES
                                      ? proa_tensor_strings_fit(t, elements, &found)
                                      : t->bytes % (size_t)proa_type_bytes(t->type) == 0 &&
                                            t->bytes / (size_t)proa_type_bytes(t->type) == (size_t)elements);
    if (!fits)
        (void)PROA_FAIL(&reply->error, INTERNAL, "output '%s' has %zu bytes, which is not %s of shape %s",
                        t->name, t->bytes, proa_type_name(t->type),
                        proa_dims_text(text, t->shape, (size_t)t->rank));
}

void proa_backend_check_outputs(proa_reply *reply)
{
    for (int32_t i = 0; i < reply->outputs_count && reply->error.status == PROA_OK; i++)
        check_output(reply, &reply->outputs[i]);
}

proa_status proa_parameter_number(int64_t *value, const proa_served_model *model, const char *key,
                                  int64_t max, proa_err *err)
{
    const char *text = proa_served_model_parameter(model, key);
    char *end;
    if (!text) return PROA_OK;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || *end || n < 0 || n > max)
        return PROA_FAIL(err, INVALID, "parameter '%s' of model '%s' must be a number from 0 to %lld, got '%s'",
                         key, proa_served_model_name(model), (long long)max, text);
    *value = n;
    return PROA_OK;
}

bool proa_parameter_true(const proa_served_model *model, const char *key)
{
    const char *text = proa_served_model_parameter(model, key);
    return text && strcmp(text, "true") == 0;
}

proa_status proa_parameter_flag(bool *out, const proa_served_model *model, const char *key, proa_err *err)
{
    static const char *const yes[] = {"true", "1", "yes", "y", "t"}, *const no[] = {"false", "0", "no", "n", "f"};
    const char *value = proa_served_model_parameter(model, key);
    if (!value) return PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(yes); i++) {
        if (strcasecmp(value, yes[i]) != 0 && strcasecmp(value, no[i]) != 0) continue;
        *out = strcasecmp(value, yes[i]) == 0;
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "parameter '%s' is '%s', must be true or false", key, value);
}

const char *proa_dims_text(char *text, const int64_t *shape, size_t rank)
{
    size_t at = 1;
    text[0] = '[';
    for (size_t i = 0; i < rank && at < PROA_DIMS_TEXT - 24; i++)
        at += (size_t)snprintf(text + at, PROA_DIMS_TEXT - at, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(text + at, PROA_DIMS_TEXT - at, "]");
    return text;
}

proa_status proa_shared_instance_open(void **state, void *model_state, const proa_instance *instance,
                                      proa_err *err)
{
    PROA_UNUSED(instance);
    PROA_UNUSED(err);
    *state = model_state;
    return PROA_OK;
}

void proa_shared_instance_close(void *state)
{
    PROA_UNUSED(state);
}
