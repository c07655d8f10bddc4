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
 *                proa_retire_ended: return pages and slots, emit DONE
 *
 * Under the policy max_utilization a running request can lose its pages and slots to another before a pass is built; it
 * then waits, and runs its tokens again. */
#include "engine/sched/scheduler.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/sched/encode.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/retire.h"

/* Rows that decode in a step. Where steps of other sequences are in flight, each has its part of all: those that it
 * leaves out fit into the steps that follow. On a CPU fewer rows take as long, since its stages share the memory from
 * which they read the weights. */
static int64_t decode_rows_most(const proa_engine *e)
{
    enum { HOST_ROWS_MIN = 8 };
    int64_t decoding = 0, least = e->device->host ? HOST_ROWS_MIN : 1;
    if (e->async.mode != PROA_SAMPLE_STAGES) return INT64_MAX;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        for (int32_t i = 0; i < req->width && req->phase == PROA_PHASE_DECODER; i++)
            decoding += req->seq[i].finish == PROA_FINISH_NONE && req->seq[i].length >= req->prompt_count;
    return proa_max64(least, proa_ceil_div(decoding, e->async.groups));
}

/* follows: whether the pass takes sequences whose tokens the oldest step in flight samples. False: it has no rows. */
static bool build_pass(proa_engine *e, bool follows)
{
    e->async.follows = follows;
    int64_t decode_rows_max = decode_rows_most(e);
    proa_admission_reserve(e);
    proa_batch_build(e, decode_rows_max);
    return e->step.rows > 0;
}

/* With as many steps in flight as there are groups, the oldest one ends next: its sequences go on on the device. So
 * they do if there is nothing else to run. */
static bool build_next_pass(proa_engine *e)
{
    const proa_async_steps *a = &e->async;
    bool can_follow = a->mode == PROA_SAMPLE_STAGES && a->most > a->groups && a->count > 0;
    bool follows = can_follow && a->count >= a->groups;
    return build_pass(e, follows) || (can_follow && !follows && build_pass(e, true));
}

/* Runs one pass over all decoding rows and, in what is left of the token budget, prompt chunks. Rows whose tokens
 * the device samples become an in-flight step; the others stay in step.logits_requests, to be fetched before the next
 * pass. False: there are no rows to run. */
static bool submit_decoder_pass(proa_engine *e)
{
    proa_speculate_propose(e);
    if (!build_next_pass(e)) return false;
    proa_batch batch = proa_batch_of_step(e);
    proa_model_decode(e->model, e->kv, &batch);
    e->now.steps++;
    proa_speculate_follow(e);
    proa_batch_advance(e);
    if (e->async.mode != PROA_SAMPLE_HOST) proa_async_step_submit(e);
    return true;
}

/* Each step ends before the next one begins. */
static void complete_step(proa_engine *e, int64_t begin)
{
    bool ends = e->device->host || e->async.count || e->step.logits_count; /* else it may still run on the device */
    int64_t rows = e->step.logits_count + e->step.undone_rows == e->step.rows ? e->step.rows : 0;
    if (e->async.count) proa_async_step_complete(e);
    proa_fetch_logits(e);
    proa_process_logits(e);
    if (rows) proa_speculate_step_time(e, rows, proa_max64(begin, e->speculation.proposed_ns));
    proa_pacing_pass_ended(e, ends ? &e->step.shape : NULL, begin);
    proa_retire_ended(e);
}

/* Steps of different sequences are in the stages of a pipeline at the same time: while stage 1 runs step n, stage 0
 * runs step n + 1.
 *
 *   stage 0   | A 1 | B 1 | A 2 | B 2 | A 3       A, B: sequences, of which each is in one step at a time
 *   stage 1         | A 1 | B 1 | A 2 | B 2
 *   host        submit B 1 ^     ^ receive the tokens of A 1, submit A 2
 *
 * Stages on devices get the tokens of A 1 by themselves, so A 2 is submitted after B 1, before the host has them. Rows
 * whose logits the host reads are fetched at once, which waits for all stages. */
