/* SPDX-License-Identifier: Apache-2.0
 * retire.c - requests give back what admission gave them, and end. */
#include "engine/sched/retire.h"

#include "base/wakeup.h"
#include "engine/engine.h"
#include "engine/sched/output.h"
#include "engine/sched/request_pages.h"

void proa_retire_release_request(proa_engine *e, proa_engine_request *req)
{
    proa_inflight_detach(e, req);
    for (int32_t i = 0; i < req->width; i++) {
        proa_request_pages_release(e, &req->seq[i]);
        req->seq[i].table = NULL;
        proa_page_table_release(&e->pages, &e->slots.cross[req->slot + i]);
        e->slots.used[req->slot + i] = false;
    }
    if (req->slot < e->slots.first_free) e->slots.first_free = req->slot;
    req->promised = 0;
    proa_adapters_release(req->adapter);
    if (req->samples_on_device) e->async.entries_reserved -= req->entries;
}

void proa_retire_finish(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error)
{
    if (req->phase != PROA_PHASE_QUEUED) proa_retire_release_request(e, req);
    proa_emit_done(e, req, finish, error);
}

void proa_retire_ended(proa_engine *e)
{
    proa_request_list kept;
    proa_request_list_init(&kept);
    proa_wakeups_begin();
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->running));) {
        if (req->ending == PROA_FINISH_NONE) proa_request_list_push(&kept, req);
        else proa_retire_finish(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
    }
    proa_wakeups_end();
    e->running = kept;
}
