/* SPDX-License-Identifier: Apache-2.0
 * batch.c - the arrays of a pass: which tokens of which sequences are its rows, and what the model reads with them. */
#include "engine/sched/batch.h"

#include "base/checked.h"
#include "engine/engine.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/request_pages.h"

/* ---- rows and spans ---- */

void proa_batch_clear(proa_engine *e)
{
    e->step.rows = e->step.spans = e->step.prefixes = e->step.logits_count = e->step.inputs_embeds_count =
        e->step.pending_count = 0;
    e->step.any_sampled_at = e->step.any_types = e->step.any_lora = e->step.any_tree = e->step.encoded = false;
}

static int32_t table_at(const proa_engine *e, const proa_page_table *table)
{
    return (int32_t)(table->page - e->slots.memory);
}

void proa_batch_add_span(proa_engine *e, const proa_page_table *table, int64_t rows, int64_t context,
                         const proa_page_table *cross, int64_t cross_context)
{
    e->step.self_spans[e->step.spans] = (proa_span){
        (int32_t)e->step.rows, (int32_t)rows, (int32_t)context, table_at(e, table), 0, 0, 0};
    e->step.cross_spans[e->step.spans] = (proa_span){
        (int32_t)e->step.rows, (int32_t)rows, (int32_t)cross_context, table_at(e, cross), 0, 0, 0};
    e->step.spans++;
}

void proa_batch_add_row(proa_engine *e, int32_t id, int64_t position, int64_t length)
{
    e->step.ids[e->step.rows] = id;
    e->step.positions[e->step.rows] = (int32_t)position;
    e->step.block_positions[e->step.rows] = 0;
    e->step.lengths[e->step.rows] = (int32_t)length;
    e->step.sampled_at[e->step.rows] = -1;
    e->step.types[e->step.rows] = 0;
    e->step.rows++;
}

void proa_batch_add_virtual(proa_engine *e, const proa_prompt_table *table, int64_t index)
{
    const float *values = (table->device_values ? table->device_values : table->values) + index * table->width;
    int64_t count = e->step.inputs_embeds_count;
    proa_inputs_embeds *last = count ? &e->step.inputs_embeds[count - 1] : NULL;
    if (last && last->row + last->count == e->step.rows && last->values + last->count * table->width == values)
        last->count++;
    else
        e->step.inputs_embeds[e->step.inputs_embeds_count++] = (proa_inputs_embeds){
            .row = e->step.rows,
            .count = 1,
            .values = values,
            .on_device = table->device_values != NULL,
            .of_table = true};
}

proa_batch proa_batch_of_step(const proa_engine *e)
{
    proa_batch b = {.rows = e->step.rows, .ids = e->step.ids, .positions = e->step.positions};
    if (proa_model_wants_lengths(e->model)) b.lengths = e->step.lengths;
    if (e->model->config.prefix_end >= 0) b.block_positions = e->step.block_positions;
    b.prefixes = e->step.prefixes;
    if (e->step.any_types) b.types = e->step.types;
    if (proa_arch_decodes_input(e->model->arch)) b.decoder_ids = e->step.decoder_ids;
    if (e->step.any_lora) b.lora = e->step.lora;
    if (e->step.any_sampled_at) b.sampled_at = e->step.sampled_at;
    b.sampled_deferred = e->step.any_sampled_at && e->async.mode == PROA_SAMPLE_STAGES;
    if (b.sampled_deferred) b.sampled_ticket = e->async.step[0].ticket;
    b.overlaps = e->async.mode == PROA_SAMPLE_STAGES && e->async.count > 0;
    b.inputs_embeds = e->step.inputs_embeds;
    b.inputs_embeds_count = e->step.inputs_embeds_count;
    b.encoded = e->step.encoded;
    b.pending = e->step.pending;
    b.pending_count = e->step.pending_count;
    b.states_memory = e->states.memory;
    b.self = (proa_spans){.span = e->step.self_spans, .count = e->step.spans, .pages = e->slots.memory};
    if (e->step.any_tree) b.self.seen = e->step.seen;
    b.cross = (proa_spans){.span = e->step.cross_spans, .count = e->step.spans, .pages = e->slots.memory};
    return b;
}

/* ---- tokens of a sequence ---- */

