/* SPDX-License-Identifier: Apache-2.0
 * prefix_cache.c - reuse of keys and values between requests: which pages a sequence finds in the prefix tree
 * (kv/prefix_tree.h), and which it gives to it.
 *
 * A sequence looks for cached pages before each chunk of its prompt, so that it also finds what a request beside it
 * has computed meanwhile. Its last token is always run, since its logits are needed. It gives its full pages to the
 * tree after each chunk and at its end, those of generated tokens too.
 *
 * A sequence with a recurrent state goes on from a state that is kept behind a page (kv/state_cache.h), so its chunks
 * end where one is to be kept.
 *
 * Not reused: rows whose own output is wanted (log-probabilities or rows of the prompt, contrastive search), prompts
 * whose tokens see each other both ways, input embeddings, and sequences whose rotary frequencies depend on their
 * length. What decides about keys and values besides the tokens is in the request's namespace. */
#include "engine/sched/prefix_cache.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "engine/access.h"
#include "engine/engine.h"
#include "engine/sched/device_failure.h"
#include <string.h>

/* ---- what a request may share ---- */

/* Rotary frequencies that depend on the length of a sequence: of LongRoPE there are two sets; of dynamic NTK a set for
 * each length, so beyond the trained context nothing is shared. */
static bool is_length_shared(const proa_engine *e, const proa_engine_request *req, uint8_t *longer)
{
    const proa_rope_params *rope = &e->model->config.rope;
    *longer = 0;
    if (!proa_model_wants_lengths(e->model)) return true;
    *longer = req->prompt_count + req->new_max > rope->original;
    return rope->kind == PROA_ROPE_LONG || !*longer;
}

static bool is_on(const proa_engine *e)
{
    return e->prefixes.pages != NULL;
}

/* What decides about keys and values besides the tokens: longer: see is_length_shared; ids of the adapter and of the
 * request's own table, or 0; the salt, or NULL; an encoder's input. */
typedef struct space_parts {
    uint8_t longer;
    uint64_t adapters[2];
    const char *salt;
    const int32_t *input;
    int64_t input_count;
} space_parts;

static proa_kv_namespace *make_space(const space_parts *p)
{
    size_t salt = p->salt ? strlen(p->salt) : 0, input = (size_t)p->input_count * sizeof *p->input;
    unsigned char *bytes = proa_malloc(sizeof p->longer + sizeof p->adapters + salt + 1 + input);
    size_t len = 0;
    bytes[len++] = p->longer;
    memcpy(bytes + len, p->adapters, sizeof p->adapters);
    len += sizeof p->adapters;
    if (salt) memcpy(bytes + len, p->salt, salt);
    len += salt;
    bytes[len++] = '\0'; /* ends the salt: an input cannot pass for a part of it */
    if (input) memcpy(bytes + len, p->input, input);
    bool keeps = !p->adapters[0] && !p->adapters[1]; /* their ids are this process's */
    proa_kv_namespace *space = proa_kv_namespace_new(bytes, len + input, keeps);
    free(bytes);
    return space;
}

void proa_prefix_cache_prepare(const proa_engine *e, proa_engine_request *req, const proa_request *r)
{
    space_parts p = {.adapters = {req->adapter ? req->adapter->id : 0, req->table ? req->table->id : 0},
                     .salt = r->cache_salt,
                     .input = req->input.ids,
                     .input_count = req->input.count};
    bool both_ways = req->prefix.used || req->input.embedded || req->input.types;
    bool unknown = req->table_memory.kind == PROA_MEMORY_CUDA; /* numbers that the host cannot compare */
    if (!is_on(e) || both_ways || unknown || !is_length_shared(e, req, &p.longer)) return;
    req->space = make_space(&p);
}

/* Requests whose prompt the engine puts together itself (texts, sessions, prompt tables) are not looked up, nor those
 * of models whose frequencies depend on the length. */
proa_kv_namespace *proa_prefix_cache_space(proa_engine *e, const proa_request *r)
{
    proa_adapter *adapter = NULL;
    bool decoder = e->model->arch->kind == PROA_KIND_DECODER;
    if (!is_on(e) || !decoder || !r->ids || r->ids_count < 1 || r->session_id || r->prompt_table) return NULL;
    if (proa_model_wants_lengths(e->model)) return NULL;
    if (proa_adapters_ref(&e->adapters, r->options.adapter, &adapter, NULL) != PROA_OK) return NULL;
    const space_parts parts = {.adapters = {adapter ? adapter->id : 0}, .salt = r->cache_salt};
    proa_kv_namespace *space = adapter && adapter->table ? NULL : make_space(&parts);
    proa_adapters_unref(adapter);
    return space;
}

