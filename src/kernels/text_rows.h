/* SPDX-License-Identifier: Apache-2.0
 * text_rows.h - the features of a text as the data op text_features computes them: counts, lists and n-grams of words,
 *               a lexicon's weights, hashed n-grams (docs/transform.md). It is compiled for the op's reference
 *               (reference/text.c) and for CUDA (text.cu), and gives the bits of backends/transform/text.c; text_gpu.c
 *               there makes the plan.
 * Owner:   all arrays are the caller's, in the memory of the device of the call.
 * Threads: pure functions; one thread a text, since what a word is depends on all characters before it. */
#ifndef PROA_KERNELS_TEXT_ROWS_H
#define PROA_KERNELS_TEXT_ROWS_H

#include "base/limits.h"
#include "kernels/libm_exp.h"
#include <stddef.h>

typedef struct proa_text_counts {
    int64_t characters, words, sentences, punctuation, letters, digits, upper, exclamations, questions;
    int64_t word_characters, long_words; /* of 7 characters and more */
} proa_text_counts;

#define PROA_TEXT_LONG_WORD 7

/* What a character is to the scan. */
typedef enum proa_text_kind {
    PROA_TEXT_OTHER,
    PROA_TEXT_LETTER,
    PROA_TEXT_UPPER,
    PROA_TEXT_DIGIT,
    PROA_TEXT_WORD,
    PROA_TEXT_PUNCTUATION,
    PROA_TEXT_END, /* of a sentence; punctuation too */
    PROA_TEXT_APOSTROPHE
} proa_text_kind;

typedef enum proa_text_value { PROA_TEXT_COUNT, PROA_TEXT_SHARE, PROA_TEXT_PRESENT } proa_text_value;
typedef enum proa_text_stat {
    PROA_TEXT_SUM,
    PROA_TEXT_MEAN,
    PROA_TEXT_MIN,
    PROA_TEXT_MAX,
    PROA_TEXT_STATS
} proa_text_stat;

