/* SPDX-License-Identifier: Apache-2.0
 * sequence.c - the backends `sequence` and `dyna_sequence`: an accumulator for each sequence, driven by
 * the control tensors START, END, READY and CORRID. */
#include "backends/backends.h"
#include "backends/common.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* READY = 0: nothing happens and OUTPUT is 0. START = 1: the accumulator becomes the sum of INPUT;
 * otherwise the sum is added to it. END = 1: CORRID is added, and the sequence is deleted. OUTPUT repeats
 * the accumulator for each element of INPUT. With the parameter accumulate = "false", as in the models
 * simple_sequence and simple_dyna_sequence, OUTPUT is INPUT + START + END * CORRID and nothing is stored.
 * */

#define BUCKETS 256

typedef struct account {
    uint64_t id;
    char *name; /* of a string id; else NULL */
    int32_t value;
    int64_t used_ns;
    struct account *next;
} account;

typedef struct sequences {
    pthread_mutex_t lock; /* guards the accounts: requests of one sequence come one at a time, but from any instance */
    account *buckets[BUCKETS];
    int64_t idle_ns, swept_ns, delay_ms;
    bool accumulate;
} sequences;

/* The values of a request's control tensors. */
typedef struct controls {
    bool start, end, ready;
    uint64_t id;
} controls;

/* ---- accounts; the lock is held ---- */

static bool is_of(const account *a, const proa_infer *r)
{
    if (r->sequence_name) return a->name && strcmp(a->name, r->sequence_name) == 0;
    return !a->name && a->id == r->sequence_id;
}

static account **find_account(sequences *s, const proa_infer *r)
{
    uint64_t h = r->sequence_name ? proa_str_hash(proa_str_c(r->sequence_name)) : r->sequence_id;
    account **at = &s->buckets[h % BUCKETS];
    while (*at && !is_of(*at, r)) at = &(*at)->next;
    return at;
}

static void forget_account(account **at)
{
    account *a = *at;
    *at = a->next;
    free(a->name);
    free(a);
}

/* Removes sequences without an END whose slots the scheduler has long reassigned. */
static void sweep_accounts(sequences *s, int64_t now)
{
    if (now - s->swept_ns < s->idle_ns) return;
    s->swept_ns = now;
    for (int b = 0; b < BUCKETS; b++)
        for (account **at = &s->buckets[b]; *at;) {
            if (now - (*at)->used_ns > 2 * s->idle_ns) forget_account(at);
            else at = &(*at)->next;
        }
}

static int32_t accumulate_sum(sequences *s, const proa_infer *r, const controls *c, int32_t sum)
{
    int64_t now = proa_clock_ns();
    pthread_mutex_lock(&s->lock);
    if (c->start) sweep_accounts(s, now);
    account **at = find_account(s, r), *a = *at;
    if (!a) {
        a = *at = proa_calloc(1, sizeof *a);
        a->id = r->sequence_id;
        a->name = r->sequence_name ? proa_strdup(r->sequence_name) : NULL;
    }
    a->value = (int32_t)((c->start ? 0 : (uint32_t)a->value) + (uint32_t)sum + (c->end ? (uint32_t)c->id : 0));
    a->used_ns = now;
    int32_t value = a->value;
    if (c->end) forget_account(at);
    pthread_mutex_unlock(&s->lock);
    return value;
}

/* ---- opening ---- */

static const Inference__ModelSequenceBatching__Control *find_control(const Inference__ModelSequenceBatching *b,
                                                                     const char *name)
{
    for (size_t i = 0; i < b->n_control_input; i++)
        if (strcmp(b->control_input[i]->name, name) == 0 && b->control_input[i]->n_control)
            return b->control_input[i]->control[0];
    return NULL;
}

