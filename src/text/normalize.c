/* SPDX-License-Identifier: Apache-2.0
 * normalize.c - the normalizers of tokenizer.json. Each appends the new form of `in` to out and counts
 * how many leading bytes of it come from offset 0 of the caller's text (see pipeline.h). */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/load/load.h"
#include "text/pipeline.h"
#include "text/unicode.h"
#include <string.h>
#include <utf8proc.h>

/* ---- character by character ---- */

/* Writes what one character becomes; 0..n characters. */
typedef void char_fn(const proa_text_step *step, int32_t c, proa_buf *out);

static void each_char(const proa_text_step *step, proa_str in, size_t *zero, proa_buf *out, char_fn *fn)
{
    size_t start = out->len, zero_in = *zero;
    *zero = 0;
    for (size_t i = 0; i < in.len;) {
        int32_t c;
        i += (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
        fn(step, c, out);
        if (i <= zero_in) *zero = out->len - start;
    }
}

/* Rust's char::to_lowercase: full mappings without context; only U+0130 has one of two characters. */
static void lower_char(const proa_text_step *step, int32_t c, proa_buf *out)
{
    PROA_UNUSED(step);
    if (c < 0x80) {
        proa_buf_char(out, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
    } else if (c == 0x130) {
        proa_buf_append(out, "i\xCC\x87", 3);
    } else {
        proa_buf_code_point(out, utf8proc_tolower(c));
    }
}

static void strip_mark(const proa_text_step *step, int32_t c, proa_buf *out)
{
    PROA_UNUSED(step);
    if (!proa_char_is_mark(c)) proa_buf_code_point(out, c);
}

static void byte_level_char(const proa_text_step *step, int32_t c, proa_buf *out)
{
    PROA_UNUSED(step);
    char bytes[4];
    int n = proa_utf8_encode(c, bytes);
    for (int i = 0; i < n; i++) proa_buf_code_point(out, proa_byte_to_char((unsigned char)bytes[i]));
}

/* SentencePiece's nmt rules as in the tokenizers library: control characters are removed, unusual blanks
 * become spaces. */
static void nmt_char(const proa_text_step *step, int32_t c, proa_buf *out)
{
    static const struct {
        int32_t low, high;
        bool blank;
    } rules[] = {{1, 8, false},          {9, 0xA, true},         {0xB, 0xB, false},
                 {0xC, 0xD, true},       {0xE, 0x1F, false},     {0x7F, 0x7F, false},
                 {0x8F, 0x8F, false},    {0x9F, 0x9F, false},    {0x1680, 0x1680, true},
                 {0x200B, 0x200F, true}, {0x2028, 0x2029, true}, {0x2581, 0x2581, true},
                 {0xFEFF, 0xFEFF, true}, {0xFFFD, 0xFFFD, true}};
    PROA_UNUSED(step);
    for (size_t i = 0; i < PROA_COUNT(rules) && c >= rules[i].low; i++) {
        if (c > rules[i].high) continue;
        if (rules[i].blank) proa_buf_char(out, ' ');
        return;
    }
    proa_buf_code_point(out, c);
}

#define EACH_CHAR(name, fn)                                                                                      \
    static proa_status name(const proa_text_step *step, proa_str in, size_t *zero, proa_buf *out, proa_err *err) \
    {                                                                                                            \
        PROA_UNUSED(err);                                                                                        \
        each_char(step, in, zero, out, fn);                                                                      \
        return PROA_OK;                                                                                          \
    }
EACH_CHAR(lowercase, lower_char)
EACH_CHAR(strip_accents, strip_mark)
EACH_CHAR(byte_level, byte_level_char)
EACH_CHAR(nmt, nmt_char)

/* ---- Unicode normalisation forms (UAX 15) ---- */

typedef struct code_points {
    int32_t *ptr;
    int64_t len, cap;
} code_points;

/* utf8proc sorts marks by exchange, which is quadratic on long runs; counting over the 255 combining classes is
 * stable and linear. */
static void sort_marks(int32_t *c, int64_t n, int32_t *spare)
{
    int64_t count[257] = {0};
    for (int64_t i = 0; i < n; i++) count[utf8proc_get_property(c[i])->combining_class + 1]++;
    for (int k = 0; k < 256; k++) count[k + 1] += count[k];
    for (int64_t i = 0; i < n; i++) spare[count[utf8proc_get_property(c[i])->combining_class]++] = c[i];
    memcpy(c, spare, (size_t)n * sizeof *c);
}

static void sort_run(int32_t *c, int64_t n, int32_t *spare)
{
    if (n < 2) return;
    for (int64_t i = 1; i < n; i++)
        if (utf8proc_get_property(c[i - 1])->combining_class > utf8proc_get_property(c[i])->combining_class) {
            sort_marks(c, n, spare);
            return;
        }
}

static void decompose_text(code_points *r, proa_str in, utf8proc_option_t options)
{
    r->cap = (int64_t)in.len + 32;
    r->ptr = proa_malloc((size_t)r->cap * sizeof *r->ptr);
    int boundary = 0;
    for (size_t i = 0; i < in.len;) {
        int32_t c;
        i += (size_t)proa_char_next((proa_str){in.ptr + i, in.len - i}, &c);
        if (r->len + 32 > r->cap) { /* the longest decomposition has 18 characters */
            r->cap *= 2;
            r->ptr = proa_realloc(r->ptr, (size_t)r->cap * sizeof *r->ptr);
        }
        utf8proc_ssize_t n = utf8proc_decompose_char(c, r->ptr + r->len, r->cap - r->len, options, &boundary);
        PROA_ASSERT(n >= 0);
        r->len += n;
    }
}

static void reorder_marks(code_points *r)
{
    int32_t *spare = NULL;
    for (int64_t i = 0; i < r->len;) {
        int64_t j = i;
        while (j < r->len && utf8proc_get_property(r->ptr[j])->combining_class != 0) j++;
        if (j - i > 1 && !spare) spare = proa_malloc((size_t)r->len * sizeof *spare);
        sort_run(r->ptr + i, j - i, spare);
        i = j > i ? j : i + 1;
    }
    free(spare);
}

static bool ascii_only(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] >= 0x80) return false;
    return true;
}

