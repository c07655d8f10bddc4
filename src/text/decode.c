/* SPDX-License-Identifier: Apache-2.0
 * decode.c - the decoders of tokenizer.json as stages of a stream. Decoding a list of ids pushes them
 * all and flushes, so there is one implementation for streams and lists. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>

/* ---- helpers ---- */

void proa_stream_emit(proa_stream *st, int64_t at, proa_str bytes, bool end)
{
    if (at < st->tok->decoders.len) st->tok->decoders.ptr[at].kind->feed(st, at, bytes, end);
    else proa_buf_str(st->out, bytes);
}

static const proa_text_step *step_of(const proa_stream *st, int64_t at)
{
    return &st->tok->decoders.ptr[at];
}

/* Collects the pieces of a token. True when it is complete; *bytes is then all of it. */
static bool gather_token(proa_decoder_state *g, proa_str *bytes, bool end)
{
    if (end && g->hold.len == 0) return true;
    proa_buf_str(&g->hold, *bytes);
    *bytes = proa_buf_view(&g->hold);
    return end;
}

static void pass_made(proa_stream *st, int64_t at)
{
    proa_decoder_state *g = &st->stages[at];
    proa_buf_clear(&g->hold);
    proa_stream_emit(st, at + 1, proa_buf_view(&g->made), true);
    proa_buf_clear(&g->made);
}

/* Replaces in place; `to` is not longer than `from`. */
static void shrink_all(proa_buf *buf, proa_str from, proa_str to)
{
    size_t read = 0, write = 0;
    while (read < buf->len) {
        const char *hit = memmem(buf->ptr + read, buf->len - read, from.ptr, from.len);
        size_t plain = hit ? (size_t)(hit - buf->ptr) - read : buf->len - read;
        memmove(buf->ptr + write, buf->ptr + read, plain);
        write += plain;
        read += plain;
        if (!hit) break;
        if (to.len) memcpy(buf->ptr + write, to.ptr, to.len);
        write += to.len;
        read += from.len;
    }
    buf->len = write;
}

/* What transformers calls clean-up of spaces; the order matters. */
static void clean_up(proa_buf *buf)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    if (!memchr(buf->ptr, ' ', buf->len)) return;
    for (size_t i = 0; i < PROA_COUNT(rules); i++)
        shrink_all(buf, proa_str_c(rules[i][0]), proa_str_c(rules[i][1]));
}

static void replace_literal(proa_buf *out, proa_str s, proa_str from, proa_str to)
{
    while (from.len && s.len) {
        const char *hit = memmem(s.ptr, s.len, from.ptr, from.len);
        if (!hit) break;
        size_t plain = (size_t)(hit - s.ptr);
        proa_buf_append(out, s.ptr, plain);
        proa_buf_str(out, to);
        s.ptr += plain + from.len;
        s.len -= plain + from.len;
    }
    proa_buf_str(out, s);
}

/* ---- ByteLevel, Fuse: one token for the whole stream ---- */

/* Passes on the complete characters in hold and keeps the bytes of an incomplete one. */
static void pass_whole_chars(proa_stream *st, int64_t at, bool last)
{
    proa_decoder_state *g = &st->stages[at];
    size_t i = 0, good = 0;
    while (i < g->hold.len) {
        int32_t c;
        bool cut = false;
        int n = proa_utf8_decode(g->hold.ptr + i, g->hold.len - i, &c);
        if (n) {
            i += (size_t)n;
            continue;
        }
        size_t bad = proa_utf8_subpart(g->hold.ptr + i, g->hold.len - i, &cut);
        if (cut && !last) break;
        proa_buf_append(&g->made, g->hold.ptr + good, i - good);
        proa_buf_append(&g->made, PROA_REPLACEMENT, PROA_REPLACEMENT_LEN);
        i += bad;
        good = i;
    }
    proa_buf_append(&g->made, g->hold.ptr + good, i - good);
    memmove(g->hold.ptr, g->hold.ptr + i, g->hold.len - i);
    g->hold.len -= i;
    if (g->made.len) proa_stream_emit(st, at + 1, proa_buf_view(&g->made), false);
    proa_buf_clear(&g->made);
}