int64_t proa_engine_cached_tokens(proa_engine *e, const proa_request *r)
{
    proa_kv_namespace *space = proa_prefix_cache_space(e, r);
    if (!space) return 0;
    const proa_prefix_key prompt = {space, r->ids, r->ids_count - 1};
    int64_t found = proa_prefix_tree_peek(&e->prefixes, &prompt);
    proa_kv_namespace_release(space);
    return found;
}

/* ---- a decoder's tokens ---- */

/* Tokens of the sequence whose ids the host knows: those of beams and candidates are the prompt's only. */
static int64_t known_ids(const proa_seq *seq)
{
    return seq->req->prompt_count + (seq->req->search.candidates ? 0 : seq->count);
}

/* ids [PROA_PAGE_TOKENS] of page number `page`, all of which are known. */
static void copy_page_ids(const proa_seq *seq, int64_t page, int32_t *ids)
{
    const proa_engine_request *req = seq->req;
    int64_t first = page * PROA_PAGE_TOKENS;
    int64_t prompt = proa_max64(0, proa_min64(req->prompt_count - first, PROA_PAGE_TOKENS));
    if (prompt) memcpy(ids, req->prompt + first, (size_t)prompt * sizeof *ids);
    if (prompt == PROA_PAGE_TOKENS) return;
    memcpy(ids + prompt, seq->ids + (first + prompt - req->prompt_count),
           (size_t)(PROA_PAGE_TOKENS - prompt) * sizeof *ids);
}

/* Whether rows of the prompt that are still to be run have outputs of their own. */
static bool wants_own_rows(const proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    return proa_request_wants_all_rows(req) && req->rows_done < req->prompt_count;
}

/* Tokens that came back from the lower levels. */
typedef struct restored_tokens {
    int64_t host, folder;
} restored_tokens;

/* Tokens of an adapter's table do not count: no client sent them. */
static void count_reuse(proa_engine *e, proa_engine_request *req, int64_t begin, int64_t tokens,
                        restored_tokens from)
{
    if (req->preempted) {
        e->now.resumed_tokens += (uint64_t)tokens;
        e->now.resumed_tokens_host += (uint64_t)(from.host + from.folder);
    }
    if (req->usage.new_tokens > 0) return; /* a sequence that is computed anew reuses its own pages */
    tokens = proa_max64(0, tokens - proa_max64(0, req->virtual_count - begin));
    req->usage.cached_tokens += tokens;
    e->now.prefix_hits += (uint64_t)tokens;
    e->now.prefix_hits_host += (uint64_t)proa_min64(from.host, tokens);
    e->now.prefix_hits_dir += (uint64_t)proa_min64(from.folder, tokens);
}

/* Whether the request still waits for the folder. A folder that was slow for it is not read again. */
static bool may_wait(proa_engine *e, proa_engine_request *req)
{
    int64_t now = proa_clock_ns();
    if (!req->read_until_ns) req->read_until_ns = now + (int64_t)PROA_PREFIX_READ_MS * 1000000;
    if (now >= req->read_until_ns) return false;
    e->reads_waited = true;
    return true;
}

/* The pages after the one that a sequence waits for are read meanwhile, up to page number `most`. */
static void fetch_rest(proa_engine *e, proa_seq *seq, int64_t most)
{
    int32_t ids[PROA_PREFIX_IMAGES_MIN][PROA_PAGE_TOKENS];
    int64_t first = seq->cached.pages, count = proa_min64(most - first, PROA_PREFIX_IMAGES_MIN);
    for (int64_t i = 0; i < count; i++) copy_page_ids(seq, first + i, ids[i]);
    const proa_prefix_key rest = {seq->req->space, ids[0], count * PROA_PAGE_TOKENS};
    proa_prefix_tree_fetch(&e->prefixes, &seq->cached, &rest);
}

/* Takes pages up to number `most`; false: the next one is being read. */
static bool take_pages(proa_engine *e, proa_seq *seq, int64_t most, restored_tokens *from)
{
    int32_t ids[PROA_PAGE_TOKENS];
    const proa_prefix_key page = {seq->req->space, ids, PROA_PAGE_TOKENS};
    proa_prefix_level level = PROA_PREFIX_DEVICE;
    bool lower = !seq->req->preempted || seq->req->moves;
    while (seq->cached.pages < most) {
        copy_page_ids(seq, seq->cached.pages, ids);
        level = proa_prefix_tree_take(&e->prefixes, &seq->cached, &page, lower, seq->table);
        if (level == PROA_PREFIX_NOWHERE || level == PROA_PREFIX_READING) break;
        if (level == PROA_PREFIX_HOST) from->host += PROA_PAGE_TOKENS;
        if (level == PROA_PREFIX_FOLDER) from->folder += PROA_PAGE_TOKENS;
    }
    if (level != PROA_PREFIX_READING || !may_wait(e, seq->req)) return true;
    fetch_rest(e, seq, most);
    return false;
}