static proa_status check_controls(const Inference__ModelConfig *c, bool dynamic, proa_err *err)
{
    if (c->scheduling_choice_case != INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        return PROA_FAIL(err, INVALID, "model configuration must have sequence_batching");
    const Inference__ModelSequenceBatching *b = c->sequence_batching;
    bool basic = find_control(b, "START") && find_control(b, "READY");
    if (!dynamic)
        return basic ? PROA_OK
                     : PROA_FAIL(err, INVALID, "'START' and 'READY' must be configured as the control inputs");
    const Inference__ModelSequenceBatching__Control *id = find_control(b, "CORRID");
    if (!basic || !id || !find_control(b, "END"))
        return PROA_FAIL(err, INVALID,
                         "'START', 'END, 'READY' and 'CORRID' must be configured as the control inputs");
    if (id->data_type != INFERENCE__DATA_TYPE__TYPE_UINT64 && id->data_type != INFERENCE__DATA_TYPE__TYPE_STRING)
        return PROA_FAIL(err, INVALID,
                         "model CORRID control input must have TYPE_UINT64 or TYPE_STRING data-type");
    return PROA_OK;
}

static proa_status check_tensors(const Inference__ModelConfig *c, proa_err *err)
{
    if (c->n_input != 1 || c->input[0]->n_dims != 1)
        return PROA_FAIL(err, INVALID, "model must have input 'INPUT' with vector shape, any length");
    if (c->input[0]->data_type != INFERENCE__DATA_TYPE__TYPE_INT32)
        return PROA_FAIL(err, INVALID, "model input must have TYPE_INT32 data-type");
    if (strcmp(c->input[0]->name, "INPUT") != 0)
        return PROA_FAIL(err, INVALID, "model input must be named 'INPUT'");
    if (c->n_output != 1)
        return PROA_FAIL(err, INVALID, "model must have one output 'OUTPUT' with vector shape, any length");
    if (c->output[0]->n_dims != 1 || c->output[0]->dims[0] != c->input[0]->dims[0])
        return PROA_FAIL(err, INVALID, "model must have output 'OUTPUT' with shape matching 'INPUT'");
    if (c->output[0]->data_type != INFERENCE__DATA_TYPE__TYPE_INT32)
        return PROA_FAIL(err, INVALID, "model output must have TYPE_INT32 data-type");
    if (strcmp(c->output[0]->name, "OUTPUT") != 0)
        return PROA_FAIL(err, INVALID, "model output must be named 'OUTPUT'");
    return PROA_OK;
}

static void sequence_close(void *state)
{
    sequences *s = state;
    for (int b = 0; b < BUCKETS; b++)
        while (s->buckets[b]) forget_account(&s->buckets[b]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static proa_status open_any(void **state, proa_served_model *model, bool dynamic, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(model);
    const char *keep = proa_served_model_parameter(model, "accumulate");
    int64_t delay_ms = 0;
    PROA_TRY(check_controls(c, dynamic, err));
    PROA_TRY(check_tensors(c, err));
    PROA_TRY(proa_parameter_number(&delay_ms, model, "execute_delay_ms", 3600000, err));
    sequences *s = proa_calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->delay_ms = delay_ms;
    s->accumulate = !(keep && strcmp(keep, "false") == 0);
    s->idle_ns = (int64_t)(c->sequence_batching->max_sequence_idle_microseconds % (uint64_t)INT32_MAX) * 1000;
    *state = s;
    return PROA_OK;
}

static proa_status sequence_open(void **state, proa_served_model *model, proa_err *err)
{
    return open_any(state, model, false, err);
}

static proa_status dyna_sequence_open(void **state, proa_served_model *model, proa_err *err)
{
    return open_any(state, model, true, err);
}

static proa_status sequence_instance_open(void **state, void *model_state, const proa_instance *instance,
                                          proa_err *err)
{
    (void)instance;
    (void)err;
    *state = model_state;
    return PROA_OK;
}

/* ---- running ---- */

/* A control tensor of int32, fp32 or bool; false if there is none. */
static bool control_flag(const proa_infer *r, const char *name, bool absent)
{
    const proa_tensor *t = proa_infer_input(r, name);
    float f = 0;
    int32_t i = 0;
    if (!t || t->bytes == 0) return absent;
    if (t->type == PROA_TYPE_BOOL) return t->data[0] != 0;
    if (t->bytes < 4) return absent;
    memcpy(&f, t->data, sizeof f);
    memcpy(&i, t->data, sizeof i);
    return t->type == PROA_TYPE_FP32 ? f != 0.0F : i != 0;
}

static bool read_id(uint64_t *id, const proa_infer *r)
{
    char *end;
    *id = r->sequence_id;
    if (!r->sequence_name) return true;
    errno = 0;
    *id = (uint64_t)strtoll(r->sequence_name, &end, 10);
    return errno == 0 && end != r->sequence_name;
}

static void answer_request(sequences *s, proa_infer *r, const controls *c)
{
    const proa_tensor *in = proa_infer_input(r, "INPUT");
    int64_t n = proa_shape_elements(in->shape, in->rank);
    uint32_t sum = 0, x, plus = (uint32_t)c->start + (c->end ? (uint32_t)c->id : 0);
    void *data;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&x, in->data + i * 4, 4);
        sum += x;
    }
    bool keeps = c->ready && s->accumulate;
    uint32_t value = keeps ? (uint32_t)accumulate_sum(s, r, c, (int32_t)sum) : 0;
    proa_reply *reply = proa_reply_new(r);
    proa_reply_add_array(reply, "OUTPUT", PROA_TYPE_INT32, in->shape, in->rank, &data);
    for (int64_t i = 0; i < n; i++) {
        memcpy(&x, in->data + i * 4, 4);
        x = keeps ? value : c->ready ? x + plus : 0;
        memcpy((char *)data + i * 4, &x, 4);
    }
    proa_infer_reply(r, reply, true);
}

static void sequence_execute(void *instance_state, proa_infer *const *requests, int count)
{
    sequences *s = instance_state;
    if (s->delay_ms) proa_backend_sleep(requests, count, s->delay_ms * 1000000);
    for (int i = 0; i < count; i++) {
        proa_infer *r = requests[i];
        controls c = {control_flag(r, "START", false), control_flag(r, "END", false),
                      control_flag(r, "READY", true), 0};
        if (!read_id(&c.id, r))
            proa_backend_fail(r, PROA_INVALID,
                              "dyna sequence backend expects correlation ID to be decodable into an integer");
        else answer_request(s, r, &c);
    }
}

const proa_backend proa_backend_sequence = {
    .name = "sequence",
    .model_open = sequence_open,
    .model_close = sequence_close,
    .instance_open = sequence_instance_open,
    .execute = sequence_execute,
};

const proa_backend proa_backend_dyna_sequence = {
    .name = "dyna_sequence",
    .model_open = dyna_sequence_open,
    .model_close = sequence_close,
    .instance_open = sequence_instance_open,
    .execute = sequence_execute,
};
