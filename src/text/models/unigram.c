/* SPDX-License-Identifier: Apache-2.0
 * unigram.c - the unigram language model (Kudo 2018): the path of pieces with the best score, by Viterbi
 * over byte positions. One loop serves two variants: tokenizer.json sums doubles, SentencePiece sums
 * floats and has piece types. */
#include "text/pipeline.h"
#include "text/unicode.h"

#define UNK_PENALTY 10.0 /* below the lowest score; both libraries */

typedef struct node {
    double score;  /* of the best path that ends here */
    int32_t start; /* where its last piece begins; -1: none yet */
    int32_t id;    /* of that piece */
    int32_t next;  /* on the best path of all: where the piece that begins here ends */
} node;

static void relax_node(node *to, double score, int32_t start, int32_t id, bool single)
{
    if (single) score = (double)(float)score;
    if (to->start >= 0 && !(score > to->score)) return;
    to->score = score;
    to->start = start;
    to->id = id;
}

/* What a piece adds; user defined symbols of SentencePiece always win. */
static double piece_score(const proa_unigram *u, int32_t id, size_t len)
{
    if (u->types && u->types[id] == PROA_SPM_USER) return (double)((float)len * (float)u->max_score) - 0.1;
    return u->scores[id];
}

/* Offers all pieces that begin at `at`; returns whether one of them is exactly the first character. */
static bool offer_pieces(const proa_unigram *u, node *nodes, proa_str s, size_t at, size_t char_len)
{
    bool single = false;
    int32_t t = PROA_TRIE_ROOT;
    for (size_t end = at; end < s.len;) {
        t = proa_trie_step(&u->trie, t, (unsigned char)s.ptr[end++]);
        if (t < 0) break;
        int32_t id = u->trie.value[t];
        if (id < 0 || (u->types && u->types[id] == PROA_SPM_UNUSED)) continue;
        double score = piece_score(u, id, end - at) + nodes[at].score;
        relax_node(&nodes[end], score, (int32_t)at, id, u->types != NULL);
        single |= end - at == char_len;
    }
    return single;
}

/* Fills nodes[0..len]; afterwards nodes[p].next leads along the best path from 0. */
static proa_status best_path(const proa_unigram *u, node *nodes, proa_str s, proa_err *err)
{
    double unk_score = u->min_score - UNK_PENALTY;
    if (u->types) unk_score = (double)((float)u->min_score - (float)UNK_PENALTY);
    for (size_t i = 0; i <= s.len; i++) nodes[i] = (node){.start = -1};
    for (size_t at = 0; at < s.len;) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c);
        if (!offer_pieces(u, nodes, s, at, n)) {
            node *to = &nodes[at + n];
            double score = unk_score + nodes[at].score;
            if (u->types) score = (double)((float)unk_score + (float)nodes[at].score);
            if (u->unk < 0 && (to->start < 0 || score > to->score))
                return PROA_FAIL(err, INVALID,
                                 "a character is not in the vocabulary, and the model has no unk_id");
            relax_node(to, score, (int32_t)at, u->unk, u->types != NULL);
        }
        at += n;
    }
    for (int32_t end = (int32_t)s.len; end > 0; end = nodes[end].start) nodes[nodes[end].start].next = end;
    return PROA_OK;
}

static bool push_bytes(const proa_unigram *u, proa_str s, proa_ids *out)
{
    for (size_t i = 0; i < s.len; i++)
        if (u->bytes[(unsigned char)s.ptr[i]] < 0) return false;
    for (size_t i = 0; i < s.len; i++) proa_ids_push(out, u->bytes[(unsigned char)s.ptr[i]]);
    return true;
}

