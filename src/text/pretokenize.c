/* SPDX-License-Identifier: Apache-2.0
 * pretokenize.c - the pre-tokenizers of tokenizer.json: each splits one part of the text into parts. */
#include "base/alloc.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>

/* ---- from spans to parts ---- */

/* Merges spans in place and returns their new number. `forward` joins a match with the text before it,
 * otherwise with the text after it; a match is joined only to text (or to the match that began this run).
 * */
static void merge_matches(proa_text_spans *s, bool forward)
{
    int64_t n = 0;
    bool previous = false;
    for (int64_t k = 0; k < s->len; k++) {
        proa_text_span m = s->ptr[forward ? k : s->len - 1 - k];
        proa_text_span *last = n ? &s->ptr[forward ? n - 1 : s->len - n] : NULL;
        if (m.match && !previous && last) {
            if (forward) last->to = m.to;
            else last->from = m.from;
        } else {
            s->ptr[forward ? n : s->len - 1 - n] = m;
            n++;
        }
        previous = m.match;
    }
    if (!forward && n) memmove(s->ptr, s->ptr + s->len - n, (size_t)n * sizeof *s->ptr);
    s->len = n;
}

static void merge_runs(proa_text_spans *s)
{
    int64_t n = 0;
    bool previous = false;
    for (int64_t k = 0; k < s->len; k++) {
        proa_text_span m = s->ptr[k];
        if (n && m.match == previous) s->ptr[n - 1].to = m.to;
        else s->ptr[n++] = m;
        previous = m.match;
    }
    s->len = n;
}

/* Adds text, cut by spans (which this consumes), to out. */
static void add_spans(proa_parts *out, proa_str text, size_t zero, proa_text_spans *s, proa_behavior behavior)
{
    size_t base = out->text.len;
    if (behavior == PROA_MERGED_WITH_PREVIOUS || behavior == PROA_MERGED_WITH_NEXT)
        merge_matches(s, behavior == PROA_MERGED_WITH_PREVIOUS);
    if (behavior == PROA_CONTIGUOUS) merge_runs(s);
    proa_buf_str(&out->text, text);
    if (out->text.full) return;
    for (int64_t i = 0; i < s->len; i++)
        if (behavior != PROA_REMOVED || !s->ptr[i].match)
            proa_parts_add(out, base, (size_t)s->ptr[i].from, (size_t)s->ptr[i].to, zero, -1);
}

/* Spans of a class of characters: each character of the class is a match of its own. */
static void class_spans(proa_str text, bool (*in_class)(int32_t), proa_text_spans *out)
{
    size_t done = 0;
    for (size_t i = 0; i < text.len;) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){text.ptr + i, text.len - i}, &c);
        if (in_class(c)) {
            if (done < i) proa_text_spans_push(out, done, i, false);
            proa_text_spans_push(out, i, i + n, true);
            done = i + n;
        }
        i += n;
    }
    if (done < text.len) proa_text_spans_push(out, done, text.len, false);
}

static proa_status split_class(bool (*in_class)(int32_t), proa_behavior behavior, proa_str in, size_t zero,
                               proa_parts *out)
{
    proa_text_spans spans = {0};
    class_spans(in, in_class, &spans);
    add_spans(out, in, zero, &spans, behavior);
    proa_text_spans_release(&spans);
    return PROA_OK;
}

/* ---- classes of characters ---- */

static proa_status whitespace_split(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out,
                                    proa_err *err)
{
    PROA_UNUSED(s);
    PROA_UNUSED(err);
    return split_class(proa_char_is_space, PROA_REMOVED, in, zero, out);
}

static proa_status punctuation_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->behavior = PROA_ISOLATED;
    return proa_load_behavior(j, &s->behavior, err);
}

static proa_status split_punctuation(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out,
                                     proa_err *err)
{
    PROA_UNUSED(err);
    return split_class(proa_char_is_punct, s->behavior, in, zero, out);
}

static proa_status digits_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    return proa_json_get_bool(&s->on[0], j, "individual_digits", err);
}

static proa_status split_digits(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    PROA_UNUSED(err);
    return split_class(proa_char_is_numeric, s->on[0] ? PROA_ISOLATED : PROA_CONTIGUOUS, in, zero, out);
}

/* Removes whitespace and isolates punctuation, both in one pass. */
static proa_status split_bert(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    PROA_UNUSED(s);
    PROA_UNUSED(err);
    size_t base = out->text.len, done = 0;
    if (!proa_buf_str(&out->text, in)) return PROA_OK;
    for (size_t i = 0; i < in.len;) {
        int32_t c = (unsigned char)in.ptr[i];
        size_t n = 1;
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') { /* most are letters */
            i++;
            continue;
        }
        if (c >= 0x80) n = (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
        bool space = proa_char_is_space(c), punct = !space && proa_char_is_punct(c);
        if (space || punct) proa_parts_add(out, base, done, i, zero, -1);
        if (punct) proa_parts_add(out, base, i, i + n, zero, -1);
        i += n;
        if (space || punct) done = i;
    }
    proa_parts_add(out, base, done, in.len, zero, -1);
    return PROA_OK;
}