static inline PROA_DEVICE_CODE double proa_text_ratio(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* The counts by name, and their formulas over n and the number of distinct words. */
#define PROA_TEXT_COUNT_LIST(X)                                                                              \
    X(characters, (double)n->characters)                                                                     \
    X(words, (double)n->words)                                                                               \
    X(sentences, (double)n->sentences)                                                                       \
    X(punctuation, (double)n->punctuation)                                                                   \
    X(letters, (double)n->letters)                                                                           \
    X(digits, (double)n->digits)                                                                             \
    X(upper, (double)n->upper)                                                                               \
    X(exclamations, (double)n->exclamations)                                                                 \
    X(questions, (double)n->questions)                                                                       \
    X(long_words, (double)n->long_words)                                                                     \
    X(word_length, proa_text_ratio(n->word_characters, n->words))                                            \
    X(sentence_length, proa_text_ratio(n->words, n->sentences))                                              \
    X(upper_share, proa_text_ratio(n->upper, n->letters))                                                    \
    X(punctuation_share, proa_text_ratio(n->punctuation, n->characters))                                     \
    X(distinct_share, proa_text_ratio(distinct, n->words))                                                   \
    X(distinct_words, (double)distinct)

enum {
#define PROA_TEXT_COUNT_ENUM(name, expression) PROA_TEXT_COUNT_##name,
    PROA_TEXT_COUNT_LIST(PROA_TEXT_COUNT_ENUM)
#undef PROA_TEXT_COUNT_ENUM
        PROA_TEXT_COUNTS
};

static inline PROA_DEVICE_CODE double proa_text_count(int32_t which, const proa_text_counts *n, int64_t distinct)
{
    switch (which) {
#define PROA_TEXT_COUNT_CASE(name, expression)                                                               \
    case PROA_TEXT_COUNT_##name: return (expression);
        PROA_TEXT_COUNT_LIST(PROA_TEXT_COUNT_CASE)
#undef PROA_TEXT_COUNT_CASE
    default: return 0;
    }
}

/* ---- the plan ---- */

/* Code points in pages of 256: pages that are alike are stored once. */
#define PROA_TEXT_PAGES 0x1100
typedef struct proa_text_letters {
    const uint16_t *page; /* [PROA_TEXT_PAGES] */
    const uint8_t *kind;  /* [pages][256] proa_text_kind */
    const int32_t *lower; /* [pages][256] the simple lower case */
} proa_text_letters;

/* An n-gram; len 0: an empty slot. */
typedef struct proa_text_slot {
    uint64_t hash;
    uint32_t at, len; /* of its text */
    int32_t line;
    int32_t pad;
} proa_text_slot;

/* N-grams by hash, with open addressing. */
typedef struct proa_text_ngrams {
    const proa_text_slot *slots; /* NULL: none */
    uint64_t mask;               /* their number - 1 */
    const char *text;
    int32_t words_max;
} proa_text_ngrams;

typedef struct proa_text_plan {
    proa_text_letters letters;
    const int32_t *counts; /* [counts_count] PROA_TEXT_COUNT_... */
    int32_t counts_count;
    bool distinct;                                /* a count asks for it */
    proa_text_ngrams lists[PROA_NGRAM_LISTS_MAX]; /* one column each */
    int32_t lists_count;
    proa_text_ngrams vocabulary, lexicon;
    const double *weights; /* [lines of the lexicon][lexicon_columns] */
    int64_t lexicon_columns;
    int32_t stats[PROA_TEXT_STATS], stats_count;
    int64_t buckets, hashed_words;
    int32_t value, words_max;
    int64_t columns, lists_at, vocabulary_at, lexicon_at, buckets_at;
} proa_text_plan;

/* A text, and its parts of the scratch memory, from its beginning. */
typedef struct proa_text_row {
    int64_t at, len;
    int64_t lower;        /* 2 * len + 1 bytes */
    int64_t set, set_cap; /* aligned to 8, set_cap words of 8 bytes: a power of two above len + 2 */
    int64_t weights;      /* aligned to 8, [stats][lexicon_columns] doubles */
} proa_text_row;

/* ---- characters ---- */

/* Bytes of the next character; what is no UTF-8 is U+FFFD, once for each maximal subpart. left is not 0. */
static inline PROA_DEVICE_CODE int64_t proa_text_next(const unsigned char *s, int64_t left, int32_t *c)
{
    *c = s[0];
    if (s[0] < 0x80) return 1;
    *c = 0xFFFD;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 1;
    int32_t want = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4, value = s[0] & (0x7F >> want);
    int32_t low = s[0] == 0xE0   ? 0xA0
                  : s[0] == 0xF0 ? 0x90
                                 : 0x80,
            high = s[0] == 0xED   ? 0x9F
                   : s[0] == 0xF4 ? 0x8F
                                  : 0xBF;
    for (int32_t i = 1; i < want; i++) {
        if (i == left) return left;
        if (s[i] < low || s[i] > high) return i;
        value = value << 6 | (s[i] & 0x3F);
        low = 0x80, high = 0xBF;
    }
    *c = value;
    return want;
}

static inline PROA_DEVICE_CODE int64_t proa_text_put(int32_t c, char *to)
{
    if (c < 0x80) return to[0] = (char)c, 1;
    if (c < 0x800) return to[0] = (char)(0xC0 | c >> 6), to[1] = (char)(0x80 | (c & 0x3F)), 2;
    int64_t n = 0;
    if (c >= 0x10000) to[n++] = (char)(0xF0 | c >> 18), to[n++] = (char)(0x80 | (c >> 12 & 0x3F));
    else to[n++] = (char)(0xE0 | c >> 12);
    to[n++] = (char)(0x80 | (c >> 6 & 0x3F));
    to[n++] = (char)(0x80 | (c & 0x3F));
    return n;
}

static inline PROA_DEVICE_CODE int32_t proa_text_kind_of(const proa_text_letters *l, int32_t c)
{
    return l->kind[l->page[c >> 8] * 256 + (c & 255)];
}

static inline PROA_DEVICE_CODE bool proa_text_in_words(int32_t kind)
{
    return kind >= PROA_TEXT_LETTER && kind <= PROA_TEXT_WORD;
}

/* ---- n-grams ---- */

/* 64-bit FNV-1a. */
static inline PROA_DEVICE_CODE uint64_t proa_text_fnv(const char *s, int64_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)s[i]) * 0x100000001b3u;
    return hash;
}