/* A token of printable characters is decoded to bytes; a token with any other character is passed on
 * unchanged. */
static void byte_level_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    PROA_UNUSED(end); /* tokens run together */
    size_t before = g->hold.len;
    for (size_t i = 0; i < s.len;) {
        int32_t c;
        i += (size_t)proa_char_next((proa_str){s.ptr + i, s.len - i}, &c);
        int byte = proa_char_to_byte(c);
        if (byte >= 0) {
            proa_buf_char(&g->hold, (char)byte);
            continue;
        }
        g->hold.len = before;
        proa_buf_str(&g->hold, s);
        break;
    }
    if (g->hold.len) pass_whole_chars(st, at, false);
}

static void byte_level_finish(proa_stream *st, int64_t at)
{
    if (st->stages[at].hold.len) pass_whole_chars(st, at, true);
    proa_stream_emit(st, at + 1, (proa_str){"", 0}, true);
}

static void fuse_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    PROA_UNUSED(end);
    if (s.len) proa_stream_emit(st, at + 1, s, false);
}

static void fuse_finish(proa_stream *st, int64_t at)
{
    proa_stream_emit(st, at + 1, (proa_str){"", 0}, true);
}

/* ---- Metaspace, Strip: piece by piece ---- */

static proa_status metaspace_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->mark = 0x2581;
    PROA_TRY(proa_load_char(j, "replacement", &s->mark, err));
    return proa_load_prepend(j, &s->prepend, err);
}

static void metaspace_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    char mark[4];
    proa_str from = {mark, (size_t)proa_utf8_encode(step_of(st, at)->mark, mark)};
    bool drop = g->count == 0 && step_of(st, at)->prepend != PROA_PREPEND_NEVER;
    replace_literal(&g->made, s, from, (proa_str){" ", drop ? 0 : 1});
    g->count += end;
    proa_stream_emit(st, at + 1, proa_buf_view(&g->made), end);
    proa_buf_clear(&g->made);
}

static proa_status strip_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->mark = -1;
    PROA_TRY(proa_load_char(j, "content", &s->mark, err));
    if (s->mark < 0) return PROA_FAIL(err, INVALID, "'content' is missing");
    PROA_TRY(proa_json_get_int(&s->start, j, "start", 0, INT32_MAX, err));
    return proa_json_get_int(&s->stop, j, "stop", 0, INT32_MAX, err);
}

/* count: characters removed from the front of this token; seen: the front is done; run: pending marks,
 * which may be the last of the token. */
static void strip_char(proa_decoder_state *g, const proa_text_step *step, proa_str one, int32_t c)
{
    if (!g->seen && c == step->mark && g->count < step->start) {
        g->count++;
        return;
    }
    g->seen = true;
    if (c == step->mark && g->run < step->stop) {
        g->run++;
        return;
    }
    for (; c != step->mark && g->run; g->run--) proa_buf_code_point(&g->made, step->mark);
    proa_buf_str(&g->made, one);
}

static void strip_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    for (size_t i = 0; i < s.len;) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){s.ptr + i, s.len - i}, &c);
        strip_char(g, step_of(st, at), (proa_str){s.ptr + i, n}, c);
        i += n;
    }
    if (end) g->count = g->run = 0, g->seen = false;
    if (end || g->made.len) proa_stream_emit(st, at + 1, proa_buf_view(&g->made), end);
    proa_buf_clear(&g->made);
}

/* ---- Replace, WordPiece, BPEDecoder, Joiner, CTC: token by token ---- */

static proa_status replace_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_TRY(proa_load_pattern(ld, j, s, err));
    return proa_load_member(ld, j, "content", &s->content, err);
}