/* The last page up to number `most` behind which a recurrent state is kept: a sequence goes on from there alone. Beyond
 * it others may have begun with the same pages. */
static int64_t pages_with_state(const proa_engine *e, proa_seq *seq, int64_t most)
{
    int32_t ids[PROA_PAGE_TOKENS];
    const proa_prefix_key key = {seq->req->space, ids, PROA_PAGE_TOKENS};
    proa_prefix_cursor at = seq->cached;
    int64_t last = at.pages;
    while (at.pages < most) {
        copy_page_ids(seq, at.pages, ids);
        int32_t page = proa_prefix_tree_next(&e->prefixes, &at, &key);
        if (page < 0) break;
        if (proa_state_cache_has(&e->kept_states, page)) last = at.pages;
    }
    seq->shared_pages = at.pages;
    return last;
}

static void load_state(proa_engine *e, proa_seq *seq)
{
    PROA_ASSERT(seq->cached.pages > 0);
    seq->state_pages = seq->cached.pages;
    proa_state_cache_load(&e->kept_states, seq->table->page[seq->cached.pages - 1], seq->req->slot + seq->index);
}

bool proa_prefix_cache_reuse(proa_engine *e, proa_seq *seq)
{
    restored_tokens from = {0, 0};
    int64_t begin = seq->length, most = proa_min64(seq->known - 1, known_ids(seq)) / PROA_PAGE_TOKENS;
    bool waited = seq->req->read_until_ns != 0;
    if (!seq->req->space || e->prefix_broken || wants_own_rows(seq)) return true;
    /* the other sequences of a request start when this one has run the last row of the prompt */
    if (seq->req->width > 1) most = proa_min64(most, (seq->req->prompt_count - 1) / PROA_PAGE_TOKENS);
    if (begin == 0 && seq->req->usage.new_tokens == 0 && !waited)
        e->now.prefix_queries += (uint64_t)(seq->req->prompt_count - seq->req->virtual_count);
    if (begin != (int64_t)seq->cached.pages * PROA_PAGE_TOKENS || seq->table->count != seq->cached.pages)
        return true;
    if (e->states.numbers) most = pages_with_state(e, seq, most);
    bool ready = take_pages(e, seq, most, &from);
    seq->length = (int64_t)seq->cached.pages * PROA_PAGE_TOKENS;
    if (e->states.numbers && seq->length > begin) load_state(e, seq);
    count_reuse(e, seq->req, begin, seq->length - begin, from);
    return ready;
}

void proa_prefix_cache_keep(proa_engine *e, proa_seq *seq)
{
    int32_t ids[PROA_PAGE_TOKENS];
    const proa_prefix_key page = {seq->req->space, ids, PROA_PAGE_TOKENS};
    int64_t drafted = proa_min64(proa_draft_model_tokens(e, seq), proa_eagle_proposer_tokens(e, seq));
    int64_t valid = proa_min64(seq->length, drafted);
    int64_t full = proa_min64(valid, known_ids(seq)) / PROA_PAGE_TOKENS;
    if (!seq->req->space || e->prefix_broken || seq->table->count < full)
        return; /* or its pages are released */
    if (seq->req->search.candidates && seq->index > 0) return;
    while (seq->cached.pages < full) {
        copy_page_ids(seq, seq->cached.pages, ids);
        proa_prefix_tree_add(&e->prefixes, &seq->cached, &page, seq->table);
    }
}

/* ---- recurrent states ---- */

/* A state is kept for the keys and values of a part of its size at least, and behind every so many of these pages in a
 * prompt, since requests part where nobody can know: there keys, values and states take about the same memory. Where
 * there are no keys and values, it is kept for as many tokens as take much longer to compute than a state to copy. */
enum { STATE_PART = 8, STATE_PAGES = 4 };

static int64_t pages_for_state(const proa_engine *e)
{
    if (e->model->kv_layers == 0) return STATE_PAGES;
    int64_t state = proa_state_slots_bytes(1, e->states.numbers);
    return proa_max64(1, proa_ceil_div(state, STATE_PART * proa_max64(e->memory.page, 1)));
}

/* Behind how many pages the state of a sequence that has run `begin` tokens is kept next: at the end of the prompt,
 * which the next turn of a chat has in common with it; at the end of what an earlier request has in common with it; and
 * at regular places. INT64_MAX: at none. */
