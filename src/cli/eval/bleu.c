/* SPDX-License-Identifier: Apache-2.0
 * bleu.c - corpus BLEU with 13a tokenization. */
#include "cli/eval/bleu.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/map.h"
#include <math.h>
#include <string.h>

static const size_t TOKENS_BYTES_MAX = (size_t)(1024 * PROA_MIB);

void proa_bleu_init(proa_bleu *b)
{
    *b = (proa_bleu){.hyp_tokens = 0};
    proa_buf_init(&b->hyp, TOKENS_BYTES_MAX);
    proa_buf_init(&b->ref, TOKENS_BYTES_MAX);
}

void proa_bleu_release(proa_bleu *b)
{
    proa_buf_release(&b->hyp);
    proa_buf_release(&b->ref);
}

/* The white space that Python's str.split() splits at. Returns its length in bytes at s, or 0. */
static size_t space_at(const char *s, size_t len)
{
    static const int32_t ranges[][2] = {
        {9, 13},          {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
        {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
    int32_t c;
    int n = proa_utf8_decode(s, len, &c);
    for (size_t i = 0; i < PROA_COUNT(ranges) && n > 0; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return (size_t)n;
    return 0;
}

/* Length of the line without the spaces at its end. */
static size_t stripped_length(proa_str s)
{
    size_t keep = 0;
    for (size_t i = 0; i < s.len;) {
        size_t space = space_at(s.ptr + i, s.len - i);
        i += space ? space : 1;
        if (!space) keep = i;
    }
    return keep;
}

static void replace_all(proa_buf *buf, const char *from, const char *to)
{
    size_t n = strlen(from), m = strlen(to), out = 0;
    for (size_t i = 0; i < buf->len;) {
        if (buf->len - i >= n && memcmp(buf->ptr + i, from, n) == 0) {
            memcpy(buf->ptr + out, to, m); /* never longer than `from` */
            out += m, i += n;
        } else {
            buf->ptr[out++] = buf->ptr[i++];
        }
    }
    buf->len = out;
    if (buf->ptr) buf->ptr[out] = '\0';
}

/* mteval's entities and hyphenation, in its order: "&amp;lt;" becomes "<". */
static void unescape_entities(proa_buf *buf)
{
    static const char *const rules[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                           {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    for (size_t i = 0; i < PROA_COUNT(rules); i++) replace_all(buf, rules[i][0], rules[i][1]);
}

/* ASCII punctuation that is always a token of its own: all but the apostrophe, comma, hyphen and full stop.
 * */
static bool is_symbol(char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool stop_or_comma(char c)
{
    return c == '.' || c == ',';
}

/* One of 13a's rules for a pair of neighbours, with the meaning of a substitution from left to right: what was
 * matched is not looked at again. `pair` says whether (a, b) matches; before, between and after say where a space
 * goes. A byte is enough of a neighbour: no rule asks more of a longer character than that it is not a digit. */
typedef struct pair_rule {
    bool (*pair)(char a, char b);
    bool before, after;
} pair_rule;

static bool stop_after_other(char a, char b)
{
    return !is_digit(a) && stop_or_comma(b);
}

static bool stop_before_other(char a, char b)
{
    return stop_or_comma(a) && !is_digit(b);
}

static bool dash_after_digit(char a, char b)
{
    return is_digit(a) && b == '-';
}

static void apply_rule(proa_buf *out, proa_str in, const pair_rule *rule)
{
    for (size_t i = 0; i < in.len;) {
        bool hit = i + 1 < in.len && rule->pair(in.ptr[i], in.ptr[i + 1]);
        if (hit && rule->before) proa_buf_char(out, ' ');
        proa_buf_char(out, in.ptr[i++]);
        if (!hit) continue;
        proa_buf_char(out, ' ');
        proa_buf_char(out, in.ptr[i++]);
        if (rule->after) proa_buf_char(out, ' ');
    }
}

static void split_tokens(proa_buf *out, proa_str text)
{
    bool inside = false;
    for (size_t i = 0; i < text.len;) {
        size_t space = space_at(text.ptr + i, text.len - i);
        if (space && inside) proa_buf_char(out, '\n');
        if (!space) proa_buf_char(out, text.ptr[i]);
        inside = !space;
        i += space ? space : 1;
    }
    if (inside) proa_buf_char(out, '\n');
}

void proa_bleu_tokens(proa_buf *out, proa_str line)
{
    static const pair_rule rules[] = {
        {stop_after_other, false, true}, {stop_before_other, true, false}, {dash_after_digit, false, true}};
    proa_buf a, b;
    proa_buf_init(&a, TOKENS_BYTES_MAX);
    proa_buf_init(&b, TOKENS_BYTES_MAX);
    proa_buf_append(&b, line.ptr, stripped_length(line));
    unescape_entities(&b);
    proa_buf_char(&a, ' ');
    for (size_t i = 0; i < b.len; i++) {
        if (is_symbol(b.ptr[i])) proa_buf_char(&a, ' ');
        proa_buf_char(&a, b.ptr[i]);
        if (is_symbol(b.ptr[i])) proa_buf_char(&a, ' ');
    }
    proa_buf_char(&a, ' ');
    for (size_t i = 0; i < PROA_COUNT(rules); i++) {
        proa_buf_clear(&b);
        apply_rule(&b, proa_buf_view(&a), &rules[i]);
        proa_buf swap = a;
        a = b, b = swap;
    }
    split_tokens(out, proa_buf_view(&a));
    proa_buf_release(&a);
    proa_buf_release(&b);
}

/* Offsets of the tokens in the token text, so that an n-gram is one slice of it. */
static int64_t token_starts(int64_t **out, const proa_buf *tokens)
{
    int64_t count = 0;
    for (size_t i = 0; i < tokens->len; i++) count += tokens->ptr[i] == '\n';
    int64_t *at = proa_malloc((size_t)(count + 1) * sizeof *at);
    int64_t n = 0;
    at[0] = 0;
    for (size_t i = 0; i < tokens->len; i++)
        if (tokens->ptr[i] == '\n') at[++n] = (int64_t)i + 1;
    *out = at;
    return count;
}

static proa_str gram_at(const proa_buf *tokens, const int64_t *at, int64_t i, int order)
{
    return (proa_str){tokens->ptr + at[i], (size_t)(at[i + order] - at[i])};
}

/* Matches of one order, each n-gram counted at most as often as the reference has it. */
static int64_t count_matches(const proa_bleu *b, const int64_t *hyp_at, int64_t hyp_n, const int64_t *ref_at,
                             int64_t ref_n, int order)
{
    proa_map left;
    int64_t correct = 0;
    proa_map_init(&left, ref_n);
    for (int64_t i = 0; i + order <= ref_n; i++) {
        proa_str g = gram_at(&b->ref, ref_at, i, order);
        int32_t have = 0;
        proa_map_find(&left, g, &have);
        proa_map_put(&left, g, have + 1);
    }
    for (int64_t i = 0; i + order <= hyp_n; i++) {
        proa_str g = gram_at(&b->hyp, hyp_at, i, order);
        int32_t have = 0;
        if (!proa_map_find(&left, g, &have) || have == 0) continue;
        proa_map_put(&left, g, have - 1);
        correct++;
    }
    proa_map_release(&left);
    return correct;
}

void proa_bleu_add(proa_bleu *b, proa_str hypothesis, proa_str reference)
{
    proa_buf_clear(&b->hyp);
    proa_buf_clear(&b->ref);
    proa_bleu_tokens(&b->hyp, hypothesis);
    proa_bleu_tokens(&b->ref, reference);
    int64_t *hyp_at, *ref_at;
    int64_t hyp_n = token_starts(&hyp_at, &b->hyp), ref_n = token_starts(&ref_at, &b->ref);
    b->hyp_tokens += hyp_n;
    b->ref_tokens += ref_n;
    for (int order = 1; order <= PROA_BLEU_ORDERS; order++) {
        if (hyp_n < order) break;
        b->total[order - 1] += hyp_n - order + 1;
        b->correct[order - 1] += count_matches(b, hyp_at, hyp_n, ref_at, ref_n, order);
    }
    free(hyp_at);
    free(ref_at);
}

proa_bleu_result proa_bleu_score(const proa_bleu *b)
{
    proa_bleu_result r = {.brevity = 1};
    if (b->hyp_tokens < b->ref_tokens)
        r.brevity = b->hyp_tokens ? exp(1 - (double)b->ref_tokens / (double)b->hyp_tokens) : 0;
    double halve = 1, sum = 0;
    bool any = false, zero = false;
    for (int n = 0; n < PROA_BLEU_ORDERS; n++) any |= b->correct[n] > 0;
    for (int n = 0; n < PROA_BLEU_ORDERS && any; n++) {
        if (b->total[n] == 0) { /* no n-grams of this length: the product of precisions is zero */
            zero = true;
            break;
        }
        /* an order without matches counts as 1/2, then 1/4, ... of a match */
        double correct = b->correct[n] ? (double)b->correct[n] : 1 / (halve *= 2);
        r.precisions[n] = 100 * correct / (double)b->total[n];
        sum += log(r.precisions[n]);
    }
    if (any && !zero) r.score = r.brevity * exp(sum / PROA_BLEU_ORDERS);
    return r;
}
