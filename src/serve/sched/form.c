/* SPDX-License-Identifier: Apache-2.0
 * form.c - the rule by which waiting requests form a batch. */
#include "serve/sched/form.h"

#include "base/limits.h"
#include <string.h>

static bool shape_varies(const proa_io *io, bool batched)
{
    for (int32_t i = batched; i < io->rank; i++)
        if (io->shape[i] == -1) return true;
    return false;
}

void proa_form_rule_init(proa_form_rule *rule, proa_served_model *model, const int32_t *preferred,
                         size_t preferred_count, uint64_t delay_us)
{
    bool batched = model->batch_max > 0;
    *rule = (proa_form_rule){.preferred = preferred,
                             .preferred_count = (int)preferred_count,
                             .rows_max = batched ? model->batch_max : 1};
    rule->delay_ns = delay_us < INT64_MAX / 4000 ? (int64_t)delay_us * 1000 : INT64_MAX / 4;
    rule->preferred_max = preferred_count ? 0 : rule->rows_max;
    for (int i = 0; i < rule->preferred_count; i++)
        if (preferred[i] > rule->preferred_max) rule->preferred_max = preferred[i];
    rule->requests_max = rule->rows_max < PROA_BATCH_REQUESTS_MAX ? (int)rule->rows_max : PROA_BATCH_REQUESTS_MAX;
    rule->equal = PROA_ARENA_NEW(&model->arena, const char *, model->inputs_count);
    rule->optional = PROA_ARENA_NEW(&model->arena, const char *, model->inputs_count);
    for (int i = 0; i < model->inputs_count; i++) {
        const proa_io *io = &model->inputs[i];
        if (io->optional) rule->optional[rule->optional_count++] = io->name;
        if (!io->ragged && shape_varies(io, batched)) rule->equal[rule->equal_count++] = io->name;
    }
}

void proa_form_begin(proa_form *f, const proa_form_rule *rule)
{
    *f = (proa_form){.rule = rule};
}

static bool same_set(const proa_form_rule *rule, const proa_infer *a, const proa_infer *b)
{
    for (int i = 0; i < rule->optional_count; i++)
        if (!proa_infer_input(a, rule->optional[i]) != !proa_infer_input(b, rule->optional[i])) return false;
    return true;
}

static bool same_shape(const proa_tensor *a, const proa_tensor *b)
{
    if (!a || !b) return a == b;
    return a->rank == b->rank &&
           (a->rank < 2 || memcmp(a->shape + 1, b->shape + 1, (size_t)(a->rank - 1) * sizeof a->shape[0]) == 0);
}

static bool request_fits(const proa_form *f, const proa_infer *r)
{
    const proa_form_rule *rule = f->rule;
    if (f->count == 0) return true;
    if (f->rows + proa_infer_rows(r) > rule->rows_max || f->count == rule->requests_max) return false;
    if (!same_set(rule, f->first, r)) return false;
    for (int i = 0; i < rule->equal_count; i++)
        if (!same_shape(proa_infer_input(f->first, rule->equal[i]), proa_infer_input(r, rule->equal[i])))
            return false;
    return true;
}

static bool is_preferred(const proa_form_rule *rule, int64_t rows)
{
    for (int i = 0; i < rule->preferred_count; i++)
        if (rule->preferred[i] == rows) return true;
    return rule->preferred_count == 0 && rows == rule->rows_max;
}

bool proa_form_add(proa_form *f, const proa_infer *r)
{
    int64_t rows = proa_infer_rows(r);
    if (!request_fits(f, r)) {
        f->full = true;
        return false;
    }
    /* Above all preferred sizes without having met one: waiting longer cannot improve the batch. */
    if (f->count && f->rows + rows > f->rule->preferred_max && !f->best_count) f->best_count = f->count;
    if (f->count == 0) {
        f->first = r;
        f->oldest_ns = r->times.queued;
    }
    if (r->times.queued < f->oldest_ns) f->oldest_ns = r->times.queued;
    f->count++;
    f->rows += rows;
    if (is_preferred(f->rule, f->rows)) f->best_count = f->count;
    return true;
}

int proa_form_ready(const proa_form *f, int64_t now_ns, bool hurry, int64_t *again_ns)
{
    int64_t delay_ns = hurry ? 0 : f->rule->delay_ns;
    bool waited = delay_ns > 0 && now_ns - f->oldest_ns >= delay_ns;
    if (f->count == 0) return 0;
    if (f->best_count && !waited) return f->best_count;
    if (f->full || waited || delay_ns == 0 || f->rows >= f->rule->preferred_max) return f->count;
    *again_ns = f->oldest_ns + delay_ns;
    return 0;
}

int64_t proa_form_wanted(const proa_form *f)
{
    const proa_form_rule *rule = f->rule;
    int64_t wanted = rule->rows_max;
    if (rule->equal_count || rule->optional_count)
        return 0; /* a newcomer that does not fit sends the others off */
    for (int i = 0; i < rule->preferred_count; i++)
        if (rule->preferred[i] > f->rows && rule->preferred[i] < wanted) wanted = rule->preferred[i];
    return wanted;
}
