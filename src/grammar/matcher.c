/* SPDX-License-Identifier: Apache-2.0
 * matcher.c - masks by walks over the vocabulary's tree, kept for each configuration; the state of a sequence from its
 * tokens. */
#include "grammar/matcher.h"

#include "grammar/config.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct proa_matcher {
    atomic_int references;
    pthread_mutex_t lock; /* of all that follows the vocabulary */
    proa_automaton automaton;
    const proa_token_trie *vocab;
    proa_configs configs;
    uint32_t epoch;     /* configurations of an earlier epoch are gone */
    int64_t mask_bytes; /* that all masks take */
    uint32_t *bits;     /* [words] the mask that is made */
    int32_t *path;      /* [longest token + 1] configurations from the root of the tree to a node */
    int32_t *exits;
    int32_t exits_count, exits_cap;
};

proa_matcher *proa_matcher_new(proa_automaton *a, const proa_token_trie *v)
{
    proa_matcher *m = proa_calloc(1, sizeof *m);
    atomic_init(&m->references, 1);
    pthread_mutex_init(&m->lock, NULL);
    m->automaton = *a;
    *a = (proa_automaton){0};
    m->vocab = v;
    m->bits = proa_calloc((size_t)proa_matcher_words(m) + 1, sizeof *m->bits);
    m->path = proa_calloc((size_t)v->longest + 1, sizeof *m->path);
    proa_configs_init(&m->configs, &m->automaton);
    m->epoch = 1;
    return m;
}

proa_matcher *proa_matcher_retain(proa_matcher *m)
{
    atomic_fetch_add(&m->references, 1);
    return m;
}

void proa_matcher_release(proa_matcher *m)
{
    if (!m || atomic_fetch_sub(&m->references, 1) != 1) return;
    proa_configs_release(&m->configs);
    proa_automaton_release(&m->automaton);
    pthread_mutex_destroy(&m->lock);
    free(m->bits);
    free(m->path);
    free(m->exits);
    free(m);
}

int32_t proa_matcher_words(const proa_matcher *m)
{
    return (m->vocab->size + 31) / 32;
}

/* ---- masks ---- */

static void set_tokens_of(proa_matcher *m, int32_t token)
{
    for (; token >= 0; token = m->vocab->same[token]) m->bits[token >> 5] |= (uint32_t)1 << (token & 31);
}

static void add_exit(proa_matcher *m, int32_t node)
{
    if (m->exits_count == m->exits_cap) {
        m->exits_cap = m->exits_cap ? 2 * m->exits_cap : 256;
        m->exits = proa_realloc(m->exits, (size_t)m->exits_cap * sizeof *m->exits);
    }
    m->exits[m->exits_count++] = node;
}

/* Sets the tokens below `top` that can come from a configuration at `top`. Notes the nodes where it becomes open. */
static void walk_tree(proa_matcher *m, int32_t top, int32_t config)
{
    const proa_token_node *nodes = m->vocab->nodes;
    proa_configs *c = &m->configs;
    int32_t end = nodes[top].end;
    m->path[nodes[top].depth] = config;
    for (int32_t i = top + 1; i < end;) {
        const proa_token_node *n = &nodes[i];
        int32_t to = proa_configs_next(c, m->path[n->depth - 1], n->byte);
        if (to == PROA_CONFIG_DEAD) {
            i = n->end;
            continue;
        }
        m->path[n->depth] = to;
        if (n->token >= 0) set_tokens_of(m, n->token);
        if (c->configs[to].open && n->end > i + 1) add_exit(m, i);
        i++;
    }
}

static int32_t count_bits(const uint32_t *bits, int32_t words)
{
    int32_t n = 0;
    for (int32_t i = 0; i < words; i++) n += PROA_POPCOUNT32(bits[i]);
    return n;
}