static void stages_step(proa_engine *e)
{
    bool any = e->async.count > 0;
    for (int32_t i = e->async.count; i < e->async.most && !proa_jobs_wait(e); i++) {
        if (e->async.count && proa_speculate_waits(e)) break;
        if (!submit_decoder_pass(e)) break;
        proa_fetch_logits(e);
        proa_process_logits(e);
        any = true;
    }
    if (e->async.count) proa_async_step_complete(e);
    else if (!any) proa_prefix_cache_wait(e);
    proa_retire_ended(e);
}

/* One decoder pass and what follows it: the tokens of one step are emitted. In asynchronous mode the next step is
 * submitted before the host receives the tokens that the device samples, and before it processes the logits of
 * sequences that it samples itself:
 *
 *   device   | pass n        | pass n + 1            | pass n + 2
 *   host      submit n        submit n + 1, process   submit n + 2, ...
 *                             logits of n, receive
 *                             tokens of n, fetch
 *                             logits of n + 1
 *
 * Sequences that the device samples are in every step: their rows are known but for their ids. One that turns out to
 * have ended has a surplus row in the next step, on a page that it still held; its token is discarded. Sequences that
 * the host samples have no row in step n + 1 while it processes those of step n; they go on in step n + 2. If a row of
 * pass n + 1 is sampled with a mask, the sampling of that pass is submitted after the tokens of n were received. */
static void decoder_step(proa_engine *e)
{
    int64_t begin = proa_clock_ns();
    bool submitted = e->async.count || e->head.fetched.count; /* by the call before */
    if (!submitted && !submit_decoder_pass(e)) {
        proa_prefix_cache_wait(e);
        return;
    }
    if (e->async.mode != PROA_SAMPLE_ASYNC) {
        complete_step(e, begin);
        return;
    }
    if (!submitted) proa_fetch_logits(e);
    bool sampled = e->async.count > 0;
    bool ahead = (sampled || e->head.fetched.count) && !proa_jobs_wait(e) && !proa_speculate_waits(e) &&
                 submit_decoder_pass(e);
    proa_process_logits(e);
    if (sampled) proa_async_step_complete(e);
    if (e->async.waits) proa_async_step_submit(e);
    if (ahead) proa_fetch_logits(e);
    proa_retire_ended(e);
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
    e->now.pages_host = e->host_cache.count;
    if (e->host_cache.folder) e->now.pages_dir = proa_page_folder_pages(e->host_cache.folder);
    pthread_mutex_lock(&e->shared.lock);
    uint64_t submitted = e->shared.stats.submitted;
    e->shared.stats = e->now;
    e->shared.stats.submitted = submitted;
    e->shared.stats.waiting += e->shared.inbox.count + e->shared.held.count;
    pthread_mutex_unlock(&e->shared.lock);
}

bool proa_sched_step(proa_engine *e)
{
    const proa_engine *outer = proa_jobs_enter(e);
    bool any = proa_jobs_step(e), moves = proa_kv_handoff_step(e);
    any = proa_queue_update(e) || any;
    int64_t begin = proa_clock_ns();
    proa_prefix_cache_poll(e);
    if (proa_engine_has_encoder(e)) proa_encode_step(e);
    if (proa_engine_has_decoder(e)) {
        if (e->async.mode == PROA_SAMPLE_STAGES) stages_step(e);
        else decoder_step(e);
    }
    if (any) e->now.step_s += (double)(proa_clock_ns() - begin) * 1e-9;
    publish_stats(e);
    proa_jobs_enter(outer);
    return any || moves || e->writes_left;
}

proa_status proa_sched_run_job(proa_engine *e, void (*run)(void *arg), void *arg, proa_err *err)
{
    bool done;
    PROA_TRY(proa_jobs_hand_over(e, run, arg, &done, err));
    if (done) return PROA_OK;
    while (proa_inflight_any(e)) proa_sched_step(e);
    run(arg);
    return PROA_OK;
}
