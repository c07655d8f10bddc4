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
    uint32_t *exits;    /* a bit for each node of the tree: the exits of the mask that is made */
};

static int32_t node_words(const proa_matcher *m)
{
    return m->vocab->nodes_count / 32 + 1;
}

proa_matcher *proa_matcher_new(proa_automaton *a, const proa_token_trie *v)
{
    proa_matcher *m = proa_calloc(1, sizeof *m);
    atomic_init(&m->references, 1);
    pthread_mutex_init(&m->lock, NULL);
    m->automaton = *a;
    *a = (proa_automaton){0};
    m->vocab = v;
    m->bits = proa_calloc((size_t)proa_matcher_words(m) + 1, sizeof *m->bits);
    m->exits = proa_calloc((size_t)node_words(m), sizeof *m->exits);
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
    m->exits[node >> 5] |= (uint32_t)1 << (node & 31);
}

/* ---- subtrees that are taken as a whole ---- */

/* Whether each character with a first byte in lo..hi and that many more bytes leads from here to `config`. Neighbouring
 * bytes mostly lead to the same configuration. */
static bool characters_return(proa_matcher *m, int32_t from, int lo, int hi, int left, int32_t config)
{
    int32_t last = PROA_CONFIG_DEAD;
    for (int b = lo; b <= hi; b++) {
        int32_t to = proa_configs_next(&m->configs, from, (uint8_t)b);
        if (to == last) continue;
        last = to;
        if (left == 0 && to != config) return false;
        if (left == 0) continue;
        if (to == PROA_CONFIG_DEAD || m->configs.configs[to].open) return false;
        if (!characters_return(m, to, 0x80, 0xBF, left - 1, config)) return false;
    }
    return last != PROA_CONFIG_DEAD;
}

/* The characters that begin with this byte and one of lo to hi. */
static bool narrow_characters_return(proa_matcher *m, int32_t config, int byte, int lo, int hi, int left)
{
    int32_t to = proa_configs_next(&m->configs, config, (uint8_t)byte);
    return to != PROA_CONFIG_DEAD && !m->configs.configs[to].open &&
           characters_return(m, to, lo, hi, left, config);
}

/* All characters of UTF-8 beyond ASCII (RFC 3629). */
static bool text_returns(proa_matcher *m, int32_t config)
{
    return characters_return(m, config, 0xC2, 0xDF, 1, config) &&
           narrow_characters_return(m, config, 0xE0, 0xA0, 0xBF, 1) &&
           characters_return(m, config, 0xE1, 0xEC, 2, config) &&
           narrow_characters_return(m, config, 0xED, 0x80, 0x9F, 1) &&
           characters_return(m, config, 0xEE, 0xEF, 2, config) &&
           narrow_characters_return(m, config, 0xF0, 0x90, 0xBF, 2) &&
           characters_return(m, config, 0xF1, 0xF3, 3, config) &&
           narrow_characters_return(m, config, 0xF4, 0x80, 0x8F, 2);
}

static const proa_loops *loops_of(proa_matcher *m, int32_t config)
{
    if (m->configs.configs[config].loops) return m->configs.configs[config].loops;
    proa_loops *loops = PROA_ARENA_NEW(&m->configs.arena, proa_loops, 1);
    *loops = (proa_loops){.text = text_returns(m, config)};
    for (int b = 0; b < 128; b++)
        if (proa_configs_next(&m->configs, config, (uint8_t)b) == config)
            loops->ascii[b >> 6] |= (uint64_t)1 << (b & 63);
    m->configs.configs[config].loops = loops;
    return loops;
}

/* Whether all that is below the node leads from `config` back to it. Asked only where its own byte did, so that
 * configurations without such loops are not looked at. */
static bool takes_subtree(proa_matcher *m, int32_t node, int32_t before, int32_t config)
{
    int32_t set = m->vocab->set[node];
    if (set < 0 || before != config) return false;
    const proa_token_set *below = &m->vocab->sets[set];
    const proa_loops *loops = loops_of(m, config);
    if (below->ascii[0] & ~loops->ascii[0] || below->ascii[1] & ~loops->ascii[1]) return false;
    if (m->configs.configs[config].open && !below->text) return false; /* exits would be within characters */
    return !below->other || (below->text && loops->text);
}