/* m->bits and m->exits as a mask. */
static proa_mask *keep_mask(proa_matcher *m)
{
    proa_arena *arena = &m->configs.arena;
    int32_t words = proa_matcher_words(m), at = 0;
    proa_mask *mask = PROA_ARENA_NEW(arena, proa_mask, 1);
    mask->count = count_bits(m->bits, words);
    mask->exits_count = m->exits_count;
    mask->exits = PROA_ARENA_NEW(arena, int32_t, m->exits_count);
    if (m->exits_count) memcpy(mask->exits, m->exits, (size_t)m->exits_count * sizeof *mask->exits);
    m->mask_bytes += 4 * ((int64_t)m->exits_count + proa_min64(words, mask->count));
    if (mask->count >= words) {
        mask->bits = PROA_ARENA_NEW(arena, uint32_t, words);
        memcpy(mask->bits, m->bits, (size_t)words * sizeof *mask->bits);
        return mask;
    }
    mask->ids = PROA_ARENA_NEW(arena, int32_t, mask->count);
    for (int32_t i = 0; i < words; i++)
        for (uint32_t w = m->bits[i]; w; w &= w - 1) mask->ids[at++] = 32 * i + PROA_LOWEST_BIT32(w);
    return mask;
}

static void begin_mask(proa_matcher *m)
{
    memset(m->bits, 0, (size_t)proa_matcher_words(m) * sizeof *m->bits);
    m->exits_count = 0;
}

static void add_mask(proa_matcher *m, const proa_mask *mask)
{
    int32_t words = proa_matcher_words(m);
    for (int32_t i = 0; mask->bits && i < words; i++) m->bits[i] |= mask->bits[i];
    for (int32_t i = 0; mask->ids && i < mask->count; i++)
        m->bits[mask->ids[i] >> 5] |= (uint32_t)1 << (mask->ids[i] & 31);
}

/* As walk_tree from the root, for tokens of more than `least` bytes only; the others are there already. */
static void walk_longer(proa_matcher *m, int32_t config, int64_t least)
{
    const proa_token_node *nodes = m->vocab->nodes;
    proa_configs *c = &m->configs;
    m->path[0] = config;
    for (int32_t i = 1; i < nodes[0].end;) {
        const proa_token_node *n = &nodes[i];
        int32_t to = n->deepest <= least ? PROA_CONFIG_DEAD
                                         : proa_configs_next(c, m->path[n->depth - 1], n->byte);
        if (to == PROA_CONFIG_DEAD) {
            i = n->end;
            continue;
        }
        m->path[n->depth] = to;
        if (n->token >= 0 && n->depth > least) set_tokens_of(m, n->token);
        if (c->configs[to].open && n->end > i + 1 && n->depth > least) add_exit(m, i);
        i++;
    }
}

/* How often a counted frame may match its item yet; -1: more often than a token has bytes, or it is no counted frame
 * that has its minimum. */
static int64_t matches_left(const proa_matcher *m, proa_frame f)
{
    const proa_gstate *s = &m->automaton.states[f.state];
    if (s->body < 0 || f.count < s->min || s->max - f.count > m->vocab->longest) return -1;
    return s->max - f.count;
}

/* A count that gives the same tokens: beyond the minimum, and further from the maximum than a token is long, a counter
 * is as good as none; further below the minimum, as good as at its beginning. */
static int32_t typical_count(const proa_matcher *m, proa_frame f)
{
    const proa_gstate *s = &m->automaton.states[f.state];
    int64_t longest = m->vocab->longest;
    if (s->body < 0 || s->max - f.count <= longest) return f.count;
    if (f.count >= s->min) return PROA_COUNT_FREE;
    return s->min - (int64_t)f.count > longest ? 0 : f.count;
}

static proa_mask *mask_of_top(proa_matcher *m, proa_frame f);

/* The mask of a counted frame near its maximum: tokens of no more bytes than it has matches left are those of a free
 * counter, and only longer ones are walked. */
