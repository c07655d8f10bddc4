/* SPDX-License-Identifier: Apache-2.0
 * bpe.c - byte pair encoding (Sennrich et al. 2016) with a heap of candidate merges over a linked list
 * of symbols: O(n log n) for a word of n characters. */
#include "text/models/bpe.h"

#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>

typedef struct symbol {
    int32_t id, prev, next; /* next -1: the last */
    int32_t from;           /* its first byte in the word */
    bool gone;
} symbol;
typedef struct candidate {
    uint32_t rank;
    int32_t at, id; /* left symbol, and what the merge gives */
} candidate;

typedef struct word_state {
    const proa_tokenizer *tok;
    const proa_bpe *bpe;
    proa_str word;
    symbol *symbols;
    candidate *heap; /* room for 3 n: each merge pops one and pushes at most two */
    int64_t symbol_count, heap_len;
} word_state;

const proa_merge *proa_bpe_merge(const proa_bpe *bpe, int32_t left, int32_t right)
{
    if (!bpe->merges) return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t i = proa_hash_pair(pair, bpe->seed) & bpe->mask;; i = (i + 1) & bpe->mask) {
        const proa_merge *m = &bpe->merges[i];
        if (m->pair == pair) return m;
        if (m->pair == UINT64_MAX) return NULL;
    }
}

/* Lowest rank first, then the leftmost. */
static bool merges_before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(word_state *w, candidate c)
{
    int64_t i = w->heap_len++;
    while (i > 0 && merges_before(&c, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
}

static candidate heap_pop(word_state *w)
{
    candidate top = w->heap[0], last = w->heap[--w->heap_len];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= w->heap_len) break;
        if (child + 1 < w->heap_len && merges_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!merges_before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    if (w->heap_len) w->heap[i] = last;
    return top;
}

/* What the symbols merge to; false if they do not. */
static bool find_merge(const word_state *w, int32_t left, int32_t right, candidate *c)
{
    if (!w->bpe->by_id) {
        const proa_merge *m = proa_bpe_merge(w->bpe, w->symbols[left].id, w->symbols[right].id);
        if (m) *c = (candidate){.rank = m->rank, .at = left, .id = m->id};
        return m;
    }
    int32_t from = w->symbols[left].from, next = w->symbols[right].next;
    size_t to = next >= 0 ? (size_t)w->symbols[next].from : w->word.len;
    int32_t id = proa_vocab_find(&w->tok->vocab, (proa_str){w->word.ptr + from, to - (size_t)from});
    *c = (candidate){.rank = (uint32_t)id, .at = left, .id = id};
    return id >= 0;
}

static void consider_pair(word_state *w, int32_t left, int32_t right)
{
    candidate c;
    if (left >= 0 && right >= 0 && find_merge(w, left, right, &c)) heap_push(w, c);
}

/* A candidate may be outdated: it is used if the symbols at its place still merge to the same piece, which
 * is the library's test too. */
static void merge_all(word_state *w)
{
    w->heap_len = 0;
    for (int32_t i = 0; i + 1 < w->symbol_count; i++) consider_pair(w, i, i + 1);
    while (w->heap_len) {
        candidate top = heap_pop(w), now;
        symbol *left = &w->symbols[top.at];
        if (left->gone || left->next < 0) continue;
        symbol *right = &w->symbols[left->next];
        if (!find_merge(w, top.at, left->next, &now) || now.id != top.id) continue;
        left->id = top.id;
        right->gone = true;
        left->next = right->next;
        if (left->next >= 0) w->symbols[left->next].prev = top.at;
        consider_pair(w, left->prev, top.at);
        consider_pair(w, top.at, left->next);
    }
}

static void add_symbol(word_state *w, int32_t id, size_t from)
{
    int32_t i = (int32_t)w->symbol_count++;
    w->symbols[i] = (symbol){.id = id, .prev = i - 1, .next = -1, .from = (int32_t)from};
    if (i) w->symbols[i - 1].next = i;
}

/* The bytes of a character that is no piece, as <0xNN>; false if one of them is missing. */
static bool add_bytes(word_state *w, proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (w->bpe->bytes[(unsigned char)s.ptr[i]] < 0) return false;
    for (size_t i = 0; i < s.len; i++) add_symbol(w, w->bpe->bytes[(unsigned char)s.ptr[i]], 0);
    return true;
}

/* A character with its affixes, which is the piece to look up. */
static proa_str dress_piece(const proa_bpe *bpe, proa_str one, bool first, bool last, proa_buf *buf)
{
    proa_str before = first ? (proa_str){"", 0} : bpe->prefix, after = last ? bpe->suffix : bpe->joiner;
    if (!before.len && !after.len) return one;
    proa_buf_clear(buf);
    proa_buf_str(buf, before);
    proa_buf_str(buf, one);
    proa_buf_str(buf, after);
    return proa_buf_view(buf);
}

/* The symbols that a word starts with. An unknown token is held back until the next known character: with
 * byte fallback it therefore follows the bytes after it, as in the library. */
static proa_status first_symbols(const proa_tokenizer *tok, word_state *w, proa_str word, proa_buf *buf,
                                 proa_err *err)
{
    const proa_bpe *bpe = w->bpe;
    bool waiting = false;
    for (size_t i = 0; i < word.len;) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){word.ptr + i, word.len - i}, &c);
        proa_str s = dress_piece(bpe, (proa_str){word.ptr + i, n}, i == 0, i + n == word.len, buf);
        bool plain = s.len == n && c < (int32_t)PROA_COUNT(bpe->chars);
        int32_t id = plain ? bpe->chars[c] : proa_vocab_find(&tok->vocab, s);
        i += n;
        if (id >= 0) {
            if (waiting) add_symbol(w, bpe->unk, i - n);
            waiting = false;
            add_symbol(w, id, i - n);
            continue;
        }
        if (bpe->byte_fallback && add_bytes(w, s)) continue;
        if (bpe->unk == PROA_BPE_UNK_MISSING)
            return PROA_FAIL(err, INVALID, "unk_token of the BPE model is not in its vocabulary");
        if (bpe->unk < 0) continue; /* no unknown token: the character is dropped */
        if (waiting && !bpe->fuse_unk) add_symbol(w, bpe->unk, i - n);
        waiting = true;
    }
    if (waiting) add_symbol(w, bpe->unk, word.len);
    return PROA_OK;
}