/* tokenizer.json: a run of unknown characters is one piece, which may itself be in the vocabulary. */
proa_status proa_unigram_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                proa_ids *out, proa_err *err)
{
    const proa_unigram *u = &tok->unigram;
    node *nodes = proa_encode_scratch_take(work, 0, word.len + 1, sizeof *nodes);
    PROA_TRY(best_path(u, nodes, word, err));
    for (int32_t at = 0, end; at < (int32_t)word.len; at = end) {
        end = nodes[at].next;
        int32_t id = nodes[end].id;
        if (id == u->unk) {
            while (end < (int32_t)word.len && nodes[nodes[end].next].id == u->unk) end = nodes[end].next;
            proa_str run = {word.ptr + at, (size_t)(end - at)};
            id = proa_vocab_find(&tok->vocab, run);
            if (id < 0 && u->byte_fallback && push_bytes(u, run, out)) continue;
            if (id < 0) id = u->unk;
        }
        proa_ids_push(out, id);
    }
    return PROA_OK;
}

/* SentencePiece: an unknown piece becomes bytes, or joins the unknown piece before it. */
static void push_spm(const proa_unigram *u, proa_str piece, int32_t id, bool *after_unk, proa_ids *out)
{
    bool unk = u->types[id] == PROA_SPM_UNKNOWN;
    if (!(unk && u->byte_fallback && push_bytes(u, piece, out)))
        if (!(unk && *after_unk && !u->byte_fallback)) proa_ids_push(out, id);
    *after_unk = unk;
}

proa_status proa_spm_unigram_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                    proa_ids *out, proa_err *err)
{
    const proa_unigram *u = &tok->unigram;
    node *nodes = proa_encode_scratch_take(work, 0, word.len + 1, sizeof *nodes);
    PROA_TRY(best_path(u, nodes, word, err));
    bool after_unk = false;
    for (int32_t at = 0, end; at < (int32_t)word.len; at = end) {
        end = nodes[at].next;
        push_spm(u, (proa_str){word.ptr + at, (size_t)(end - at)}, nodes[end].id, &after_unk, out);
    }
    return PROA_OK;
}

/* ---- SentencePiece's BPE: any two neighbours whose joined text is a piece may merge, best score first ---- */

typedef struct symbol {
    int32_t at, len, prev, next; /* len 0: merged away; next -1: the last */
    bool frozen;                 /* a user defined symbol */
} symbol;
typedef struct candidate {
    double score;
    int32_t left, right, len; /* len of the joined text: a candidate with another one is stale */
} candidate;
typedef struct agenda {
    const proa_tokenizer *tok;
    proa_str text;
    symbol *symbols;
    candidate *heap;
    int64_t heap_len, symbol_count;
    int32_t *split; /* by id, for unused pieces: length of the left half they were merged from */
} agenda;

static bool is_better(const candidate *a, const candidate *b)
{
    return a->score != b->score ? a->score > b->score : a->left < b->left;
}

static void agenda_push(agenda *g, candidate c)
{
    int64_t i = g->heap_len++;
    while (i > 0 && is_better(&c, &g->heap[(i - 1) / 2])) {
        g->heap[i] = g->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    g->heap[i] = c;
}

static candidate agenda_pop(agenda *g)
{
    candidate top = g->heap[0], last = g->heap[--g->heap_len];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= g->heap_len) break;
        if (child + 1 < g->heap_len && is_better(&g->heap[child + 1], &g->heap[child])) child++;
        if (!is_better(&g->heap[child], &last)) break;
        g->heap[i] = g->heap[child];
        i = child;
    }
    if (g->heap_len) g->heap[i] = last;
    return top;
}

static bool normal_piece(const proa_unigram *u, int32_t id)
{
    return u->types[id] == PROA_SPM_NORMAL || u->types[id] == PROA_SPM_USER || u->types[id] == PROA_SPM_UNUSED;
}

static void consider_pair(agenda *g, int32_t left, int32_t right)
{
    const proa_unigram *u = &g->tok->unigram;
    if (left < 0 || right < 0 || g->symbols[left].frozen || g->symbols[right].frozen) return;
    int32_t len = g->symbols[left].len + g->symbols[right].len;
    int32_t id = proa_vocab_find(&g->tok->vocab, (proa_str){g->text.ptr + g->symbols[left].at, (size_t)len});
    if (id < 0 || !normal_piece(u, id)) return;
    agenda_push(g, (candidate){u->scores[id], left, right, len});
    if (u->types[id] == PROA_SPM_UNUSED) g->split[id] = g->symbols[left].len;
}