/* Id of a known token; 0 if only the device knows it, which fills it in. */
static int32_t token_id(const proa_seq *seq, int64_t i)
{
    const proa_engine_request *req = seq->req;
    if (i < req->prompt_count) return req->prompt[i];
    if (req->search.candidates) return req->search.token[seq->index];
    return i - req->prompt_count < seq->count + seq->drafts ? seq->ids[i - req->prompt_count] : 0;
}

/* The position of token i of the sequence, or of the node that is run as it. */
static int64_t position_of(const proa_seq *seq, int64_t i)
{
    bool node = proa_seq_has_tree(seq) && i >= seq->known;
    return node ? seq->known - 1 + seq->tree->depth[i - seq->known] : i;
}

/* Which node of the tree is run as token i, from 1 on; 0: none. */
static int32_t node_of(const proa_seq *seq, int64_t i)
{
    return proa_seq_has_tree(seq) && i >= seq->known ? (int32_t)(i - seq->known) + 1 : 0;
}

/* The row of node j of the sequence's tree of draft tokens. */
static void add_node_row(proa_engine *e, const proa_seq *seq, int64_t j)
{
    const proa_engine_request *req = seq->req;
    int64_t position = position_of(seq, seq->known + j), longest = req->prompt_count + req->new_max;
    e->step.seen[e->step.rows] = seq->tree->seen[j];
    e->step.any_tree = true;
    proa_batch_add_row(e, seq->tree->id[j], position,
                       proa_rope_length(&e->model->config.rope, position, req->prompt_count, longest));
}

/* The row of token i of the sequence; with a tree, those after the known tokens are its nodes. */
static void add_token_row(proa_engine *e, const proa_seq *seq, int64_t i)
{
    const proa_engine_request *req = seq->req;
    int64_t row = e->step.rows, longest = req->prompt_count + req->new_max, vocab = e->model->config.vocab;
    bool on_device = i + 1 == seq->known && seq->sampled_at >= 0;
    if (proa_seq_has_tree(seq) && i >= seq->known) {
        add_node_row(e, seq, i - seq->known);
        return;
    }
    int32_t id = on_device ? 0 : token_id(seq, i);
    if (id >= vocab) proa_batch_add_virtual(e, req->virtuals, id - vocab);
    proa_batch_add_row(e, id < vocab ? id : 0, proa_prefix_position(&req->prefix, i),
                       proa_rope_length(&e->model->config.rope, i, req->prompt_count, longest));
    e->step.block_positions[row] = (int32_t)proa_prefix_block_position(&req->prefix, i);
    if (!on_device) return;
    e->step.sampled_at[row] = seq->sampled_at;
    e->step.any_sampled_at = true;
}

/* Whether the logits of the row of token i are needed: a token follows it, or its own output is emitted. */
static bool wants_logits(const proa_seq *seq, int64_t i)
{
    const proa_engine_request *req = seq->req;
    return i + 1 >= seq->known ||
           (i < req->prompt_count && i >= req->rows_done && proa_request_wants_all_rows(req));
}

void proa_batch_set_adapter(proa_engine *e, const proa_engine_request *req)
{
    e->step.lora[e->step.spans] = req->adapter ? req->adapter->slot : -1;
    e->step.any_lora = e->step.any_lora || e->step.lora[e->step.spans] >= 0;
}

/* The span of the sequence's next tokens. */
static void add_seq_rows(proa_engine *e, proa_seq *seq, int64_t rows)
{
    int64_t begin = seq->length, end = begin + rows;
    const proa_engine_request *req = seq->req;
    proa_request_pages_take(e, seq->table, begin, end);
    if (seq->drafts && e->states.numbers) proa_state_slots_mark(&e->states, req->slot + seq->index);
    seq->undo_length = begin;
    seq->rows_valid = seq->known + seq->drafts;
    e->step.span_seqs[e->step.spans] = seq;
    proa_batch_set_adapter(e, req);
    proa_batch_add_span(e, seq->table, rows, end, &e->slots.cross[req->slot], req->input.count);
    e->step.self_spans[e->step.spans - 1].state = proa_state_slots_of(&e->states, req->slot + seq->index);
    if (proa_seq_has_tree(seq)) e->step.self_spans[e->step.spans - 1].tree = seq->drafts;
    for (int64_t i = begin; i < end; i++) {
        if (wants_logits(seq, i))
            e->step.logits_requests[e->step.logits_count++] = (proa_logits_request){
                seq, (int32_t)e->step.rows, (int32_t)position_of(seq, i), node_of(seq, i)};
        add_token_row(e, seq, i);
    }
}

