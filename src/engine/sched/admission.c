/* SPDX-License-Identifier: Apache-2.0
 * admission.c - which requests run: their slots and pages, and who gives pages up when there are too few.
 *
 * Two policies (proa_engine_options.policy):
 *
 *   guaranteed_no_evict  a request is admitted when all pages that it can ever need (`reserved`) can be promised to it
 *   max_utilization      a request is admitted when there are pages for the tokens that it has, and a few more
 *                        (the watermark). When a running request needs a page and there is none, another is preempted:
 *                        of those with the lowest priority the one that was submitted last. It loses its pages and
 *                        slots, waits before all others of its priority, and runs its prompt and what it has generated
 *                        again, or gets its pages back from memory of the host: what was measured to take less time.
 *                        What it emitted stays; on the CPU it goes on with the same bits.
 *
 * Under max_utilization some requests keep the guarantee: beam and contrastive searches, whose pages follow a tree
 * that cannot be rebuilt from tokens alone, and requests that generate nothing, whose need is known. */
#include "engine/sched/admission.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include "engine/sched/output.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/request_pages.h"
#include "engine/sched/retire.h"

/* ---- admission ---- */

/* The first of `width` neighbouring free slots, or -1. */
static int32_t find_slots(const proa_engine *e, int32_t width)
{
    int32_t run = 0;
    for (int32_t i = e->slots.first_free; i < e->sizes.sequences_max; i++) {
        run = e->slots.used[i] ? 0 : run + 1;
        if (run == width) return i - width + 1;
    }
    return -1;
}

/* Tokens that the sequence has, and the next one. */
static int64_t tokens_of(const proa_seq *seq)
{
    return proa_min64(seq->known + 1, seq->req->prompt_count + seq->req->new_max);
}

/* Pages for the tokens that the request has, all that it can come to need if it keeps the guarantee. */
static int64_t pages_to_start(const proa_engine_request *req)
{
    int64_t shared = req->prompt_count / PROA_PAGE_TOKENS, pages = 0;
    if (req->keeps_pages) return req->reserved;
    for (int32_t i = 0; i < req->width; i++)
        if (req->seq[i].finish == PROA_FINISH_NONE)
            pages += proa_kv_pages_for(tokens_of(&req->seq[i])) - shared;
    return proa_kv_pages_for(req->input.count) + shared + pages;
}

/* Pages that stay free at admission, so that requests that can be preempted find some for their next tokens: 1 % of
 * all, and one for every second of their sequences. With a quarter of a page for each, 110 of 256 requests that want
 * more than there is are preempted, with a half 80, with a whole one 39; the throughput of a CPU is the same (within
 * 5 %), and more free pages make batches smaller. */
static int64_t pages_kept_free(const proa_engine *e)
{
    int64_t sequences = 0;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        if (!req->keeps_pages) sequences += req->running;
    return sequences ? e->pages.count / 100 + sequences / 2 : 0;
}

/* The request gets its slots, and its sequences their page tables, which are empty. */
static void start_request(proa_engine *e, proa_engine_request *req, int32_t slot)
{
    req->slot = slot;
    req->leader = -1;
    req->promised = pages_to_start(req);
    for (int32_t i = 0; i < req->width; i++) {
        e->slots.used[slot + i] = true;
        req->seq[i].table = &e->slots.self[slot + i];
        req->seq[i].cached = (proa_prefix_cursor){PROA_PREFIX_SELF, 0};
        req->seq[i].shared_pages = req->seq[i].state_pages = 0;
        if (req->leader < 0 && req->seq[i].finish == PROA_FINISH_NONE) req->leader = i;
    }
    if (slot == e->slots.first_free) e->slots.first_free = slot + req->width;
    proa_async_step_reserve(e, req);
    req->phase = proa_engine_has_encoder(e) ? PROA_PHASE_ENCODE_WAITING : PROA_PHASE_DECODER;
}

static bool try_admit(proa_engine *e, proa_engine_request *req)
{
    int32_t slot = find_slots(e, req->width);
    if (slot < 0 || pages_to_start(req) + pages_kept_free(e) > proa_request_pages_available(e)) return false;
    if (!proa_adapters_admit(req->adapter)) return false;
    start_request(e, req, slot);
    return true;
}

/* ---- preemption ---- */

/* The running request that gives way first; NULL: all keep their pages. */
static proa_engine_request *find_victim(const proa_engine *e)
{
    proa_engine_request *victim = NULL;
    for (proa_engine_request *req = e->running.first; req; req = req->next) {
        if (req->keeps_pages || req->ending != PROA_FINISH_NONE) continue;
        int32_t priority = req->options.priority, lowest = victim ? victim->options.priority : 0;
        if (!victim || priority < lowest || (priority == lowest && req->id > victim->id)) victim = req;
    }
    return victim;
}

