/* SPDX-License-Identifier: Apache-2.0
 * scan.c - splits a text into words and counts what the text features need, in one pass. */
#include "backends/transform/scan.h"

#include "text/unicode.h"
#include <string.h>
#include <utf8proc.h>

typedef enum kind {
    OTHER = PROA_TEXT_OTHER,
    LETTER = PROA_TEXT_LETTER,
    UPPER = PROA_TEXT_UPPER,
    DIGIT = PROA_TEXT_DIGIT,
    WORD = PROA_TEXT_WORD,
    PUNCTUATION = PROA_TEXT_PUNCTUATION,
    END = PROA_TEXT_END,
    APOSTROPHE = PROA_TEXT_APOSTROPHE
} kind;

typedef struct walk {
    proa_text_counts *counts;
    char *lower;
    size_t len, start;       /* length of lower; start of the current word */
    int64_t characters;      /* of the word */
    bool in_word, has_words; /* has_words: of the sentence */
    proa_word_fn *on_word;
    void *arg;
} walk;

static kind kind_of_ascii(int32_t c)
{
    if (c >= 'a' && c <= 'z') return LETTER;
    if (c >= 'A' && c <= 'Z') return UPPER;
    if (c >= '0' && c <= '9') return DIGIT;
    if (c == '\'') return APOSTROPHE;
    if (c == '.' || c == '!' || c == '?') return END;
    return c <= ' ' || c == 0x7F || strchr("$+<=>^`|~", c) ? OTHER : PUNCTUATION;
}

static kind kind_of(int32_t c)
{
    if (c < 0x80) return kind_of_ascii(c);
    if (c == 0x2019) return APOSTROPHE;
    if (c == 0x2026 || c == 0x3002 || c == 0xFF01 || c == 0xFF1F) return END;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return UPPER;
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return LETTER;
    case UTF8PROC_CATEGORY_ND: return DIGIT;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return WORD;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return PUNCTUATION;
    default: return OTHER;
    }
}

int32_t proa_text_kind_of_character(int32_t c)
{
    return (int32_t)kind_of(c);
}

static bool in_words(kind k)
{
    return k == LETTER || k == UPPER || k == DIGIT || k == WORD;
}

static size_t next_char(proa_str text, size_t at, int32_t *c)
{
    unsigned char first = (unsigned char)text.ptr[at];
    if (first < 0x80) return *c = first, 1;
    int bytes = proa_utf8_decode(text.ptr + at, text.len - at, c);
    if (bytes > 0) return (size_t)bytes;
    bool cut = false;
    *c = 0xFFFD;
    return proa_utf8_subpart(text.ptr + at, text.len - at, &cut);
}

static bool word_follows(proa_str text, size_t at)
{
    int32_t c = 0;
    if (at >= text.len) return false;
    next_char(text, at, &c);
    return in_words(kind_of(c));
}

static void end_word(walk *w)
{
    if (!w->in_word) return;
    w->in_word = false;
    w->has_words = true;
    w->counts->words++;
    w->counts->word_characters += w->characters;
    w->counts->long_words += w->characters >= PROA_TEXT_LONG_WORD;
    if (w->on_word) w->on_word(w->arg, w->lower, w->start, w->len);
}

static void add_to_word(walk *w, int32_t c)
{
    if (!w->in_word) {
        if (w->len) w->lower[w->len++] = ' ';
        w->start = w->len;
        w->characters = 0;
        w->in_word = true;
    }
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    else if (c >= 0x80) c = utf8proc_tolower(c);
    if (c < 0x80) w->lower[w->len++] = (char)c;
    else w->len += (size_t)proa_utf8_encode(c, w->lower + w->len);
    w->characters++;
}

static void end_sentence(walk *w)
{
    w->counts->sentences += w->has_words;
    w->has_words = false;
}

static void count_letter(proa_text_counts *n, kind k)
{
    n->letters += k == LETTER || k == UPPER;
    n->upper += k == UPPER;
    n->digits += k == DIGIT;
}

static void count_mark(proa_text_counts *n, int32_t c)
{
    n->punctuation++;
    n->exclamations += c == '!' || c == 0xFF01;
    n->questions += c == '?' || c == 0xFF1F;
}

static void scan_step(walk *w, proa_str text, size_t next, int32_t c)
{
    kind k = kind_of(c);
    w->counts->characters++;
    if (in_words(k)) {
        count_letter(w->counts, k);
        add_to_word(w, c);
        return;
    }
    if (k == APOSTROPHE && w->in_word && word_follows(text, next)) {
        add_to_word(w, '\'');
        return;
    }
    end_word(w);
    if (k != OTHER) count_mark(w->counts, c);
    if (k == END) end_sentence(w);
}

void proa_text_scan(proa_text_counts *counts, proa_str text, proa_arena *arena, proa_word_fn *on_word, void *arg)
{
    walk w = {.counts = counts, .on_word = on_word, .arg = arg};
    /* the lower case of a two-byte letter may have three bytes; words are separated by at least one
     * character */
    w.lower = proa_arena_alloc(arena, text.len * 2 + 1);
    *counts = (proa_text_counts){0};
    for (size_t at = 0; at < text.len;) {
        int32_t c = 0;
        at += next_char(text, at, &c);
        scan_step(&w, text, at, c);
    }
    end_word(&w);
    end_sentence(&w);
}
