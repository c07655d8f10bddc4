/* SPDX-License-Identifier: Apache-2.0
 * form.h - inside the schedulers: the rule by which waiting requests become a batch, for dynamic batching and for the
 * oldest strategy of sequences. Whole requests join, in order; none is split or overtaken.
 *
 *     proa_form_begin(&f, &rule);
 *     for (each waiting request r, the oldest first) if (!proa_form_add(&f, r)) break;
 *     n = proa_form_ready(&f, now, hurry, &again);   // the first n of those added
 *
 * Threads: under the scheduler's lock; a rule is read only. */
#ifndef PROA_SERVE_SCHED_FORM_H
#define PROA_SERVE_SCHED_FORM_H

#include "serve/models/model.h"

typedef struct proa_form_rule {
    const int32_t *preferred; /* sizes worth executing at once; none: rows_max */
    int preferred_count;
    int64_t rows_max, preferred_max; /* at least 1 */
    int64_t delay_ns;                /* how long the oldest may wait for more requests (max_queue_delay) */
    int requests_max;
    const char **equal; /* inputs whose shape must be the same in a batch, but for the batch dimension */
    int equal_count;
    const char **optional; /* inputs that all requests of a batch have, or none */
    int optional_count;
} proa_form_rule;

typedef struct proa_form {
    const proa_form_rule *rule;
    const proa_infer *first;
    int count, best_count; /* requests added; and those up to the last preferred size */
    int64_t rows, oldest_ns;
    bool full; /* something waits that cannot join */
} proa_form;

/* Fills the rule for a model; its arrays come from model->arena. */
void proa_form_rule_init(proa_form_rule *rule, proa_served_model *model, const int32_t *preferred,
                         size_t preferred_count, uint64_t delay_us);
void proa_form_begin(proa_form *f, const proa_form_rule *rule);
bool proa_form_add(proa_form *f, const proa_infer *r); /* false: neither r nor any later request joins */
/* How many to execute now. 0: wait for more requests, at most until *again_ns. hurry: do not wait. */
int proa_form_ready(const proa_form *f, int64_t now_ns, bool hurry, int64_t *again_ns);
/* How many rows must wait before it is worth asking again earlier than *again_ns; 0: any new request may matter. */
int64_t proa_form_wanted(const proa_form *f);

static inline int64_t proa_infer_rows(const proa_infer *r)
{
    return r->batch > 0 ? r->batch : 1;
}

#endif