static void begin_narrow(proa_matcher *m, proa_frame f, int32_t open, int64_t left)
{
    const proa_token_trie *v = m->vocab;
    const proa_mask *wide = mask_of_top(m, (proa_frame){f.state, PROA_COUNT_FREE, f.parent});
    begin_mask(m);
    add_mask(m, wide);
    for (int32_t i = 0; i < v->by_length_count; i++) {
        int32_t t = v->by_length[i];
        if (v->begins[t + 1] - v->begins[t] <= left) break;
        m->bits[t >> 5] &= ~((uint32_t)1 << (t & 31));
    }
    for (int32_t i = 0; i < wide->exits_count; i++)
        if (v->nodes[wide->exits[i]].depth <= left) add_exit(m, wide->exits[i]);
    walk_longer(m, open, left);
}

/* The mask of a frame's state alone; its exits are where what is below decides. */
static proa_mask *mask_of_top(proa_matcher *m, proa_frame f)
{
    int32_t count = f.count == PROA_COUNT_FREE ? f.count : typical_count(m, f);
    int32_t open = proa_configs_open(&m->configs, f.state, count);
    int64_t left = count == PROA_COUNT_FREE ? -1 : matches_left(m, f);
    if (m->configs.configs[open].mask) return m->configs.configs[open].mask;
    if (left >= 0) begin_narrow(m, f, open, left);
    else {
        begin_mask(m);
        walk_tree(m, 0, open);
    }
    proa_mask *mask = keep_mask(m);
    m->configs.configs[open].mask = mask;
    return mask;
}

/* The configuration below a frame in which a byte may follow; DEAD: none. */
static int32_t config_below(proa_matcher *m, const proa_mask *top, proa_frame f)
{
    if (top->exits_count == 0 || f.parent <= PROA_FRAME_END) return PROA_CONFIG_DEAD;
    int32_t below = proa_configs_return(&m->configs, f.parent);
    const proa_gconfig *g = &m->configs.configs[below];
    return g->count == 1 && g->ends ? PROA_CONFIG_DEAD : below;
}

static proa_mask *make_mask(proa_matcher *m, int32_t config)
{
    const int32_t *frames = m->configs.configs[config].frames;
    int32_t count = m->configs.configs[config].count;
    if (count == 1 && frames[0] > PROA_FRAME_END) { /* often the mask of its top */
        proa_frame f = m->configs.frames[frames[0]];
        proa_mask *top = mask_of_top(m, f);
        if (config_below(m, top, f) == PROA_CONFIG_DEAD) return top;
    }
    for (int32_t i = 0; i < count; i++) /* these use m->bits too */
        if (frames[i] > PROA_FRAME_END) mask_of_top(m, m->configs.frames[frames[i]]);
    begin_mask(m);
    for (int32_t i = 0; i < count; i++) {
        if (frames[i] <= PROA_FRAME_END) continue;
        proa_frame f = m->configs.frames[frames[i]];
        const proa_mask *top = mask_of_top(m, f);
        int32_t below = config_below(m, top, f);
        add_mask(m, top);
        for (int32_t k = 0; below != PROA_CONFIG_DEAD && k < top->exits_count; k++)
            walk_tree(m, top->exits[k], below);
    }
    m->exits_count = 0;
    return keep_mask(m);
}

static void write_mask(const proa_matcher *m, const proa_mask *mask, uint32_t *out)
{
    size_t bytes = (size_t)proa_matcher_words(m) * sizeof *out;
    if (mask->bits) {
        memcpy(out, mask->bits, bytes);
        return;
    }
    memset(out, 0, bytes);
    for (int32_t i = 0; i < mask->count; i++) out[mask->ids[i] >> 5] |= (uint32_t)1 << (mask->ids[i] & 31);
}

/* ---- sequences ---- */

static int32_t step_bytes(proa_matcher *m, int32_t config, proa_str bytes)
{
    for (size_t i = 0; i < bytes.len && config != PROA_CONFIG_DEAD; i++)
        config = proa_configs_next(&m->configs, config, (uint8_t)bytes.ptr[i]);
    return config;
}