/* The line of an n-gram; -1: it has none. hash: its proa_text_fnv. */
static inline PROA_DEVICE_CODE int32_t proa_text_find(const proa_text_ngrams *g, const char *s, int64_t len,
                                                      uint64_t hash)
{
    for (uint64_t i = hash & g->mask; g->slots[i].len; i = (i + 1) & g->mask) {
        const proa_text_slot *slot = &g->slots[i];
        int64_t same = 0;
        if (slot->hash != hash || slot->len != len) continue;
        while (same < len && g->text[slot->at + same] == s[same]) same++;
        if (same == len) return slot->line;
    }
    return -1;
}

/* What a row is made with. */
typedef struct proa_text_maker {
    const proa_text_plan *p;
    float *row;
    char *lower;
    uint64_t *set;
    int64_t set_cap, distinct;
    double *weights;
    int64_t matched, words;
    int64_t starts[PROA_NGRAM_WORDS_MAX]; /* of the last words, in turn */
    int64_t len, start, characters;       /* of lower; of the word */
    bool in_word, has_words;              /* has_words: of the sentence */
    proa_text_counts n;
} proa_text_maker;

/* A set of distinct words by the hash of base/str.h. */
static inline PROA_DEVICE_CODE void proa_text_add_distinct(proa_text_maker *m, uint64_t fnv)
{
    uint64_t h = fnv ^ fnv >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h = h ? h : 1;
    int64_t i = (int64_t)(h & (uint64_t)(m->set_cap - 1));
    while (m->set[i] && m->set[i] != h) i = (i + 1) & (m->set_cap - 1);
    m->distinct += m->set[i] == 0;
    m->set[i] = h;
}

static inline PROA_DEVICE_CODE void proa_text_add_weights(proa_text_maker *m, int32_t line)
{
    int64_t n = m->p->lexicon_columns;
    const double *from = m->p->weights + line * n;
    bool first = m->matched++ == 0;
    for (int32_t s = 0; s < m->p->stats_count; s++) {
        bool less = m->p->stats[s] == PROA_TEXT_MIN, more = m->p->stats[s] == PROA_TEXT_MAX;
        double *to = m->weights + s * n;
        for (int64_t i = 0; i < n; i++) {
            if (!less && !more) to[i] += from[i];
            else if (first || (less ? from[i] < to[i] : from[i] > to[i])) to[i] = from[i];
        }
    }
}

static inline PROA_DEVICE_CODE void proa_text_add_to(const proa_text_maker *m, int64_t column)
{
    m->row[column] = m->p->value == PROA_TEXT_PRESENT ? 1 : m->row[column] + 1;
}

static inline PROA_DEVICE_CODE void proa_text_add_ngram(proa_text_maker *m, const char *s, int64_t len,
                                                        int32_t words, uint64_t hash)
{
    const proa_text_plan *p = m->p;
    int32_t line = -1;
    for (int32_t i = 0; i < p->lists_count; i++)
        if (words <= p->lists[i].words_max && proa_text_find(&p->lists[i], s, len, hash) >= 0)
            proa_text_add_to(m, p->lists_at + i);
    if (p->vocabulary.slots && words <= p->vocabulary.words_max)
        line = proa_text_find(&p->vocabulary, s, len, hash);
    if (line >= 0) proa_text_add_to(m, p->vocabulary_at + line);
    line = -1;
    if (p->lexicon.slots && words <= p->lexicon.words_max) line = proa_text_find(&p->lexicon, s, len, hash);
    if (line >= 0) proa_text_add_weights(m, line);
    if (p->buckets && words <= p->hashed_words)
        proa_text_add_to(m, p->buckets_at + (int64_t)((hash ^ hash >> 32) % (uint64_t)p->buckets));
}

/* All n-grams that end with the newest word, the shortest first. */
static inline PROA_DEVICE_CODE void proa_text_add_word(proa_text_maker *m)
{
    if (m->p->distinct) proa_text_add_distinct(m, proa_text_fnv(m->lower + m->start, m->len - m->start));
    m->starts[m->words++ % PROA_NGRAM_WORDS_MAX] = m->start;
    for (int32_t n = 1; n <= m->p->words_max && n <= m->words; n++) {
        int64_t from = m->starts[(m->words - n) % PROA_NGRAM_WORDS_MAX];
        proa_text_add_ngram(m, m->lower + from, m->len - from, n, proa_text_fnv(m->lower + from, m->len - from));
    }
}

/* ---- the scan, as backends/transform/scan.c makes it ---- */