/* What running the request's tokens again takes, as far as passes with prompts were measured; 0: they were not. */
static double recompute_ns(const proa_engine *e, const proa_engine_request *req)
{
    const proa_prompt_pacing *p = &e->pacing;
    proa_step_shape shape = {.prompt_rows = 0};
    if (!proa_step_time_is_known(&p->times)) return 0;
    for (int32_t i = 0; i < req->width; i++) {
        if (req->seq[i].finish != PROA_FINISH_NONE) continue;
        int64_t shared = i == req->leader ? 0 : req->prompt_count, rows = req->seq[i].known - shared;
        shape.prompt_rows += rows;
        shape.prompt_pairs += (double)rows * ((double)shared + (double)rows / 2);
    }
    shape.prompt_work = (double)shape.prompt_rows + p->pair_work * shape.prompt_pairs;
    return proa_step_time_of(&p->times, &shape);
}

/* Whether the pages of a request that is preempted are worth a copy to memory of the host and back. */
static bool worth_moving(const proa_engine *e, const proa_engine_request *req)
{
    double recompute = recompute_ns(e, req);
    if (!e->host_cache.capacity || !req->space || e->prefix_broken) return false;
    return recompute == 0 || 2 * e->host_cache.copy_ns * (double)proa_request_pages_held(e, req) < recompute;
}

/* Decides what becomes of the pages of a request, before it loses them. */
static void choose_resumption(proa_engine *e, proa_engine_request *req)
{
    req->moves = worth_moving(e, req);
    if (req->moves) e->now.preemptions_moved++;
    else e->now.preemptions_recomputed++;
    for (int32_t i = 0; i < req->width && req->space && !req->moves; i++) {
        proa_prefix_cache_keep(e, &req->seq[i]);
        proa_prefix_tree_leave(&e->prefixes, req->seq[i].cached);
    }
}

static bool is_same(void *arg, proa_engine_request *req)
{
    return req == arg;
}

/* Its tokens of steps in flight are dropped with its pages, and sampled again. */
static void preempt_request(proa_engine *e, proa_engine_request *req)
{
    proa_request_list one;
    proa_request_list_init(&one);
    proa_request_list_split(&e->running, &one, is_same, req);
    choose_resumption(e, req);
    proa_retire_release_request(e, req);
    for (int32_t i = 0; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        seq->length = seq->draft_length = 0;
        proa_eagle_proposer_fork(seq, NULL);
        seq->known = req->prompt_count + seq->count;
        seq->sampled_at = -1;
        seq->drafts = 0;
        seq->verifying = false;
    }
    req->phase = PROA_PHASE_QUEUED;
    req->preempted = true;
    proa_waiting_return(&e->waiting, req);
    e->now.preemptions++;
}

/* Pages and slots are too few for a waiting request: one of lower priority gives way. */
static bool make_way(proa_engine *e, const proa_engine_request *req)
{
    proa_engine_request *victim = find_victim(e);
    if (!victim || victim->options.priority >= req->options.priority) return false;
    preempt_request(e, victim);
    return true;
}

/* The order is strict, so that small requests cannot overtake a large one for ever. */
void proa_admission_step(proa_engine *e)
{
    for (proa_engine_request *req; (req = proa_waiting_first(&e->waiting));) {
        if (!try_admit(e, req)) {
            if (make_way(e, req)) continue;
            return;
        }
        proa_waiting_pop(&e->waiting);
        proa_request_list_push(&e->running, req);
        if (req->usage.admitted_ns) continue; /* it goes on after a preemption */
        req->usage.admitted_ns = proa_clock_ns();
        proa_request_rows_begin(e, req);
        proa_emit_begin(req);
    }
}

/* Pages that the request needs for the known tokens of all its sequences, and for their draft tokens. */
static int64_t pages_needed_now(const proa_engine *e, const proa_engine_request *req)
{
    int64_t pages = proa_request_pages_held(e, req);
    for (int32_t i = 0; i < req->width; i++)
        if (proa_seq_has_rows(e, &req->seq[i]))
            pages += proa_max64(0, proa_kv_pages_for(req->seq[i].known + req->seq[i].drafts) -
                                       req->seq[i].table->count);
    return pages;
}

/* Promises the request pages for its known tokens. Others are preempted until there are enough, and the request itself
 * if no other gives way before it. */
static void reserve_pages(proa_engine *e, proa_engine_request *req)
{
    int64_t needed = pages_needed_now(e, req);
    while (needed - proa_max64(req->promised, proa_request_pages_held(e, req)) > proa_request_pages_available(e)) {
        proa_engine_request *victim = find_victim(e);
        preempt_request(e, victim);
        if (victim == req) return;
    }
    req->promised = needed;
}

void proa_admission_reserve(proa_engine *e)
{
    for (proa_engine_request *req = e->running.first; req;) {
        uint64_t before = e->now.preemptions;
        if (req->phase == PROA_PHASE_DECODER && !req->keeps_pages && pages_needed_now(e, req) > req->promised)
            reserve_pages(e, req);
        /* preemption changes the list: those that have their pages pass quickly */
        req = e->now.preemptions == before ? req->next : e->running.first;
    }
}