/* The node and all below it: their tokens, and their exits if the configuration is open. */
static void take_subtree(proa_matcher *m, int32_t node, bool open)
{
    const proa_token_trie *v = m->vocab;
    int32_t end = v->nodes[node].end;
    for (int32_t i = v->rank[node]; i < v->rank[end]; i++)
        m->bits[v->order[i] >> 5] |= (uint32_t)1 << (v->order[i] & 31);
    for (int32_t i = node; open && i < end; i = (i | 31) + 1) {
        uint32_t from = UINT32_MAX << (i & 31),
                 to = end - (i & ~31) < 32 ? ((uint32_t)1 << (end & 31)) - 1 : UINT32_MAX;
        m->exits[i >> 5] |= v->inner[i >> 5] & from & to;
    }
}

/* ---- walks ---- */

/* Sets the tokens below `top` that can come from a configuration at `top`. Notes the nodes where it becomes open. */
static void walk_tree(proa_matcher *m, int32_t top, int32_t config)
{
    const proa_token_node *nodes = m->vocab->nodes;
    proa_configs *c = &m->configs;
    int32_t end = nodes[top].end;
    m->path[nodes[top].depth] = config;
    for (int32_t i = top + 1; i < end;) {
        const proa_token_node *n = &nodes[i];
        int32_t before = m->path[n->depth - 1], to = proa_configs_next(c, before, n->byte);
        if (to == PROA_CONFIG_DEAD) {
            i = n->end;
            continue;
        }
        if (takes_subtree(m, i, before, to)) {
            take_subtree(m, i, c->configs[to].open);
            i = n->end;
            continue;
        }
        m->path[n->depth] = to;
        if (n->token >= 0) set_tokens_of(m, n->token);
        if (c->configs[to].open && n->end > i + 1) add_exit(m, i);
        i++;
    }
}

/* Without a popcount instruction, in vectors (Warren, Hacker's Delight, section 5-1). */
static int32_t count_bits(const uint32_t *bits, int32_t words)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < words; i++) {
        uint32_t x = bits[i] - (bits[i] >> 1 & 0x55555555);
        x = (x & 0x33333333) + (x >> 2 & 0x33333333);
        x = (x + (x >> 4)) & 0x0F0F0F0F;
        x += x >> 8;
        n += (x + (x >> 16)) & 0x3F;
    }
    return (int32_t)n;
}

/* The numbers of the bits that are set, as a list; their count is known. */
static int32_t *list_bits(proa_arena *arena, const uint32_t *bits, int32_t words, int32_t count)
{
    int32_t *list = PROA_ARENA_NEW(arena, int32_t, count), at = 0;
    for (int32_t i = 0; i < words; i++)
        for (uint32_t w = bits[i]; w; w &= w - 1) list[at++] = 32 * i + PROA_LOWEST_BIT32(w);
    return list;
}

static uint32_t *copy_bits(proa_arena *arena, const uint32_t *bits, int32_t words)
{
    uint32_t *copy = PROA_ARENA_NEW(arena, uint32_t, words);
    memcpy(copy, bits, (size_t)words * sizeof *copy);
    return copy;
}

/* m->bits as a mask, and with `exits` m->exits too. */
static proa_mask *keep_mask(proa_matcher *m, bool exits)
{
    proa_arena *arena = &m->configs.arena;
    int32_t words = proa_matcher_words(m), nodes = exits ? node_words(m) : 0;
    proa_mask *mask = PROA_ARENA_NEW(arena, proa_mask, 1);
    *mask = (proa_mask){.count = count_bits(m->bits, words), .exits_count = count_bits(m->exits, nodes)};
    m->mask_bytes += 4 * ((int64_t)proa_min64(nodes, mask->exits_count) + proa_min64(words, mask->count));
    if (mask->count >= words) mask->bits = copy_bits(arena, m->bits, words);
    else mask->ids = list_bits(arena, m->bits, words, mask->count);
    if (mask->exits_count == 0) return mask;
    if (mask->exits_count >= nodes) mask->exit_bits = copy_bits(arena, m->exits, nodes);
    else mask->exits = list_bits(arena, m->exits, nodes, mask->exits_count);
    return mask;
}

static void begin_mask(proa_matcher *m)
{
    memset(m->bits, 0, (size_t)proa_matcher_words(m) * sizeof *m->bits);
}

static void begin_exits(proa_matcher *m)
{
    memset(m->exits, 0, (size_t)node_words(m) * sizeof *m->exits);
}

static void add_mask(proa_matcher *m, const proa_mask *mask)
{
    int32_t words = proa_matcher_words(m);
    for (int32_t i = 0; mask->bits && i < words; i++) m->bits[i] |= mask->bits[i];
    for (int32_t i = 0; mask->ids && i < mask->count; i++)
        m->bits[mask->ids[i] >> 5] |= (uint32_t)1 << (mask->ids[i] & 31);
}