static inline PROA_DEVICE_CODE void proa_text_end_word(proa_text_maker *m)
{
    if (!m->in_word) return;
    m->in_word = false;
    m->has_words = true;
    m->n.words++;
    m->n.word_characters += m->characters;
    m->n.long_words += m->characters >= PROA_TEXT_LONG_WORD;
    proa_text_add_word(m);
}

static inline PROA_DEVICE_CODE void proa_text_add_letter(proa_text_maker *m, int32_t c)
{
    if (!m->in_word) {
        if (m->len) m->lower[m->len++] = ' ';
        m->start = m->len;
        m->characters = 0;
        m->in_word = true;
    }
    m->len += proa_text_put(m->p->letters.lower[m->p->letters.page[c >> 8] * 256 + (c & 255)], m->lower + m->len);
    m->characters++;
}

static inline PROA_DEVICE_CODE void proa_text_end_sentence(proa_text_maker *m)
{
    m->n.sentences += m->has_words;
    m->has_words = false;
}

static inline PROA_DEVICE_CODE void proa_text_step(proa_text_maker *m, int32_t c, const unsigned char *rest,
                                                   int64_t left)
{
    int32_t kind = proa_text_kind_of(&m->p->letters, c), after;
    m->n.characters++;
    if (proa_text_in_words(kind)) {
        m->n.letters += kind == PROA_TEXT_LETTER || kind == PROA_TEXT_UPPER;
        m->n.upper += kind == PROA_TEXT_UPPER;
        m->n.digits += kind == PROA_TEXT_DIGIT;
        proa_text_add_letter(m, c);
        return;
    }
    if (kind == PROA_TEXT_APOSTROPHE && m->in_word && left > 0) {
        proa_text_next(rest, left, &after);
        if (proa_text_in_words(proa_text_kind_of(&m->p->letters, after))) {
            proa_text_add_letter(m, '\'');
            return;
        }
    }
    proa_text_end_word(m);
    if (kind != PROA_TEXT_OTHER) {
        m->n.punctuation++;
        m->n.exclamations += c == '!' || c == 0xFF01;
        m->n.questions += c == '?' || c == 0xFF1F;
    }
    if (kind == PROA_TEXT_END) proa_text_end_sentence(m);
}

static inline PROA_DEVICE_CODE void proa_text_finish(proa_text_maker *m)
{
    const proa_text_plan *p = m->p;
    for (int32_t i = 0; i < p->counts_count; i++)
        m->row[i] = (float)proa_text_count(p->counts[i], &m->n, m->distinct);
    for (int32_t s = 0; s < p->stats_count; s++) {
        double by = p->stats[s] == PROA_TEXT_MEAN && m->matched ? (double)m->matched : 1;
        for (int64_t i = 0; i < p->lexicon_columns; i++) {
            int64_t at = s * p->lexicon_columns + i;
            m->row[p->lexicon_at + at] = (float)(m->weights[at] / by);
        }
    }
    if (p->value != PROA_TEXT_SHARE || !m->n.words) return;
    for (int64_t i = p->lists_at; i < p->columns; i++)
        if (i < p->lexicon_at || i >= p->buckets_at)
            m->row[i] = (float)((double)m->row[i] / (double)m->n.words);
}

/* row [columns] from a text of `bytes`. */
static inline PROA_DEVICE_CODE void proa_text_make_row(const proa_text_plan *p, const char *bytes,
                                                       const proa_text_row *r, char *scratch, float *row)
{
    proa_text_maker m;
    const unsigned char *s = (const unsigned char *)bytes + r->at;
    memset(&m, 0, sizeof m);
    m.p = p;
    m.row = row;
    m.lower = scratch + r->lower;
    m.set = (uint64_t *)(void *)(scratch + r->set);
    m.set_cap = r->set_cap;
    m.weights = (double *)(void *)(scratch + r->weights);
    for (int64_t i = 0; i < p->columns; i++) row[i] = 0;
    for (int64_t i = 0; p->distinct && i < r->set_cap; i++) m.set[i] = 0;
    for (int64_t i = 0; i < p->stats_count * p->lexicon_columns; i++) m.weights[i] = 0;
    for (int64_t at = 0; at < r->len;) {
        int32_t c;
        at += proa_text_next(s + at, r->len - at, &c);
        proa_text_step(&m, c, s + at, r->len - at);
    }
    proa_text_end_word(&m);
    proa_text_end_sentence(&m);
    proa_text_finish(&m);
}

#endif
