/* SPDX-License-Identifier: Apache-2.0
 * proposer.c - what several proposers have in common: memory for trees, and pages for the drafter's own keys and
 * values. */
#include "engine/speculate/proposer.h"

#include "engine/engine.h"

void proa_proposer_prepare_tree(const proa_engine *e, proa_engine_request *req)
{
    PROA_UNUSED(e);
    for (int32_t i = 0; i < req->width && !req->logits; i++)
        req->seq[i].tree = PROA_ARENA_NEW(&req->arena, proa_draft_tree, 1);
}

bool proa_proposer_may_take_pages(const proa_engine *e, const proa_seq *seq)
{
    int64_t scarce = 2 * (int64_t)e->sizes.sequences_max;
    return seq->req->keeps_pages || proa_kv_pages_available(&e->pages) > scarce;
}

bool proa_proposer_take_pages(proa_engine *e, proa_seq *seq, int32_t size)
{
    int64_t end = seq->known + size - 1;
    if (!proa_proposer_may_take_pages(e, seq) && seq->table->count < proa_kv_pages_for(end)) return false;
    return proa_page_table_own_attached(&e->pages, seq->table, seq->draft_length, seq->length) &&
           proa_page_table_grow(&e->pages, seq->table, end);
}