/* ---- a decoder's pass ---- */

/* Whether it runs its newest token, which every step does; otherwise it has a prompt to run, in chunks. Rows that were
 * undone go before the newest one if there is room for those of all sequences. */
static bool is_decoding(const proa_engine *e, const proa_seq *seq)
{
    bool last = seq->known - seq->length == 1 || (seq->undone && e->step.runs_undone);
    return seq->length >= seq->req->prompt_count && last;
}

/* Beams whose last step the host has not received: the device also reorders the page tables; not after the prompt,
 * when all beams go on from the same pages. */
static void add_pending_beams(proa_engine *e, const proa_engine_request *req)
{
    int32_t sampled_at = req->seq[0].sampled_at;
    if (!req->search.beam || sampled_at < 0 || req->search.depth == 0) return;
    e->step.pending[e->step.pending_count++] = (proa_pending_beams){(int32_t)e->step.spans, req->width,
                                                                    sampled_at};
}

static void add_decode_rows(proa_engine *e, proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        if (!proa_seq_has_rows(e, seq) || !is_decoding(e, seq)) continue;
        if (i == 0) add_pending_beams(e, req);
        e->step.undone_rows += seq->known - seq->length - 1;
        add_seq_rows(e, seq, seq->known - seq->length + seq->drafts);
    }
}

/* Whether the next tokens are the prompt's prefix, whose rows see each other both ways. */
static bool is_at_prefix(const proa_seq *seq)
{
    return seq->length < seq->req->prefix.rows;
}

static bool has_chunk(const proa_engine *e, const proa_seq *seq)
{
    return proa_seq_has_rows(e, seq) && !is_decoding(e, seq);
}

/* By falling priority, then by what is left to run: a short prompt does not wait for long ones. */
static bool comes_before(const proa_seq *x, const proa_seq *y)
{
    int64_t rest = (x->known - x->length) - (y->known - y->length);
    if (x->req->options.priority != y->req->options.priority)
        return x->req->options.priority > y->req->options.priority;
    if (rest) return rest < 0;
    return x->req->id != y->req->id ? x->req->id < y->req->id : x->index < y->index;
}

/* Tokens at the beginning whose keys and values are in a table are not run: they are written to the pages. */
static void write_virtual_tokens(proa_engine *e, proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    if (seq->length >= req->virtual_count || !req->virtuals->keys) return;
    proa_request_pages_take(e, seq->table, seq->length, req->virtual_count);
    proa_prompt_table_write(e->model, e->kv, req->virtuals, seq->length, req->virtual_count, seq->table->page);
    seq->length = req->virtual_count;
}