/* Exits of at most that many bytes. */
static void add_exits(proa_matcher *m, const proa_mask *mask, int64_t depth_max)
{
    const proa_token_node *nodes = m->vocab->nodes;
    for (int32_t k = 0; mask->exits && k < mask->exits_count; k++)
        if (nodes[mask->exits[k]].depth <= depth_max) add_exit(m, mask->exits[k]);
    for (int32_t i = 0; mask->exit_bits && i < node_words(m); i++)
        for (uint32_t w = mask->exit_bits[i]; w; w &= w - 1)
            if (nodes[32 * i + PROA_LOWEST_BIT32(w)].depth <= depth_max) m->exits[i] |= w & -w;
}

static bool is_ascii_of(const proa_loops *loops, uint8_t byte)
{
    return byte < 0x80 && (loops->ascii[byte >> 6] >> (byte & 63) & 1);
}

/* The bytes that are a whole match of a counted frame's item each; NULL: none. Its free counter returns to itself with
 * them, without a match that has begun. */
static const proa_loops *single_bytes(proa_matcher *m, proa_frame f)
{
    int32_t open = proa_configs_open(&m->configs, f.state, PROA_COUNT_FREE);
    for (int b = 0; b < 128; b++) {
        int32_t to = proa_configs_next(&m->configs, open, (uint8_t)b);
        if (to != PROA_CONFIG_DEAD && proa_configs_next(&m->configs, to, (uint8_t)b) == to)
            return loops_of(m, to);
    }
    return NULL;
}

/* Whether all tokens below the node have as many matches as bytes, if those up to it have. */
static bool has_single_bytes(const proa_matcher *m, int32_t node, const proa_loops *single)
{
    int32_t set = m->vocab->set[node];
    if (set < 0 || !single) return false;
    const proa_token_set *below = &m->vocab->sets[set];
    return !below->other && !(below->ascii[0] & ~single->ascii[0]) && !(below->ascii[1] & ~single->ascii[1]);
}

/* As walk_tree from the root, for tokens of more than `least` bytes only; the others are there already. Where each byte
 * is a match, longer tokens have too many. */
static void walk_longer(proa_matcher *m, int32_t config, int64_t least, const proa_loops *single)
{
    const proa_token_node *nodes = m->vocab->nodes;
    proa_configs *c = &m->configs;
    int32_t plain = 0; /* bytes of the path that are matches */
    m->path[0] = config;
    for (int32_t i = 1; i < nodes[0].end;) {
        const proa_token_node *n = &nodes[i];
        if (plain >= n->depth) plain = n->depth - 1;
        if (plain == n->depth - 1 && single && is_ascii_of(single, n->byte)) plain++;
        bool skipped = n->deepest <= least || (plain == n->depth && has_single_bytes(m, i, single));
        int32_t to = skipped ? PROA_CONFIG_DEAD : proa_configs_next(c, m->path[n->depth - 1], n->byte);
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
    begin_exits(m);
    add_mask(m, wide);
    for (int32_t i = 0; i < v->by_length_count; i++) {
        int32_t t = v->by_length[i];
        if (v->begins[t + 1] - v->begins[t] <= left) break;
        m->bits[t >> 5] &= ~((uint32_t)1 << (t & 31));
    }
    add_exits(m, wide, left);
    walk_longer(m, open, left, single_bytes(m, f));
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
        begin_exits(m);
        walk_tree(m, 0, open);
    }
    proa_mask *mask = keep_mask(m, true);
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

/* The tokens that leave the top frame at one of its exits and go on in `below`. If there are many exits, few have such
 * a token: then the nodes are found by their byte. */
static void walk_exits(proa_matcher *m, const proa_mask *top, int32_t below)
{
    const proa_token_trie *v = m->vocab;
    for (int32_t k = 0; top->exits && k < top->exits_count; k++) walk_tree(m, top->exits[k], below);
    for (int b = 0; top->exit_bits && b < 256; b++) {
        int32_t to = proa_configs_next(&m->configs, below, (uint8_t)b);
        if (to == PROA_CONFIG_DEAD) continue;
        for (int32_t i = v->byte_begin[b]; i < v->byte_begin[b + 1]; i++) {
            int32_t node = v->of_byte[i], from = v->parent[node];
            if (!(top->exit_bits[from >> 5] >> (from & 31) & 1)) continue;
            if (v->nodes[node].token >= 0) set_tokens_of(m, v->nodes[node].token);
            walk_tree(m, node, to);
        }
    }
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
        if (below != PROA_CONFIG_DEAD) walk_exits(m, top, below);
    }
    return keep_mask(m, false);
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