static int32_t step_token(proa_matcher *m, int32_t config, int32_t token)
{
    proa_str bytes = proa_token_trie_bytes(m->vocab, token);
    return bytes.len ? step_bytes(m, config, bytes) : PROA_CONFIG_DEAD;
}

static uint64_t hash_token(uint64_t hash, int32_t token)
{
    return proa_fold_multiply(hash ^ (uint32_t)token, 0x9E3779B97F4A7C15U) + 0xD6E8FEB86659FD93U;
}

static proa_matcher_place *place_of(proa_matcher_place *places, uint64_t hash)
{
    return &places[hash % PROA_PLACES];
}

static bool is_place(const proa_matcher *m, const proa_matcher_place *p, uint64_t hash, int64_t count)
{
    return p->epoch == m->epoch && p->hash == hash && p->count == count;
}

/* The configuration after these tokens. */
static int32_t config_of(proa_matcher *m, proa_matcher_place *places, const int32_t *tokens, int64_t count)
{
    uint64_t before = 0, hash = 1;
    int32_t config = m->configs.root;
    if (count == 0) return config;
    for (int64_t i = 0; i < count; i++) before = hash, hash = hash_token(hash, tokens[i]);
    proa_matcher_place *here = place_of(places, hash), *last = place_of(places, before);
    if (is_place(m, here, hash, count)) return here->config;
    if (is_place(m, last, before, count - 1)) config = step_token(m, last->config, tokens[count - 1]);
    else
        for (int64_t i = 0; i < count; i++) config = step_token(m, config, tokens[i]);
    *here = (proa_matcher_place){hash, count, config, m->epoch};
    return config;
}

static void begin_anew(proa_matcher *m)
{
    proa_configs_release(&m->configs);
    proa_configs_init(&m->configs, &m->automaton);
    m->mask_bytes = 0;
    m->epoch++;
}

static proa_status find_mask(proa_matcher *m, proa_matcher_place *places, const int32_t *tokens,
                             int64_t count, uint32_t *out, bool *ends, proa_err *err)
{
    if (proa_configs_full(&m->configs) || m->mask_bytes > PROA_GRAMMAR_MASK_BYTES_MAX) begin_anew(m);
    int32_t config = config_of(m, places, tokens, count);
    *ends = m->configs.configs[config].ends;
    if (config == PROA_CONFIG_DEAD && !m->configs.failed)
        return PROA_FAIL(err, INVALID, "token %lld does not follow the grammar", (long long)count);
    if (out) {
        proa_mask *mask = m->configs.configs[config].mask;
        if (!mask) mask = make_mask(m, config);
        m->configs.configs[config].mask = mask;
        write_mask(m, mask, out);
    }
    if (m->configs.failed)
        return PROA_FAIL(err, LIMIT,
                         "the grammar is too ambiguous after %lld tokens: it needs more than %d stacks",
                         (long long)count, PROA_GRAMMAR_STACKS_MAX);
    return PROA_OK;
}

proa_status proa_matcher_mask(proa_matcher *m, proa_matcher_place places[PROA_PLACES], const int32_t *tokens,
                              int64_t count, uint32_t *mask, bool *ends, proa_err *err)
{
    pthread_mutex_lock(&m->lock);
    proa_status status = find_mask(m, places, tokens, count, mask, ends, err);
    pthread_mutex_unlock(&m->lock);
    return status;
}

bool proa_matcher_accepts(proa_matcher *m, proa_str text, bool *is_prefix)
{
    pthread_mutex_lock(&m->lock);
    if (proa_configs_full(&m->configs)) begin_anew(m);
    int32_t config = step_bytes(m, m->configs.root, text);
    bool ends = m->configs.configs[config].ends;
    if (is_prefix) *is_prefix = config != PROA_CONFIG_DEAD;
    pthread_mutex_unlock(&m->lock);
    return ends;
}