/* Sets *zero to the length of the first character's result (a following mark may have joined it; the
 * library also counts the composed character as the first). */
static void to_form(proa_str in, size_t *zero, proa_buf *out, utf8proc_option_t options)
{
    size_t start = out->len;
    if (ascii_only(in)) {
        proa_buf_str(out, in);
        return;
    }
    code_points r = {0}, head = {0};
    options |= UTF8PROC_STABLE;
    decompose_text(&r, in, options);
    reorder_marks(&r);
    if (options & UTF8PROC_COMPOSE) r.len = utf8proc_normalize_utf32(r.ptr, r.len, options);
    if (*zero) decompose_text(&head, (proa_str){in.ptr, *zero < in.len ? *zero : in.len}, options);
    int64_t zero_points = options & UTF8PROC_COMPOSE ? (*zero > 0) : head.len;
    *zero = 0;
    for (int64_t i = 0; i < r.len; i++) {
        proa_buf_code_point(out, r.ptr[i]);
        if (i < zero_points) *zero = out->len - start;
    }
    free(r.ptr);
    free(head.ptr);
}

#define FORM(name, options)                                                                                      \
    static proa_status name(const proa_text_step *step, proa_str in, size_t *zero, proa_buf *out, proa_err *err) \
    {                                                                                                            \
        PROA_UNUSED(step);                                                                                       \
        PROA_UNUSED(err);                                                                                        \
        to_form(in, zero, out, (utf8proc_option_t)(options));                                                    \
        return PROA_OK;                                                                                          \
    }
FORM(nfd, UTF8PROC_DECOMPOSE)
FORM(nfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT)
FORM(nfc, UTF8PROC_COMPOSE)
FORM(nfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT)

/* ---- BertNormalizer ---- */

enum { BERT_CLEAN, BERT_CHINESE, BERT_ACCENTS, BERT_LOWER }; /* of on[] */

static proa_status bert_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->on[BERT_CLEAN] = s->on[BERT_CHINESE] = s->on[BERT_LOWER] = true;
    PROA_TRY(proa_json_get_bool(&s->on[BERT_CLEAN], j, "clean_text", err));
    PROA_TRY(proa_json_get_bool(&s->on[BERT_CHINESE], j, "handle_chinese_chars", err));
    PROA_TRY(proa_json_get_bool(&s->on[BERT_LOWER], j, "lowercase", err));
    s->on[BERT_ACCENTS] = s->on[BERT_LOWER];
    return proa_json_get_bool(&s->on[BERT_ACCENTS], j, "strip_accents", err);
}

