/* SPDX-License-Identifier: Apache-2.0
 * scheduler.c - one step of the engine: the order of admission (queue.c), batch (batch.c), submit and complete.
 *
 * The life of a request, and what a step does with it:
 *
 *   proa_engine_submit --> inbox                            any thread, under shared.lock
 *   --------------------------|--------------------------------------------------------------
 *                take_inbox   v                             the stepping thread
 *                          waiting (QUEUED)
 *         admission, clients  |   by priority and in turns of clients, once `width` slots are free and
 *                             v   there are pages (policies: admission.c)
 *          +------------- running ---------------+
 *          | with an encoder                     | decoder only
 *          v                                     |
 *   ENCODE_WAITING                               |
 *          | encode.c: submit a pass             |
 *          v                                     |
 *   ENCODE_INFLIGHT                              |
 *          | encode.c: complete it               |
 *          |  (encoder-only requests end here)   |
 *          +----------------> DECODER <----------+
 *                             |       each sequence runs its tokens [length, known) (batch.c):
 *                             |       one if it decodes, else a chunk in what the token budget leaves
 *                             v                                 |
 *                             +<--------------------------------+
 *                             v                                 |
 *                submit the decoder pass                        |
 *                    |                   |                      |
 *          sampled on the device   sampled on the host          |
 *             (async_step.c)        (process_logits.c)          |
 *                    v                   |                      |
 *             in-flight step             |                      |
 *            (the next pass may          |                      |
 *             be submitted now)          |                      |
 *          complete  |                   |                      |
 *                    v                   v                      |
 *                 append the token, emit it (output.c) ---------+
 *                             | end token, stop rule, length limit, error, cancel
 *                             v
 *                proa_sched_retire: return pages and slots, emit DONE
 *
 * Under the policy max_utilization a running request can lose its pages and slots to another before a pass is built; it
 * then waits, and runs its tokens again. */
#include "engine/sched/request.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"

static bool has_decoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_ENCODER;
}

static void fail_request(proa_engine_request *req, const proa_err *why)
{
    if (req->ending == PROA_FINISH_ERROR) return;
    req->ending = PROA_FINISH_ERROR;
    req->error = *why;
}

void proa_sched_check_device(proa_engine *e, proa_engine_request *req)
{
    proa_err why = {.status = PROA_OK};
    if (e->device->failed(e->device, &why) == PROA_OK) return;
    proa_prefix_cache_distrust(e);
    for (proa_engine_request *other = e->running.first; other; other = other->next) fail_request(other, &why);
    if (req) fail_request(req, &why);
}

void proa_sched_retire(proa_engine *e)
{
    proa_request_list kept;
    proa_request_list_init(&kept);
    proa_wakeups_begin();
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->running));) {
        if (req->ending == PROA_FINISH_NONE) proa_request_list_push(&kept, req);
        else
            proa_admission_finish(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
    }
    proa_wakeups_end();
    e->running = kept;
}

/* Runs one pass over all decoding rows and, in what is left of the token budget, prompt chunks. Rows whose tokens
 * the device samples become an in-flight step; the others stay in step.logits_requests. False: there are no rows
 * to run. */
static bool submit_decoder_pass(proa_engine *e)
{
    proa_speculate_propose(e);
    proa_batch_build(e);
    if (!e->step.rows) return false;
    proa_batch batch = proa_batch_of_step(e);
    proa_model_decode(e->model, e->kv, &batch);
    e->now.steps++;
    proa_batch_advance(e);
    if (e->async.mode != PROA_SAMPLE_HOST) proa_async_step_submit(e);
    return true;
}

/* The step has rows that the host must sample, or none to sample at all: it ends before the next one begins. */
static void finish_on_host(proa_engine *e, int64_t begin)
{
    if (e->async.count) proa_async_step_complete(e);
    proa_process_logits(e);
    if (e->step.logits_count == e->step.rows) proa_speculate_step_time(e, e->step.rows, begin);
    proa_sched_retire(e);
}

/* The tokens of one step are emitted. If the device samples them all, the next step is submitted before the host
 * receives them: its rows are known but for their ids. A sequence that turns out to have ended has a surplus row
 * in that step, on a page that it still held; its token is discarded. */
static void decoder_step(proa_engine *e)
{
    if (!e->async.count) {
        int64_t begin = proa_clock_ns();
        if (!submit_decoder_pass(e)) return;
        if (!e->async.count || e->step.logits_count) {
            finish_on_host(e, begin);
            return;
        }
    }
    if (e->async.count == 1 && e->async.mode == PROA_SAMPLE_ASYNC && proa_async_step_allowed(e))
        submit_decoder_pass(e);
    proa_async_step_complete(e);
    proa_sched_retire(e);
}

static void publish_stats(proa_engine *e)
{
    e->now.running = e->running.count;
    e->now.waiting = e->waiting.count;
    e->now.pages_used = e->pages.used - e->pages.idle;
    e->now.pages_free = proa_kv_pages_available(&e->pages);
    e->now.pages_cached = e->prefixes.nodes;
    e->now.pages_evicted = (uint64_t)e->prefixes.evicted;
    e->now.pages_used_peak = e->pages.used_peak;
    pthread_mutex_lock(&e->shared.lock);
    uint64_t submitted = e->shared.stats.submitted;
    e->shared.stats = e->now;
    e->shared.stats.submitted = submitted;
    e->shared.stats.waiting += e->shared.inbox.count;
    pthread_mutex_unlock(&e->shared.lock);
}

bool proa_sched_step(proa_engine *e)
{
    bool any = proa_queue_update(e);
    int64_t begin = proa_clock_ns();
    if (proa_encode_has_encoder(e)) proa_encode_step(e);
    if (has_decoder(e)) decoder_step(e);
    if (any) e->now.step_s += (double)(proa_clock_ns() - begin) * 1e-9;
    publish_stats(e);
    return any;
}
