/* SPDX-License-Identifier: Apache-2.0
 * families.h - metric families and metrics that models create, shared by all instances of a version and printed into
 *              /metrics.
 * Owner:   the backend's version. Threads: any; a lock inside. */
#ifndef PROA_BACKENDS_PROCESS_FAMILIES_H
#define PROA_BACKENDS_PROCESS_FAMILIES_H

#include "base/json.h"
#include "base/str.h"
#include <stdint.h>

typedef struct proa_families proa_families;

proa_families *proa_families_new(void);
void proa_families_free(proa_families *f);
/* Handles a call on metrics: "family", "metric" and "metric_do" write the members of a JSON object to *answer, the two
 * other kinds write nothing. */
PROA_MUST_CHECK proa_status proa_families_call(proa_families *f, const char *kind, const proa_json *head,
                                               proa_buf *answer, proa_err *err);
/* "metric_do" without JSON. op: "increment", "set", "observe" or "value". *now: the value, of a histogram the sum. */
PROA_MUST_CHECK proa_status proa_families_update(proa_families *f, int64_t metric, const char *op,
                                                 double value, double *now, proa_err *err);
void proa_families_print(proa_families *f, proa_buf *out);

#endif