static void bert_clean_char(const proa_text_step *s, int32_t c, proa_buf *out)
{
    bool blank = c == '\t' || c == '\n' || c == '\r' || proa_char_is_space(c);
    if (s->on[BERT_CLEAN]) {
        bool control = c != '\t' && c != '\n' && c != '\r' && proa_char_is_other(c);
        if (c == 0 || c == 0xFFFD || control) return;
        if (blank) c = ' ';
    }
    bool han = s->on[BERT_CHINESE] && proa_char_is_han(c);
    if (han) proa_buf_char(out, ' ');
    proa_buf_code_point(out, c);
    if (han) proa_buf_char(out, ' ');
}

static void strip_nonspacing(const proa_text_step *step, int32_t c, proa_buf *out)
{
    PROA_UNUSED(step);
    if (c < 0x80 || !proa_char_is_nonspacing(c)) proa_buf_code_point(out, c);
}

/* The new form of an ASCII byte; -1: removed. */
static int bert_byte(const proa_text_step *s, unsigned char c)
{
    bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (s->on[BERT_CLEAN] && blank) return ' ';
    if (s->on[BERT_CLEAN] && (c < 0x20 || c == 0x7F)) return -1;
    return s->on[BERT_LOWER] && c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c;
}

/* For ASCII every step works on single bytes: all of them in one pass, which is enough for most texts. */
static void bert_ascii(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out)
{
    size_t start = out->len, zero_in = *zero;
    *zero = 0;
    if (!proa_buf_reserve(out, in.len)) return;
    char *to = out->ptr + start;
    for (size_t i = 0; i < in.len; i++) {
        int c = bert_byte(s, (unsigned char)in.ptr[i]);
        if (c >= 0) *to++ = (char)c;
        if (i < zero_in) *zero = (size_t)(to - out->ptr) - start;
    }
    *to = '\0';
    out->len = (size_t)(to - out->ptr);
}

static proa_status normalize_bert(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out, proa_err *err)
{
    PROA_UNUSED(err);
    if (ascii_only(in)) return bert_ascii(s, in, zero, out), PROA_OK;
    proa_buf a, b;
    proa_buf_init(&a, (size_t)PROA_NORMALIZED_BYTES_MAX);
    proa_buf_init(&b, (size_t)PROA_NORMALIZED_BYTES_MAX);
    each_char(s, in, zero, &a, bert_clean_char);
    if (s->on[BERT_ACCENTS]) {
        to_form(proa_buf_view(&a), zero, &b, UTF8PROC_DECOMPOSE);
        proa_buf_clear(&a);
        each_char(s, proa_buf_view(&b), zero, &a, strip_nonspacing);
    }
    if (s->on[BERT_LOWER]) each_char(s, proa_buf_view(&a), zero, out, lower_char);
    else proa_buf_str(out, proa_buf_view(&a));
    proa_buf_release(&a);
    proa_buf_release(&b);
    return PROA_OK;
}

/* ---- Strip, Prepend, Replace, Precompiled ---- */

enum { STRIP_LEFT, STRIP_RIGHT };

static proa_status strip_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_UNUSED(ld);
    s->on[STRIP_LEFT] = s->on[STRIP_RIGHT] = true;
    PROA_TRY(proa_json_get_bool(&s->on[STRIP_LEFT], j, "strip_left", err));
    return proa_json_get_bool(&s->on[STRIP_RIGHT], j, "strip_right", err);
}

static proa_status strip_spaces(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out, proa_err *err)
{
    PROA_UNUSED(err);
    int32_t c;
    while (s->on[STRIP_LEFT] && in.len) {
        size_t n = (size_t)proa_char_next(in, &c);
        if (!proa_char_is_space(c)) break;
        in.ptr += n, in.len -= n;
        *zero = *zero > n ? *zero - n : 0;
    }
    while (s->on[STRIP_RIGHT] && in.len) {
        size_t at = proa_char_last(in);
        proa_char_next((proa_str){in.ptr + at, in.len - at}, &c);
        if (!proa_char_is_space(c)) break;
        in.len = at;
    }
    if (*zero > in.len) *zero = in.len;
    proa_buf_str(out, in);
    return PROA_OK;
}

