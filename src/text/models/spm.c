/* SPDX-License-Identifier: Apache-2.0
 * spm.c - SentencePiece's normalizer (spaces and rules) and decoder. */
#include "text/models/spm.h"

#include "text/unicode.h"
#include <string.h>

#define MARK     "\xE2\x96\x81" /* U+2581 stands for a space */
#define MARK_LEN 3

/* The value of a hexadecimal digit, or -1. Pieces of bytes are written in capitals. */
static int capital_hex_digit(char c)
{
    return c >= 'a' ? -1 : proa_hex_digit(c);
}

int proa_spm_byte(proa_str piece)
{
    if (piece.len != 6 || !proa_str_starts(piece, (proa_str){"<0x", 3}) || piece.ptr[5] != '>') return -1;
    int high = capital_hex_digit(piece.ptr[3]), low = capital_hex_digit(piece.ptr[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* ---- normaliser ---- */

/* The replacement for the start of s: a user-defined symbol is kept, otherwise the longest rule applies,
 * otherwise one character is kept. */
static size_t next_rule(const proa_text_step *step, proa_str s, proa_str *becomes)
{
    int32_t c;
    size_t n = step->symbols ? proa_trie_longest(step->symbols, s, &c) : 0;
    if (n == 0 && step->charsmap) {
        size_t rule = proa_charsmap_find(step->charsmap, s, true, becomes);
        if (rule) return rule;
    }
    if (n == 0) n = (size_t)proa_char_next(s, &c);
    *becomes = (proa_str){s.ptr, n};
    return n;
}

static proa_str drop_bytes(proa_str s, size_t n)
{
    return (proa_str){s.ptr + n, s.len - n};
}

/* Spaces become marks where the model escapes them. */
static void put_text(const proa_text_step *step, proa_str s, proa_buf *out)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == ' ' && step->on[PROA_SPM_ESCAPE]) proa_buf_append(out, MARK, MARK_LEN);
        else proa_buf_char(out, s.ptr[i]);
}

static void trim_end(proa_buf *out, size_t start, proa_str space)
{
    while (out->len - start >= space.len && memcmp(out->ptr + out->len - space.len, space.ptr, space.len) == 0)
        out->len -= space.len;
}

static proa_str skip_spaces(const proa_text_step *step, proa_str in)
{
    proa_str becomes;
    while (in.len) {
        size_t n = next_rule(step, in, &becomes);
        if (!proa_str_is(becomes, " ")) break;
        in = drop_bytes(in, n);
    }
    return in;
}

static void put_all(const proa_text_step *step, proa_str in, proa_buf *out)
{
    bool squeeze = step->on[PROA_SPM_SQUEEZE], after_space = squeeze;
    while (in.len) {
        proa_str becomes;
        size_t n = next_rule(step, in, &becomes);
        while (after_space && becomes.len && *becomes.ptr == ' ') becomes = drop_bytes(becomes, 1);
        if (becomes.len) {
            put_text(step, becomes, out);
            after_space = squeeze && becomes.ptr[becomes.len - 1] == ' ';
        }
        in = drop_bytes(in, n);
    }
}

static proa_status normalize_spm(const proa_text_step *step, proa_str in, size_t *zero, proa_buf *out,
                                 proa_err *err)
{
    PROA_UNUSED(err);
    *zero = 0; /* nothing asks for it afterwards */
    bool squeeze = step->on[PROA_SPM_SQUEEZE], dummy = step->on[PROA_SPM_DUMMY_PREFIX];
    bool suffix = step->on[PROA_SPM_SUFFIX];
    proa_str space = {" ", 1};
    size_t start = out->len;
    if (squeeze) in = skip_spaces(step, in);
    if (in.len == 0) return PROA_OK;
    if (dummy && !suffix) put_text(step, space, out);
    put_all(step, in, out);
    if (squeeze) trim_end(out, start, step->on[PROA_SPM_ESCAPE] ? (proa_str){MARK, MARK_LEN} : space);
    if (dummy && suffix) put_text(step, space, out);
    return PROA_OK;
}

const proa_text_step_kind proa_spm_normalizer = {.name = "SentencePiece", .normalize = normalize_spm};

/* ---- decoder ---- */

/* Bytes are held until they form a character; a byte that cannot becomes one U+FFFD. */
static void pass_bytes(proa_stream *st, int64_t at, bool last)
{
    proa_decoder_state *g = &st->stages[at];
    size_t i = 0;
    while (i < g->hold.len) {
        int32_t c;
        bool cut = false;
        proa_str s = {g->hold.ptr + i, g->hold.len - i};
        size_t n = (size_t)proa_utf8_decode(s.ptr, s.len, &c);
        if (n == 0) proa_utf8_subpart(s.ptr, s.len, &cut);
        if (n == 0 && cut && !last) break;
        if (n) proa_buf_append(&g->made, s.ptr, n);
        else proa_buf_append(&g->made, PROA_REPLACEMENT, PROA_REPLACEMENT_LEN);
        i += n ? n : 1;
    }
    memmove(g->hold.ptr, g->hold.ptr + i, g->hold.len - i);
    g->hold.len -= i;
    if (g->made.len) g->more = true;
    if (g->made.len) proa_stream_emit(st, at + 1, proa_buf_view(&g->made), true);
    proa_buf_clear(&g->made);
}

static void put_spaced(proa_buf *out, proa_str s)
{
    for (size_t i = 0; i < s.len;) {
        bool mark = s.len - i >= MARK_LEN && memcmp(s.ptr + i, MARK, MARK_LEN) == 0;
        proa_buf_char(out, mark ? ' ' : s.ptr[i]);
        i += mark ? MARK_LEN : 1;
    }
}

/* The leading mark of the text goes where the normaliser would have put it: one of them, or with
 * remove_extra_whitespaces all that come before any text. seen: a mark went; more: there is text; run: neither
 * is to be looked for any longer. */
static void put_piece(proa_stream *st, int64_t at, proa_str s)
{
    proa_decoder_state *g = &st->stages[at];
    const proa_text_step *step = &st->tok->decoders.ptr[at];
    if (g->seen || g->more) g->run = 1;
    g->seen = false;
    int type = st->id < st->tok->vocab.size ? st->tok->unigram.types[st->id] : PROA_SPM_NORMAL;
    if (type == PROA_SPM_CONTROL) return;
    bool strips = step->on[PROA_SPM_DUMMY_PREFIX] || step->on[PROA_SPM_SQUEEZE];
    if (type == PROA_SPM_UNKNOWN) {
        proa_buf_str(&g->made, st->tok->unk_surface);
    } else if (!g->run && strips && proa_str_starts(s, (proa_str){MARK, MARK_LEN})) {
        g->seen = !step->on[PROA_SPM_SQUEEZE];
        put_spaced(&g->made, drop_bytes(s, MARK_LEN));
    } else {
        put_spaced(&g->made, s);
    }
    if (g->made.len) g->more = true;
    proa_stream_emit(st, at + 1, proa_buf_view(&g->made), true);
    proa_buf_clear(&g->made);
}

static void feed_piece(proa_stream *st, int64_t at, proa_str s, bool end)
{
    PROA_UNUSED(end); /* the only stage: tokens arrive whole */
    const proa_unigram *u = &st->tok->unigram;
    if (st->id < st->tok->vocab.size && u->types[st->id] == PROA_SPM_BYTE) {
        proa_buf_char(&st->stages[at].hold, (char)proa_spm_byte(s));
        pass_bytes(st, at, false);
        return;
    }
    pass_bytes(st, at, true);
    put_piece(st, at, s);
}

static void finish_stream(proa_stream *st, int64_t at)
{
    pass_bytes(st, at, true);
}

const proa_text_step_kind proa_spm_decoder = {
    .name = "SentencePiece", .feed = feed_piece, .finish = finish_stream};