/* \w+|[^\w\s]+ : runs of word characters, runs of anything else but blanks. */
static proa_status split_whitespace(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out,
                                    proa_err *err)
{
    PROA_UNUSED(s);
    PROA_UNUSED(err);
    size_t base = out->text.len, done = 0;
    int previous = 0; /* 0: blank, 1: word, 2: other */
    if (!proa_buf_str(&out->text, in)) return PROA_OK;
    for (size_t i = 0; i <= in.len;) {
        int32_t c;
        size_t n = 1;
        int class = 0;
        if (i < in.len) {
            n = (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
            class = proa_char_is_word(c) ? 1 : proa_char_is_space(c) ? 0 : 2;
        }
        if (class != previous) {
            if (previous) proa_parts_add(out, base, done, i, zero, -1);
            done = i;
        }
        previous = class;
        i += n;
    }
    return PROA_OK;
}

static proa_status delimiter_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->mark = -1;
    PROA_TRY(proa_load_char(j, "delimiter", &s->mark, err));
    if (s->mark < 0) return PROA_FAIL(err, INVALID, "CharDelimiterSplit has no delimiter");
    return PROA_OK;
}

static proa_status split_delimiter(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out,
                                   proa_err *err)
{
    PROA_UNUSED(err);
    proa_text_spans spans = {0};
    char bytes[4];
    proa_str mark = {bytes, (size_t)proa_utf8_encode(s->mark, bytes)};
    proa_literal_spans(mark, in, &spans);
    add_spans(out, in, zero, &spans, PROA_REMOVED);
    proa_text_spans_release(&spans);
    return PROA_OK;
}

static proa_status fixed_length_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->start = 5;
    return proa_json_get_int(&s->start, j, "length", 1, INT32_MAX, err);
}

static proa_status fixed_length(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    PROA_UNUSED(err);
    size_t base = out->text.len, done = 0;
    int64_t chars = 0;
    if (!proa_buf_str(&out->text, in)) return PROA_OK;
    for (size_t i = 0; i < in.len;) {
        int32_t c;
        i += (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
        if (++chars % s->start && i < in.len) continue;
        proa_parts_add(out, base, done, i, zero, -1);
        done = i;
    }
    return PROA_OK;
}

/* ---- UnicodeScripts ---- */

/* Cuts where the script changes. Characters without one (blanks) go with what is before them; as in the library, those
 * before the first script are lost. */
static proa_status split_scripts(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    PROA_UNUSED(s);
    PROA_UNUSED(err);
    size_t base = out->text.len, done = 0;
    int last = -1; /* -1: none yet */
    if (!proa_buf_str(&out->text, in)) return PROA_OK;
    for (size_t i = 0; i < in.len;) {
        int32_t c;
        size_t n = (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
        int script = proa_char_script(c);
        if (script && script != last) {
            if (last >= 0) proa_parts_add(out, base, done, i, zero, -1);
            done = i;
        }
        if (script) last = script;
        i += n;
    }
    if (last >= 0) proa_parts_add(out, base, done, in.len, zero, -1);
    return PROA_OK;
}

/* ---- Split ---- */

static proa_status split_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_TRY(proa_load_pattern(ld, j, s, err));
    s->behavior = PROA_ISOLATED;
    PROA_TRY(proa_load_behavior(j, &s->behavior, err));
    return proa_json_get_bool(&s->on[0], j, "invert", err);
}

static proa_status split_pattern(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    proa_text_spans spans = {0};
    proa_status status = proa_text_step_spans(s, in, &spans, err);
    for (int64_t i = 0; s->on[0] && i < spans.len; i++) spans.ptr[i].match = !spans.ptr[i].match;
    if (status == PROA_OK) add_spans(out, in, zero, &spans, s->behavior);
    proa_text_spans_release(&spans);
    return status;
}

/* ---- Metaspace ---- */

static proa_status metaspace_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->mark = 0x2581;
    s->on[0] = true;
    PROA_TRY(proa_load_char(j, "replacement", &s->mark, err));
    PROA_TRY(proa_load_prepend(j, &s->prepend, err));
    return proa_json_get_bool(&s->on[0], j, "split", err);
}

/* Writes `in` with the mark for spaces, and one in front if the scheme requires it; returns the new zero.
 * */