static proa_status prepend_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    return proa_load_member(ld, j, "prepend", &s->content, err);
}

static proa_status prepend_text(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out, proa_err *err)
{
    PROA_UNUSED(err);
    if (in.len == 0) return PROA_OK;
    proa_buf_str(out, s->content);
    proa_buf_str(out, in);
    if (*zero) *zero += s->content.len;
    return PROA_OK;
}

static proa_status replace_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    PROA_TRY(proa_load_pattern(ld, j, s, err));
    return proa_load_member(ld, j, "content", &s->content, err);
}

/* A replacement has the offset of the last byte of its match. */
static proa_status replace_pattern(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out,
                                   proa_err *err)
{
    proa_text_spans spans = {0};
    proa_status status = proa_text_step_spans(s, in, &spans, err);
    size_t start = out->len, zero_in = *zero;
    *zero = 0;
    for (int64_t i = 0; status == PROA_OK && i < spans.len && !out->full; i++) {
        size_t from = (size_t)spans.ptr[i].from, to = (size_t)spans.ptr[i].to;
        bool match = spans.ptr[i].match;
        if (match) proa_buf_str(out, s->content);
        else proa_buf_append(out, in.ptr + from, to - from);
        if (to <= zero_in || to == 0) *zero = out->len - start;
        else if (!match && from < zero_in) *zero = out->len - start - (to - zero_in);
    }
    proa_text_spans_release(&spans);
    return status;
}

static proa_status precompiled_parse(proa_loader *ld, const proa_json *j, proa_text_step *s, proa_err *err)
{
    proa_str blob = {"", 0};
    PROA_TRY(proa_json_get_str(&blob, j, "precompiled_charsmap", err));
    return proa_charsmap_new_base64(&s->charsmap, &ld->tok->arena, blob, err);
}

static proa_status apply_charsmap(const proa_text_step *s, proa_str in, size_t *zero, proa_buf *out, proa_err *err)
{
    PROA_UNUSED(err);
    proa_charsmap_apply(s->charsmap, in, zero, out);
    return PROA_OK;
}

const proa_text_step_kind proa_normalizers[] = {
    {.name = "NFC", .normalize = nfc},
    {.name = "NFD", .normalize = nfd},
    {.name = "NFKC", .normalize = nfkc},
    {.name = "NFKD", .normalize = nfkd},
    {.name = "Lowercase", .normalize = lowercase},
    {.name = "StripAccents", .normalize = strip_accents},
    {.name = "Strip", .parse = strip_parse, .normalize = strip_spaces},
    {.name = "Replace", .parse = replace_parse, .normalize = replace_pattern},
    {.name = "Prepend", .parse = prepend_parse, .normalize = prepend_text},
    {.name = "Precompiled", .parse = precompiled_parse, .normalize = apply_charsmap},
    {.name = "BertNormalizer", .parse = bert_parse, .normalize = normalize_bert},
    {.name = "ByteLevel", .normalize = byte_level},
    {.name = "Nmt", .normalize = nmt},
    {.name = NULL},
};

/* Runs all normalisers; out gets the result appended. */
proa_status proa_normalize(const proa_tokenizer *tok, proa_str in, size_t *zero, proa_buf *out, proa_err *err)
{
    const proa_text_steps *steps = &tok->normalizers;
    if (steps->len == 0) {
        proa_buf_str(out, in);
        return PROA_OK;
    }
    proa_buf scratch[2];
    for (int i = 0; i < 2; i++) proa_buf_init(&scratch[i], (size_t)PROA_NORMALIZED_BYTES_MAX);
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < steps->len; i++) {
        proa_buf *to = i + 1 == steps->len ? out : &scratch[i & 1];
        if (to != out) proa_buf_clear(to);
        PROA_TRY_OUT(steps->ptr[i].kind->normalize(&steps->ptr[i], in, zero, to, err));
        if (to->full) {
            status = PROA_FAIL(err, LIMIT, "normalised text is longer than %lld bytes",
                               (long long)PROA_NORMALIZED_BYTES_MAX);
            goto out;
        }
        in = proa_buf_view(to);
    }
out:
    for (int i = 0; i < 2; i++) proa_buf_release(&scratch[i]);
    return status;
}