/* Shell's method: in place, because steps allocate nothing. */
static void sort_by_turn(proa_seq **seqs, int64_t count)
{
    for (int64_t gap = count / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (int64_t i = gap; i < count; i++) {
            proa_seq *seq = seqs[i];
            int64_t j = i;
            for (; j >= gap && comes_before(seq, seqs[j - gap]); j -= gap) seqs[j] = seqs[j - gap];
            seqs[j] = seq;
        }
}

/* Fills step.chunks, and counts the sequences that decode and those that do not. Returns the number of chunks. */
static int64_t collect_chunks(proa_engine *e, proa_prompt_load *load)
{
    int64_t count = 0;
    for (proa_engine_request *req = e->running.first; req; req = req->next)
        for (int32_t i = 0; i < req->width && req->phase == PROA_PHASE_DECODER; i++) {
            proa_seq *seq = &req->seq[i];
            if (seq->finish != PROA_FINISH_NONE) continue;
            bool decodes = seq->length >= req->prompt_count && seq->known - seq->length <= 1;
            load->decoding += decodes;
            load->in_prompt += !decodes;
            if (has_chunk(e, seq) && !is_at_prefix(seq)) e->step.chunks[count++] = seq;
        }
    sort_by_turn(e->step.chunks, count);
    return count;
}

/* Counts the work of the spans from the first one on, which are prompts'. */
static void count_prompt_work(proa_engine *e, int64_t first)
{
    proa_step_shape *shape = &e->step.shape;
    for (int64_t i = first; i < e->step.spans; i++) {
        const proa_span *span = &e->step.self_spans[i];
        shape->prompt_rows += span->rows;
        shape->prompt_pairs += (double)span->rows * ((double)span->context - (double)span->rows / 2);
    }
    shape->prompt_work = (double)shape->prompt_rows + e->pacing.pair_work * shape->prompt_pairs;
}

/* The oldest of the requests with a chunk has an eighth of the rows at least, so that short prompts cannot hold it up
 * for ever. */
static const proa_seq *find_oldest(const proa_engine *e, int64_t count)
{
    const proa_seq *oldest = NULL;
    for (int64_t i = 0; i < count; i++)
        if (!oldest || e->step.chunks[i]->req->id < oldest->req->id) oldest = e->step.chunks[i];
    return oldest;
}

static void add_chunks(proa_engine *e, int64_t count, int64_t rows)
{
    const proa_seq *oldest = find_oldest(e, count);
    int64_t end = e->step.rows + rows, kept = count > 1 ? rows / 8 : 0;
    for (int64_t i = 0; i < count; i++) {
        proa_seq *seq = e->step.chunks[i];
        if (seq == oldest) kept = 0;
        int64_t left = end - kept - e->step.rows;
        if (left <= 0) continue;
        if (!proa_prefix_cache_reuse(e, seq)) continue;
        write_virtual_tokens(e, seq);
        add_seq_rows(e, seq, proa_min64(proa_prefix_cache_chunk(e, seq), left));
    }
}

/* Chunks of prompts, in what the token budget leaves and as many rows as the decoding ones allow (prompt_budget.h). */
static void add_prompts(proa_engine *e)
{
    proa_prompt_load load = {.decode = e->step.shape};
    int64_t count = collect_chunks(e, &load), rows = e->sizes.step_tokens - e->step.rows;
    if (count == 0 || rows <= 0) return;
    load.row_pairs = (double)e->step.chunks[0]->length;
    load.row_work = 1 + e->pacing.pair_work * load.row_pairs;
    if (e->step.rows) rows = proa_prompt_budget_rows(&e->pacing.budget, &e->pacing.times, &load, rows);
    add_chunks(e, count, rows);
}

/* A prefix runs in one piece, so it may exceed the budget: beside a full step there is room for the longest one
 * (plan.rows_max). Such spans come last. */
static void add_prefix(proa_engine *e, proa_engine_request *req)
{
    proa_seq *seq = &req->seq[req->leader];
    if (!has_chunk(e, seq) || !is_at_prefix(seq)) return;
    if (e->step.rows + req->prefix.rows > e->model->plan.rows_max) return;
    add_seq_rows(e, seq, req->prefix.rows);
    e->step.prefixes++;
}

void proa_batch_build(proa_engine *e, int64_t decode_rows_max)
{
    int64_t budget = e->sizes.step_tokens;
    proa_batch_clear(e);
    e->step.undone_rows = 0;
    e->step.runs_undone = proa_speculate_runs_undone(e);
    for (proa_engine_request *req = e->running.first; req && e->step.rows < decode_rows_max; req = req->next)
        if (req->phase == PROA_PHASE_DECODER) add_decode_rows(e, req);
    const int64_t decoding = e->step.spans;
    e->step.shape = (proa_step_shape){.decode_rows = e->step.rows};
    for (int64_t i = 0; i < decoding; i++) e->step.shape.decode_tokens += e->step.self_spans[i].context;
    add_prompts(e);
    for (proa_engine_request *req = e->running.first; req && e->step.rows < budget; req = req->next)
        if (req->phase == PROA_PHASE_DECODER) add_prefix(e, req);
    count_prompt_work(e, decoding);
}

/* Called before logits are processed: reordering the page tables of beams needs the length after this step. */
void proa_batch_advance(proa_engine *e)
{
    for (int64_t s = 0; s < e->step.spans; s++) {
        proa_seq *seq = e->step.span_seqs[s];
        int64_t rows = e->step.self_spans[s].rows, prompt = seq->req->prompt_count;
        int64_t prompt_rows = proa_max64(0, proa_min64(prompt, seq->length + rows) - seq->length);
        e->now.rows += (uint64_t)rows;
        e->now.prompt_tokens += (uint64_t)prompt_rows;
        seq->length += rows;
        seq->undone = seq->undone && seq->length < seq->known;
        if (prompt_rows > 0) proa_prefix_cache_keep(e, seq);
        if (prompt_rows > 0) proa_prefix_cache_keep_state(e, seq, seq->length - rows);
        if (prompt_rows > 0 && seq->length >= prompt) proa_request_pages_fork(e, seq->req);
    }
}
