/* SPDX-License-Identifier: Apache-2.0
 * request_pages.c - the pages that running requests hold, and how many may be promised to others. */
#include "engine/sched/request_pages.h"

#include "base/checked.h"
#include "engine/engine.h"
#include "engine/sched/prefix_cache.h"

int64_t proa_request_pages_held(const proa_engine *e, const proa_engine_request *req)
{
    int64_t pages = e->slots.cross[req->slot].count, tables = 0;
    for (int32_t i = 0; i < req->width; i++) {
        pages += req->seq[i].table->count;
        tables += req->seq[i].table->count > 0;
    }
    return pages - proa_max64(tables - 1, 0) * (req->prompt_count / PROA_PAGE_TOKENS);
}

/* The least that it can be holding: its sequences may share all pages. */
static int64_t pages_held_least(const proa_engine *e, const proa_engine_request *req)
{
    int64_t longest = 0;
    for (int32_t i = 0; i < req->width; i++) longest = proa_max64(longest, req->seq[i].table->count);
    return e->slots.cross[req->slot].count + longest;
}

/* Pages that may be promised beside those that are promised or held already. There are two lower bounds, and the better
 * one counts: what remains of all pages, and what remains of the free ones after those that are promised and may not be
 * taken yet. The second one knows that requests share pages of the prefix tree. */
int64_t proa_request_pages_available(const proa_engine *e)
{
    int64_t used = e->session_pages + e->handoff_pages, untaken = 0;
    for (const proa_engine_request *req = e->running.first; req; req = req->next) {
        used += proa_max64(req->promised, proa_request_pages_held(e, req));
        untaken += proa_max64(0, req->promised - pages_held_least(e, req));
    }
    return proa_max64(e->pages.count - used, proa_kv_pages_available(&e->pages) - untaken);
}

void proa_request_pages_take(proa_engine *e, proa_page_table *table, int64_t from, int64_t to)
{
    bool ok = proa_page_table_own(&e->pages, table, from) && proa_page_table_grow(&e->pages, table, to);
    PROA_ASSERT(ok);
}

/* All sequences that run start from the pages of the one that ran the prompt. The last page is copied by each that
 * writes to it. */
void proa_request_pages_fork(proa_engine *e, proa_engine_request *req)
{
    const proa_seq *leader = &req->seq[req->leader];
    for (int32_t i = 0; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        if (seq == leader || seq->finish != PROA_FINISH_NONE) continue;
        proa_page_table_share(&e->pages, seq->table, leader->table, req->prompt_count);
        proa_state_slots_share(&e->states, req->slot + i, req->slot + req->leader);
        seq->length = req->prompt_count;
        seq->cached = leader->cached;
        seq->draft_length = leader->draft_length;
        proa_eagle_proposer_fork(seq, leader);
    }
}

void proa_request_pages_release(proa_engine *e, proa_seq *seq)
{
    proa_prefix_cache_keep(e, seq);
    proa_page_table_release(&e->pages, seq->table);
    seq->cached = (proa_prefix_cursor){PROA_PREFIX_SELF, 0}; /* it may be computed anew */
    seq->shared_pages = seq->state_pages = 0;
}
