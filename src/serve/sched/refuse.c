/* SPDX-License-Identifier: Apache-2.0
 * refuse.c - requests that end without a reply of the backend: cancelled, refused, timed out. */
#include "serve/sched/sched.h"

#include <sched.h>

proa_status proa_infer_refuse_cancelled(proa_infer *r, proa_err *err)
{
    r->ticket.reason = PROA_FAIL_CANCELED + 1;
    return PROA_FAIL(err, CANCELLED, "Request cancelled");
}

void proa_scheduler_unwatch(proa_infer *r)
{
    if (proa_infer_watch(r, NULL)) return;
    while (!atomic_load(&r->ticket.cancel_handled)) sched_yield();
}

void proa_scheduler_fail(proa_infer *r, const proa_err *err, proa_fail_reason reason)
{
    r->ticket.reason = (uint8_t)(reason + 1);
    proa_infer_fail(r, err);
}

void proa_scheduler_cancelled(proa_infer *r)
{
    proa_err err = {0};
    PROA_FAIL(&err, CANCELLED, "Request cancelled");
    proa_scheduler_fail(r, &err, PROA_FAIL_CANCELED);
}