static void replace_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    const proa_text_step *step = step_of(st, at);
    if (!gather_token(g, &s, end)) return;
    if (!step->regex) {
        replace_literal(&g->made, s, step->pattern, step->content);
    } else {
        proa_text_spans spans = {0};
        if (proa_regex_spans(step->regex, s, &spans, NULL) !=
            PROA_OK) { /* the match needs too many steps: the token is unchanged */
            spans.len = 0;
            proa_text_spans_push(&spans, 0, s.len, false);
        }
        for (int64_t i = 0; i < spans.len; i++)
            if (spans.ptr[i].match) proa_buf_str(&g->made, step->content);
            else
                proa_buf_append(&g->made, s.ptr + spans.ptr[i].from,
                                (size_t)(spans.ptr[i].to - spans.ptr[i].from));
        proa_text_spans_release(&spans);
    }
    pass_made(st, at);
}

static proa_status wordpiece_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    s->pattern = (proa_str){"##", 2};
    s->on[0] = true;
    if (proa_json_get(j, "prefix")) PROA_TRY(proa_load_member(ld, j, "prefix", &s->pattern, err));
    return proa_json_get_bool(&s->on[0], j, "cleanup", err);
}

static void wordpiece_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    const proa_text_step *step = step_of(st, at);
    if (!gather_token(g, &s, end)) return;
    bool inside = proa_str_starts(s, step->pattern);
    if (g->count > 0 && inside) s.ptr += step->pattern.len, s.len -= step->pattern.len;
    if (g->count > 0 && !inside) proa_buf_char(&g->made, ' ');
    proa_buf_str(&g->made, s);
    if (step->on[0] && g->made.len) clean_up(&g->made);
    g->count++;
    pass_made(st, at);
}

static proa_status bpe_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    s->pattern = (proa_str){"</w>", 4};
    return proa_json_get(j, "suffix") ? proa_load_member(ld, j, "suffix", &s->pattern, err) : PROA_OK;
}

/* The suffix is removed from the last token and becomes a space in the others, so one token is held back in
 * `made`. */
static void bpe_flush(proa_stream *st, int64_t at, proa_str by)
{
    proa_decoder_state *g = &st->stages[at];
    if (!g->seen) return;
    proa_buf_clear(&g->hold);
    replace_literal(&g->hold, proa_buf_view(&g->made), step_of(st, at)->pattern, by);
    g->seen = false;
    proa_stream_emit(st, at + 1, proa_buf_view(&g->hold), true);
    proa_buf_clear(&g->hold);
    proa_buf_clear(&g->made);
}

static void bpe_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    if (!g->more) bpe_flush(st, at, (proa_str){" ", 1});
    proa_buf_str(&g->made, s);
    g->seen = true;
    g->more = !end;
}

static void bpe_finish(proa_stream *st, int64_t at)
{
    bpe_flush(st, at, (proa_str){"", 0});
}

static proa_status joiner_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    return proa_load_member(ld, j, "joiner", &s->pattern, err);
}

/* subword-nmt: a token that ends with the joiner is joined with the next, the others are words. */
static void joiner_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    if (!gather_token(g, &s, end)) return;
    if (g->count++ > 0 && !g->seen) proa_buf_char(&g->made, ' ');
    g->seen = proa_str_ends(s, step_of(st, at)->pattern);
    if (g->seen) s.len -= step_of(st, at)->pattern.len;
    proa_buf_str(&g->made, s);
    pass_made(st, at);
}

static proa_status ctc_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    s->pattern = (proa_str){"<pad>", 5};
    s->content = (proa_str){"|", 1};
    s->on[0] = true;
    if (proa_json_get(j, "pad_token")) PROA_TRY(proa_load_member(ld, j, "pad_token", &s->pattern, err));
    if (proa_json_get(j, "word_delimiter_token"))
        PROA_TRY(proa_load_member(ld, j, "word_delimiter_token", &s->content, err));
    return proa_json_get_bool(&s->on[0], j, "cleanup", err);
}