static void first_symbols(agenda *g)
{
    const proa_unigram *u = &g->tok->unigram;
    for (size_t at = 0; at < g->text.len;) {
        int32_t c, i = (int32_t)g->symbol_count++;
        proa_str rest = {g->text.ptr + at, g->text.len - at};
        size_t n = u->symbols ? proa_trie_longest(u->symbols, rest, &c) : 0;
        bool frozen = n > 0;
        if (!frozen) n = (size_t)proa_char_next(rest, &c);
        at += n;
        g->symbols[i] = (symbol){.at = (int32_t)(at - n),
                                 .len = (int32_t)n,
                                 .prev = i - 1,
                                 .frozen = frozen,
                                 .next = at < g->text.len ? i + 1 : -1};
    }
}

static void merge_all(agenda *g)
{
    for (int32_t i = 0; i + 1 < g->symbol_count; i++) consider_pair(g, i, i + 1);
    while (g->heap_len) {
        candidate top = agenda_pop(g);
        symbol *left = &g->symbols[top.left], *right = &g->symbols[top.right];
        if (!left->len || !right->len || left->len + right->len != top.len) continue;
        left->len = top.len;
        left->next = right->next;
        if (right->next >= 0) g->symbols[right->next].prev = top.left;
        right->len = 0;
        consider_pair(g, left->prev, top.left);
        consider_pair(g, top.left, left->next);
    }
}

/* Takes pieces of type UNUSED apart again. `stack` has room for the symbol's bytes. */
static void resegment_piece(agenda *g, proa_str piece, proa_str *stack, bool *after_unk, proa_ids *out)
{
    const proa_unigram *u = &g->tok->unigram;
    int64_t depth = 0;
    stack[depth++] = piece;
    while (depth) {
        proa_str s = stack[--depth];
        int32_t id = proa_vocab_find(&g->tok->vocab, s);
        int32_t half = id >= 0 && u->types[id] == PROA_SPM_UNUSED ? g->split[id] : 0;
        if (half > 0 && (size_t)half < s.len) {
            stack[depth++] = (proa_str){s.ptr + half, s.len - (size_t)half};
            stack[depth++] = (proa_str){s.ptr, (size_t)half};
        } else {
            push_spm(u, s, id < 0 ? u->unk : id, after_unk, out);
        }
    }
}

proa_status proa_spm_bpe_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                                proa_ids *out, proa_err *err)
{
    PROA_UNUSED(err);
    agenda g = {.tok = tok, .text = word};
    g.symbols = proa_encode_scratch_take(work, 0, word.len + 1, sizeof *g.symbols);
    first_symbols(&g);
    g.heap = proa_encode_scratch_take(work, 1, 3 * (size_t)g.symbol_count + 1, sizeof *g.heap);
    if (tok->unigram.has_unused) {
        g.split = proa_encode_scratch_take(work, 2, (size_t)tok->vocab.size, sizeof *g.split);
        for (int32_t i = 0; i < tok->vocab.size; i++) g.split[i] = 0;
    }
    merge_all(&g);
    int32_t longest = 0;
    for (int32_t i = 0; i >= 0 && i < g.symbol_count; i = g.symbols[i].next)
        if (g.symbols[i].len > longest) longest = g.symbols[i].len;
    proa_str *stack = proa_encode_scratch_take(work, 1, (size_t)longest + 2, sizeof *stack);
    bool after_unk = false;
    for (int32_t i = 0; i >= 0 && i < g.symbol_count; i = g.symbols[i].next)
        resegment_piece(&g, (proa_str){word.ptr + g.symbols[i].at, (size_t)g.symbols[i].len}, stack,
                        &after_unk, out);
    return PROA_OK;
}