proa_status proa_bpe_encode(const proa_tokenizer *tok, proa_str word, proa_encode_scratch *work,
                            proa_ids *out, proa_err *err)
{
    const proa_bpe *bpe = &tok->bpe;
    if (bpe->ignore_merges) {
        int32_t id = proa_vocab_find(&tok->vocab, word);
        if (id >= 0) {
            proa_ids_push(out, id);
            return PROA_OK;
        }
    }
    /* with byte fallback, affixes become bytes too; loading holds them to PROA_AFFIX_BYTES_MAX */
    size_t n = word.len * (bpe->byte_fallback ? 1 + bpe->prefix.len : 1) + bpe->suffix.len + 1;
    word_state w = {.tok = tok, .bpe = bpe, .word = word};
    w.symbols = proa_encode_scratch_take(work, 0, n, sizeof *w.symbols);
    proa_buf buf;
    proa_buf_init(&buf, bpe->prefix.len + bpe->suffix.len + bpe->joiner.len + 8);
    proa_status status = first_symbols(tok, &w, word, &buf, err);
    proa_buf_release(&buf);
    if (status != PROA_OK) return status;
    w.heap = proa_encode_scratch_take(work, 1, 3 * (size_t)w.symbol_count + 1, sizeof *w.heap);
    merge_all(&w);
    for (int64_t i = 0; i < w.symbol_count; i++)
        if (!w.symbols[i].gone) proa_ids_push(out, w.symbols[i].id);
    return PROA_OK;
}
