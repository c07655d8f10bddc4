/* SPDX-License-Identifier: Apache-2.0
 * check_queue.c - checks dynamic_batching and sequence_batching. */
#include "proto/message.h"
#include "serve/config/check.h"
#include <inttypes.h>
#include <string.h>

static proa_status check_sizes(const int32_t *sizes, size_t count, const char *what,
                               const Inference__ModelConfig *c, proa_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] <= 0) return PROA_FAIL(err, INVALID, "%s must be positive for %s", what, c->name);
        if (sizes[i] > c->max_batch_size)
            return PROA_FAIL(err, INVALID, "%s must be <= max batch size for %s", what, c->name);
    }
    return PROA_OK;
}

static proa_status check_levels(const Inference__ModelConfig *c, const Inference__ModelDynamicBatching *d,
                                proa_err *err)
{
    uint64_t levels = d->priority_levels;
    if (levels == 0) return PROA_OK;
    if (d->default_priority_level == 0 || d->default_priority_level > levels)
        return PROA_FAIL(err, INVALID, "default priority level must be in range [1, %" PRIu64 "] for %s",
                         levels, c->name);
    for (size_t i = 0; i < d->n_priority_queue_policy; i++)
        if (d->priority_queue_policy[i]->key == 0 || d->priority_queue_policy[i]->key > levels)
            return PROA_FAIL(err, INVALID,
                             "priority queue policy must have priority level in range [1, %" PRIu64
                             "] for %s",
                             levels, c->name);
    return PROA_OK;
}

static bool has_delay(const Inference__ModelQueuePolicy *p)
{
    return p && p->default_timeout_microseconds != 0 &&
           p->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY;
}

/* preserve_ordering excludes priorities and the time-out action DELAY. */
static proa_status check_ordering(const Inference__ModelConfig *c, const Inference__ModelDynamicBatching *d,
                                  proa_err *err)
{
    bool delay = has_delay(d->default_queue_policy);
    if (d->priority_levels > 1)
        return PROA_FAIL(err, INVALID,
                         "Only one priority level is allowed when 'preserve_ordering' is true for %s", c->name);
    for (size_t i = 0; i < d->n_priority_queue_policy; i++)
        delay |= has_delay(d->priority_queue_policy[i]->value);
    if (delay)
        return PROA_FAIL(
            err, INVALID,
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s",
            c->name);
    return PROA_OK;
}

proa_status proa_config_check_dynamic(const Inference__ModelConfig *c, proa_err *err)
{
    const Inference__ModelDynamicBatching *d = c->dynamic_batching;
    PROA_TRY(check_sizes(d->preferred_batch_size, d->n_preferred_batch_size,
                         "dynamic batching preferred size", c, err));
    PROA_TRY(check_levels(c, d, err));
    return d->preserve_ordering ? check_ordering(c, d, err) : PROA_OK;
}

typedef Inference__ModelSequenceBatching__Control control;
#define CONTROL_(kind) INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_##kind

static const char *kind_name(int kind)
{
    const char *name = proa_enum_name(&inference__model_sequence_batching__control__kind__descriptor, kind);
    return name ? name : "";
}

static proa_status check_pair(size_t count, const char *field, int kind, const char *model, proa_err *err)
{
    if (count == 0 || count == 2) return PROA_OK;
    return PROA_FAIL(err, INVALID, "sequence batching control '%s' must have exactly 2 entries for %s for %s",
                     field, kind_name(kind), model);
}

/* START, END, READY: the values for false and true, of one type. */
static proa_status check_flag(const control *c, int kind, const char *model, proa_err *err)
{
    int types = (c->n_int32_false_true != 0) + (c->n_fp32_false_true != 0) + (c->n_bool_false_true != 0);
    if (types == 0)
        return PROA_FAIL(err, INVALID,
                         "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
                         "'bool_false_true' for %s for %s",
                         kind_name(kind), model);
    if (types > 1)
        return PROA_FAIL(
            err, INVALID,
            "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            "'bool_false_true' for %s for %s",
            kind_name(kind), model);
    PROA_TRY(check_pair(c->n_int32_false_true, "int32_false_true", kind, model, err));
    PROA_TRY(check_pair(c->n_fp32_false_true, "fp32_false_true", kind, model, err));
    return check_pair(c->n_bool_false_true, "bool_false_true", kind, model, err);
}

static proa_status check_corrid(const control *c, int kind, const char *model, proa_err *err)
{
    if (c->n_int32_false_true || c->n_fp32_false_true || c->n_bool_false_true)
        return PROA_FAIL(err, INVALID,
                         "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
                         "'bool_false_true' for %s for %s",
                         kind_name(kind), model);
    return PROA_OK;
}

/* Checks the controls of one kind: the names of the tensors and the values of the control, which becomes *found. */
static proa_status check_kind(const Inference__ModelSequenceBatching *s, const char *model, int kind,
                              const control **found, proa_err *err)
{
    *found = NULL;
    for (size_t i = 0; i < s->n_control_input; i++) {
        const Inference__ModelSequenceBatching__ControlInput *in = s->control_input[i];
        if (!in->name[0])
            return PROA_FAIL(err, INVALID, "sequence batching control tensor must have a name for %s", model);
        for (size_t j = 0; j < i; j++)
            if (strcmp(in->name, s->control_input[j]->name) == 0)
                return PROA_FAIL(
                    err, INVALID,
                    "sequence batching control tensor '%s' is specified for multiple control kinds for %s",
                    in->name, model);
        for (size_t j = 0; j < in->n_control; j++) {
            if ((int)in->control[j]->kind != kind) continue;
            if (*found)
                return PROA_FAIL(err, INVALID, "sequence batching specifies multiple %s tensors for %s",
                                 kind_name(kind), model);
            *found = in->control[j];
            PROA_TRY(kind == (int)CONTROL_(CORRID) ? check_corrid(*found, kind, model, err)
                                                   : check_flag(*found, kind, model, err));
        }
    }
    return PROA_OK;
}