static void ctc_token(proa_stream *st, int64_t at, proa_str token)
{
    proa_decoder_state *g = &st->stages[at];
    const proa_text_step *step = step_of(st, at);
    proa_buf_clear(&g->made);
    replace_literal(&g->made, token, step->pattern, (proa_str){"", 0});
    if (step->on[0] && g->made.len) {
        clean_up(&g->made);
        if (step->content.len) shrink_all(&g->made, step->content, (proa_str){" ", 1});
    }
    if (g->made.len) proa_stream_emit(st, at + 1, proa_buf_view(&g->made), true);
}

/* Equal neighbours are emitted once; `hold` keeps the previous token. Fused tokens are rare here and are
 * also collected in `hold` (count: bytes of the earlier token before it). */
static void ctc_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    size_t before = (size_t)g->count;
    proa_buf_str(&g->hold, s);
    if (!end) return;
    proa_str now = {g->hold.ptr + before, g->hold.len - before};
    bool same = g->seen && proa_str_eq(now, (proa_str){g->hold.ptr, before});
    if (!same) ctc_token(st, at, now);
    memmove(g->hold.ptr, g->hold.ptr + before, g->hold.len - before);
    g->hold.len -= before;
    g->count = (int64_t)g->hold.len;
    g->seen = true;
}

/* ---- ByteFallback: runs of <0xNN> ---- */

/* The byte that "<0xNN>" stands for, or -1. Rust's from_str_radix also takes "+N". */
static int byte_of(proa_str s)
{
    if (s.len != 6 || memcmp(s.ptr, "<0x", 3) != 0 || s.ptr[5] != '>') return -1;
    int high = s.ptr[3] == '+' ? 0 : proa_hex_digit(s.ptr[3]), low = proa_hex_digit(s.ptr[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* A run that is UTF-8 as a whole is one token, otherwise each byte is one U+FFFD. The run waits in `made`. */
static void flush_bytes(proa_stream *st, int64_t at)
{
    proa_decoder_state *g = &st->stages[at];
    if (g->made.len == 0) return;
    bool valid = proa_utf8_valid(proa_buf_view(&g->made));
    if (valid) proa_stream_emit(st, at + 1, proa_buf_view(&g->made), true);
    for (size_t i = 0; !valid && i < g->made.len; i++)
        proa_stream_emit(st, at + 1, (proa_str){PROA_REPLACEMENT, PROA_REPLACEMENT_LEN}, true);
    proa_buf_clear(&g->made);
}

static void byte_fallback_feed(proa_stream *st, int64_t at, proa_str s, bool end)
{
    proa_decoder_state *g = &st->stages[at];
    if (!gather_token(g, &s, end)) return;
    int byte = byte_of(s);
    if (byte >= 0) {
        proa_buf_char(&g->made, (char)byte);
    } else {
        flush_bytes(st, at);
        proa_stream_emit(st, at + 1, s, true);
    }
    proa_buf_clear(&g->hold);
}

const proa_text_step_kind proa_decoders[] = {
    {.name = "ByteLevel", .feed = byte_level_feed, .finish = byte_level_finish},
    {.name = "Metaspace", .parse = metaspace_parse, .feed = metaspace_feed},
    {.name = "WordPiece", .parse = wordpiece_parse, .feed = wordpiece_feed},
    {.name = "BPEDecoder", .parse = bpe_parse, .feed = bpe_feed, .finish = bpe_finish},
    {.name = "ByteFallback", .feed = byte_fallback_feed, .finish = flush_bytes},
    {.name = "Fuse", .feed = fuse_feed, .finish = fuse_finish},
    {.name = "Strip", .parse = strip_parse, .feed = strip_feed},
    {.name = "Replace", .parse = replace_parse, .feed = replace_feed},
    {.name = "Joiner", .parse = joiner_parse, .feed = joiner_feed},
    {.name = "CTC", .parse = ctc_parse, .feed = ctc_feed},
    {.name = NULL},
};