static int64_t next_state(const proa_engine *e, const proa_seq *seq, int64_t begin)
{
    const int64_t least = pages_for_state(e), regular = STATE_PART * least, now = begin / PROA_PAGE_TOKENS;
    const int64_t end = (seq->req->prompt_count - 1) / PROA_PAGE_TOKENS;
    const int64_t place[] = {seq->shared_pages, (now / regular + 1) * regular, end};
    int64_t next = INT64_MAX;
    if (!e->kept_states.count || !seq->req->space || e->prefix_broken) return next;
    for (size_t i = 0; i < PROA_COUNT(place); i++)
        if (place[i] > now && place[i] <= end && place[i] - seq->state_pages >= least)
            next = proa_min64(next, place[i]);
    return next;
}

int64_t proa_prefix_cache_chunk(const proa_engine *e, const proa_seq *seq)
{
    int64_t prompt = seq->req->prompt_count, next;
    if (!e->states.numbers || seq->length >= prompt) return seq->known - seq->length;
    next = next_state(e, seq, seq->length);
    return (next == INT64_MAX ? prompt : proa_min64(prompt, next * PROA_PAGE_TOKENS)) - seq->length;
}

void proa_prefix_cache_keep_state(proa_engine *e, proa_seq *seq, int64_t begin)
{
    int64_t next = next_state(e, seq, begin);
    if (next == INT64_MAX || seq->length != next * PROA_PAGE_TOKENS || seq->cached.pages != next) return;
    seq->state_pages = seq->cached.pages;
    proa_state_cache_save(&e->kept_states, seq->table->page[next - 1], seq->req->slot + seq->index);
}

/* What kernels wrote that failed must not be written, so copies are looked at after their device. */
void proa_prefix_cache_poll(proa_engine *e)
{
    if (!e->host_cache.folder) return;
    if (proa_host_cache_copies(&e->host_cache)) proa_device_failure_check(e, NULL);
    proa_host_cache_poll(&e->host_cache);
    e->writes_left = proa_prefix_tree_write(&e->prefixes);
    e->reads_waited = false;
}

enum { WAIT_MS = 5 }; /* requests may arrive meanwhile, or be cancelled */

void proa_prefix_cache_flush(proa_engine *e)
{
    int64_t until = proa_clock_ns() + (int64_t)PROA_PREFIX_FLUSH_MS * 1000000;
    do {
        proa_prefix_cache_poll(e);
        if (e->writes_left) proa_host_cache_wait(&e->host_cache, WAIT_MS);
    } while (e->writes_left && proa_clock_ns() < until);
}

void proa_prefix_cache_wait(proa_engine *e)
{
    bool idle = e->running.count + e->waiting.count == 0;
    if (e->reads_waited || (idle && e->writes_left)) proa_host_cache_wait(&e->host_cache, WAIT_MS);
}

/* ---- an encoder's input ---- */

proa_prefix_input proa_prefix_cache_reuse_input(proa_engine *e, proa_engine_request *req)
{
    proa_prefix_cursor at = {PROA_PREFIX_CROSS, 0};
    int64_t before = e->prefixes.restored;
    if (!req->space || e->prefix_broken) return PROA_PREFIX_INPUT_MISS;
    const proa_prefix_key input = {req->space, req->input.ids, req->input.count};
    int64_t found = proa_prefix_tree_match(&e->prefixes, &at, &input, true, &e->slots.cross[req->slot]);
    if (found < 0 && may_wait(e, req)) return PROA_PREFIX_INPUT_WAIT;
    if (found <= 0) return PROA_PREFIX_INPUT_MISS;
    int64_t tokens = req->input.count - req->input.virtual_count;
    int64_t below = proa_min64(tokens, (e->prefixes.restored - before) * PROA_PAGE_TOKENS);
    bool read = req->read_until_ns != 0;
    e->now.prefix_queries += (uint64_t)tokens;
    count_reuse(e, req, req->virtual_count, tokens, (restored_tokens){read ? 0 : below, read ? below : 0});
    return PROA_PREFIX_INPUT_HIT;
}

void proa_prefix_cache_keep_input(proa_engine *e, proa_engine_request *req)
{
    proa_prefix_cursor at = {PROA_PREFIX_CROSS, 0};
    if (!req->space || e->prefix_broken) return;
    e->now.prefix_queries += (uint64_t)(req->input.count - req->input.virtual_count);
    const proa_prefix_key input = {req->space, req->input.ids, req->input.count};
    proa_prefix_tree_insert(&e->prefixes, &at, &input, true, &e->slots.cross[req->slot]);
}