static proa_status check_controls(const Inference__ModelSequenceBatching *s, const char *model, proa_err *err)
{
    static const int kinds[] = {CONTROL_(START), CONTROL_(END), CONTROL_(READY), CONTROL_(CORRID)};
    enum { CONTROLS_MAX = 256 }; /* there are four kinds of one tensor each */
    const control *found = NULL;
    if (s->n_control_input > CONTROLS_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d sequence batching control tensors for %s", CONTROLS_MAX,
                         model);
    for (size_t i = 0; i < PROA_COUNT(kinds); i++) PROA_TRY(check_kind(s, model, kinds[i], &found, err));
    if (!found) return PROA_OK;
    switch (found->data_type) {
    case INFERENCE__DATA_TYPE__TYPE_UINT64:
    case INFERENCE__DATA_TYPE__TYPE_INT64:
    case INFERENCE__DATA_TYPE__TYPE_UINT32:
    case INFERENCE__DATA_TYPE__TYPE_INT32:
    case INFERENCE__DATA_TYPE__TYPE_STRING: return PROA_OK;
    default:
        return PROA_FAIL(
            err, INVALID,
            "unexpected data type for control %s for %s. Allowed data types are TYPE_UINT64, TYPE_INT64, "
            "TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
            kind_name(CONTROL_(CORRID)), model);
    }
}

typedef Inference__ModelSequenceBatching__State sequence_state;

/* The dimensions of a state's initial value: fixed, and within those of the state. */
static proa_status check_initial_dims(const sequence_state *s,
                                      const Inference__ModelSequenceBatching__InitialState *in, proa_err *err)
{
    if (in->n_dims != s->n_dims)
        return PROA_FAIL(
            err, INVALID,
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state "
            "input '%s'. %zu != %zu",
            s->input_name, in->n_dims, s->n_dims);
    for (size_t i = 0; i < in->n_dims; i++) {
        if (in->dims[i] == -1)
            return PROA_FAIL(err, INVALID,
                             "'initial_state' field for state input name '%s' contains variable dimensions.",
                             s->input_name);
        if (s->dims[i] != -1 && in->dims[i] != s->dims[i])
            return PROA_FAIL(
                err, INVALID,
                "'initial_state' dim for input name '%s' doesn't match 'state' dim description. %" PRId64
                " != %" PRId64,
                s->input_name, in->dims[i], s->dims[i]);
    }
    return PROA_OK;
}

static proa_status check_initial(const sequence_state *s,
                                 const Inference__ModelSequenceBatching__InitialState *in, proa_err *err)
{
    if (in->data_type != s->data_type)
        return PROA_FAIL(
            err, INVALID,
            "The data type used for 'initial_state' field of state '%s' does not match the state data type.",
            s->input_name);
    if (!in->name[0])
        return PROA_FAIL(err, INVALID, "Field 'name' must be set when using initial_state for state input '%s'.",
                         s->input_name);
    PROA_TRY(check_initial_dims(s, in, err));
    if (in->state_data_case == INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA__NOT_SET)
        return PROA_FAIL(err, INVALID, "initial_state setting expects state'%s' to have state_data set",
                         s->input_name);
    return PROA_OK;
}

static proa_status check_states(const Inference__ModelSequenceBatching *batcher, proa_err *err)
{
    enum { STATES_MAX = 1024 };
    if (batcher->n_state > STATES_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d states of a sequence batcher", STATES_MAX);
    for (size_t i = 0; i < batcher->n_state; i++) {
        const sequence_state *s = batcher->state[i];
        if (s->n_initial_state > 1)
            return PROA_FAIL(
                err, INVALID,
                "initial_state field for state input '%s' must contain exactly one or zero element. Found "
                "'%zu' elements.",
                s->input_name, s->n_initial_state);
        for (size_t j = 0; j < i; j++)
            if (strcmp(s->input_name, batcher->state[j]->input_name) == 0)
                return PROA_FAIL(err, INVALID, "State input name '%s' specified more than once.", s->input_name);
        if (s->n_initial_state) PROA_TRY(check_initial(s, s->initial_state[0], err));
    }
    return PROA_OK;
}

proa_status proa_config_check_sequence(const Inference__ModelConfig *c, proa_err *err)
{
    const Inference__ModelSequenceBatching *s = c->sequence_batching;
    PROA_TRY(check_controls(s, c->name, err));
    if (s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST)
        PROA_TRY(check_sizes(s->oldest->preferred_batch_size, s->oldest->n_preferred_batch_size,
                             "sequence batching preferred batch size", c, err));
    if (s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT &&
        !(s->direct->minimum_slot_utilization >= 0 && s->direct->minimum_slot_utilization <= 1))
        return PROA_FAIL(err, INVALID,
                         "sequence batching minimum slot utilization must be in range (0.0, 1.0] for %s",
                         c->name);
    return check_states(s, err);
}