static size_t put_marked(const proa_text_step *s, proa_str in, size_t zero, proa_str mark, proa_buf *out)
{
    size_t base = out->len, new_zero = 0;
    bool marked = *in.ptr == ' ' || proa_str_starts(in, mark);
    bool first = s->prepend == PROA_PREPEND_ALWAYS || (s->prepend == PROA_PREPEND_FIRST && zero > 0);
    if (first && !marked) proa_buf_str(out, mark);
    if (zero) new_zero = out->len - base;
    for (size_t i = 0; i < in.len; i++) {
        if (in.ptr[i] == ' ') proa_buf_str(out, mark);
        else proa_buf_char(out, in.ptr[i]);
        if (i < zero) new_zero = out->len - base;
    }
    return new_zero;
}

/* Replaces spaces by the mark, puts one in front, and cuts the text before each mark. */
static proa_status split_metaspace(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out,
                                   proa_err *err)
{
    PROA_UNUSED(err);
    char bytes[4];
    proa_str mark = {bytes, (size_t)proa_utf8_encode(s->mark, bytes)};
    size_t base = out->text.len, done = 0;
    if (in.len == 0) return PROA_OK;
    zero = put_marked(s, in, zero, mark, &out->text);
    if (out->text.full) return PROA_OK;
    size_t len = out->text.len - base;
    for (size_t i = 1; s->on[0] && i + mark.len <= len; i++) {
        if (memcmp(out->text.ptr + base + i, mark.ptr, mark.len) != 0) continue;
        proa_parts_add(out, base, done, i, zero, -1);
        done = i;
    }
    proa_parts_add(out, base, done, len, zero, -1);
    return PROA_OK;
}

/* ---- ByteLevel ---- */

/* GPT-2's pattern (Radford et al. 2019, encoder.py). */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static proa_status byte_level_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    bool use_regex = true;
    s->on[0] = true;
    PROA_TRY(proa_json_get_bool(&s->on[0], j, "add_prefix_space", err));
    PROA_TRY(proa_json_get_bool(&use_regex, j, "use_regex", err));
    return use_regex ? proa_load_regex(ld, proa_str_c(gpt2_pattern), &s->regex, err) : PROA_OK;
}

/* Appends the bytes [from, to) of in as GPT-2's characters and as one part. */
static void add_bytes(proa_parts *out, proa_str in, size_t from, size_t to, size_t zero)
{
    size_t base = out->text.len, new_zero = 0;
    for (size_t i = from; i < to; i++) {
        unsigned char b = (unsigned char)in.ptr[i];
        if (b > 0x20 && b < 0x7F) proa_buf_char(&out->text, (char)b);
        else proa_buf_code_point(&out->text, proa_byte_to_char(b));
        if (i < zero) new_zero = out->text.len - base;
    }
    if (!out->text.full) proa_parts_add(out, base, 0, out->text.len - base, new_zero, -1);
}

static proa_status byte_level(const proa_text_step *s, proa_str in, size_t zero, proa_parts *out, proa_err *err)
{
    proa_status status = PROA_OK;
    proa_buf spaced = {0};
    if (s->on[0] && in.len && *in.ptr != ' ') {
        proa_buf_init(&spaced, in.len + 2);
        proa_buf_char(&spaced, ' ');
        proa_buf_str(&spaced, in);
        in = proa_buf_view(&spaced);
        if (zero) zero++;
    }
    proa_text_spans spans = {0};
    if (s->regex) status = proa_regex_spans(s->regex, in, &spans, err);
    else proa_text_spans_push(&spans, 0, in.len, false);
    for (int64_t i = 0; status == PROA_OK && i < spans.len; i++)
        add_bytes(out, in, (size_t)spans.ptr[i].from, (size_t)spans.ptr[i].to, zero);
    proa_text_spans_release(&spans);
    proa_buf_release(&spaced);
    return status;
}

const proa_text_step_kind proa_pre_tokenizers[] = {
    {.name = "ByteLevel", .parse = byte_level_parse, .split = byte_level},
    {.name = "Metaspace", .parse = metaspace_parse, .split = split_metaspace},
    {.name = "Split", .parse = split_parse, .split = split_pattern},
    {.name = "Whitespace", .split = split_whitespace},
    {.name = "WhitespaceSplit", .split = whitespace_split},
    {.name = "Punctuation", .parse = punctuation_parse, .split = split_punctuation},
    {.name = "Digits", .parse = digits_parse, .split = split_digits},
    {.name = "BertPreTokenizer", .split = split_bert},
    {.name = "CharDelimiterSplit", .parse = delimiter_parse, .split = split_delimiter},
    {.name = "UnicodeScripts", .split = split_scripts},
    {.name = "FixedLength", .parse = fixed_length_parse, .split = fixed_length},
    {.name = NULL},
};
