/* SPDX-License-Identifier: Apache-2.0
 * schema_scalar.c - strings and numbers of a schema: patterns, formats, lengths, and ranges digit by digit. */
#include "grammar/schema_inner.h"

#include "base/checked.h"
#include "base/limits.h"
#include "grammar/regex.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings ---- */

#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define DAY                                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[" \
    "0-9]|2[0-8]))"
#define DATE "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-" DAY
#define TIME                                                                                                 \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define HEX4  "[0-9a-fA-F]{1,4}"
#define NAME  "[a-zA-Z0-9_+-]{1,32}(?:\\.[a-zA-Z0-9_+-]{1,16}){0,1}"

/* Texts that every reader of the format accepts; fewer than the format's own standard allows. */
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P(?:[0-9]{1,4}W|[0-9]{1,4}D(?:T[0-9]{1,4}H)?|T[0-9]{1,4}[HMS]|[0-9]{1,4}Y(?:[0-9]{1,2}M)?)"},
    {"email", NAME "@" LABEL "(?:\\." LABEL "){0,2}\\.[a-z]{2,12}"},
    {"hostname", LABEL "(?:\\." LABEL "){0,2}"},
    {"ipv4", OCTET "(?:\\." OCTET "){3}"},
    {"ipv6",
     HEX4 "(?::" HEX4 "){7}|::(?:" HEX4 "(?::" HEX4 "){0,5})?|" HEX4 "::(?:" HEX4 "(?::" HEX4 "){0,4})?"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"uri", "https?://" LABEL "(?:\\." LABEL "){0,3}(?::[1-9][0-9]{0,3})?(?:/[a-zA-Z0-9._~-]{0,64}){0,8}"
            "(?:\\?[a-zA-Z0-9=&._~-]{0,128})?(?:#[a-zA-Z0-9._~-]{0,64})?"},
};

typedef struct length_range {
    int64_t least, most; /* most -1: no end */
} length_range;

static length_range join_lengths(length_range a, length_range b)
{
    return (length_range){a.least + b.least, a.most < 0 || b.most < 0 ? -1 : a.most + b.most};
}

static length_range unite_lengths(length_range a, length_range b)
{
    length_range u = {proa_min64(a.least, b.least), a.most > b.most ? a.most : b.most};
    if (a.most < 0 || b.most < 0) u.most = -1;
    return u;
}

static length_range repeat_lengths(length_range a, const proa_expr *e)
{
    bool endless = (e->max < 0 || a.most < 0) && a.most != 0;
    return (length_range){a.least * e->min, endless ? -1 : a.most * e->max};
}

/* Characters of an expression without rules, as the regex reader makes it for JSON strings, where a text is the escape
 * of one character. */
static length_range count_characters(const proa_expr *e)
{
    length_range sum;
    switch (e->kind) {
    case PROA_EXPR_BYTES: return (length_range){e->bytes.len > 0, e->bytes.len > 0};
    case PROA_EXPR_CLASS: return (length_range){1, 1};
    case PROA_EXPR_REPEAT: return repeat_lengths(count_characters(e->items[0]), e);
    case PROA_EXPR_SEQ:
    case PROA_EXPR_ALT:
        sum = count_characters(e->items[0]);
        for (int32_t i = 1; i < e->count; i++) {
            length_range more = count_characters(e->items[i]);
            sum = e->kind == PROA_EXPR_SEQ ? join_lengths(sum, more) : unite_lengths(sum, more);
        }
        return sum;
    case PROA_EXPR_NEVER:
    case PROA_EXPR_RULE: break;
    }
    return (length_range){0, 0};
}

/* The one pattern or format of all the schemas; NULL: there is none. */
static proa_status read_pattern(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    static const char *const names[] = {"pattern", "format"};
    int found = 0;
    *out = NULL;
    for (int32_t i = 0; i < all->count; i++)
        for (int k = 0; k < 2; k++) {
            const proa_json *j = proa_json_get(all->list[i], names[k]);
            proa_str text = proa_json_str(j);
            proa_regex_options o = {.mode = PROA_REGEX_JSON, .whole = k == 1};
            if (!j) continue;
            if (found++)
                return proa_schema_refuse(s, path, "more than one 'pattern' or 'format' for one string");
            for (size_t f = 0; k == 1 && f <= PROA_COUNT(formats); f++) {
                if (f == PROA_COUNT(formats))
                    return proa_schema_refuse(s, path, "the format '%.40s' is not supported",
                                              text.len ? text.ptr : "");
                if (!proa_str_is(text, formats[f].name)) continue;
                text = proa_str_c(formats[f].regex);
                break;
            }
            proa_err why = {.status = PROA_OK};
            if (proa_regex_read(s->rules, text, &o, out, &why) != PROA_OK)
                return proa_schema_refuse(s, path, "'pattern': %s", why.text);
        }
    return PROA_OK;
}

static proa_status check_pattern_length(const proa_schema *s, const proa_expr *pattern, int64_t least,
                                        int64_t most, const proa_path *path)
{
    length_range all = count_characters(pattern);
    int64_t shortest = all.least, longest = all.most;
    bool fits = (least < 0 || shortest >= least) && (most < 0 || (longest >= 0 && longest <= most));
    if (fits) return PROA_OK;
    return proa_schema_refuse(
        s, path, "'%s' beside 'pattern' or 'format', whose texts have %lld to %lld characters",
        least >= 0 && shortest < least ? "minLength" : "maxLength", (long long)shortest, (long long)longest);
}

proa_status proa_schema_string(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    int64_t least = -1, most = -1;
    const proa_expr *pattern = NULL;
    proa_rules *r = s->rules;
    PROA_TRY(proa_all_bound(s, all, "minLength", false, &least, path));
    PROA_TRY(proa_all_bound(s, all, "maxLength", true, &most, path));
    PROA_TRY(read_pattern(s, all, path, &pattern));
    if (pattern) PROA_TRY(check_pattern_length(s, pattern, least, most, path));
    if (!pattern && least < 0 && most < 0) return *out = s->string, PROA_OK;
    if (!pattern && most >= 0 && least > most) return *out = proa_expr_never(r), PROA_OK;
    if (!pattern) pattern = proa_expr_repeat(r, s->character, least < 0 ? 0 : (int32_t)least, (int32_t)most);
    const proa_expr *quote = proa_expr_text(r, "\""), *parts[] = {quote, pattern, quote};
    *out = proa_expr_shared(r, "string", proa_expr_list(r, PROA_EXPR_SEQ, parts, 3));
    return PROA_OK;
}

/* ---- ranges of digits ----
 *
 * A range of numbers becomes an expression over their digits, since an automaton cannot compare numbers: 12 to 345 is
 * 1[2-9] | [2-9][0-9] | [12][0-9]{2} | 3([0-3][0-9] | 4[0-5]). */

static const proa_expr *digit_from(proa_rules *r, int lo, int hi)
{
    const proa_range range = {'0' + lo, '0' + hi};
    return lo > hi ? proa_expr_never(r) : proa_expr_class(r, &range, 1, false);
}

static const proa_expr *digits_of(proa_rules *r, int32_t min, int32_t max)
{
    return proa_expr_repeat(r, digit_from(r, 0, 9), min, max);
}

/* Numbers of as many digits as lo and hi, between them. tight: the digits so far are those of lo, or of hi. */
static const proa_expr *same_length(proa_rules *r, const char *lo, const char *hi, bool tight_lo, bool tight_hi)
{
    int32_t n = (int32_t)strlen(tight_lo ? lo : hi);
    if (!tight_lo && !tight_hi) return digits_of(r, n, n);
    if (n == 0) return proa_expr_empty(r);
    int a = tight_lo ? *lo - '0' : 0, b = tight_hi ? *hi - '0' : 9;
    proa_expr_items items = {0};
    if (tight_lo && tight_hi && a == b)
        return proa_expr_seq2(r, digit_from(r, a, a), same_length(r, lo + 1, hi + 1, true, true));
    if (tight_lo)
        proa_expr_push(r, &items,
                       proa_expr_seq2(r, digit_from(r, a, a), same_length(r, lo + 1, hi + 1, true, false)));
    if (tight_hi)
        proa_expr_push(r, &items,
                       proa_expr_seq2(r, digit_from(r, b, b), same_length(r, lo + 1, hi + 1, false, true)));
    int from = a + tight_lo, to = b - tight_hi;
    if (from <= to)
        proa_expr_push(r, &items, proa_expr_seq2(r, digit_from(r, from, to), digits_of(r, n - 1, n - 1)));
    return proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
}

static int64_t power_of_ten(int n)
{
    int64_t p = 1;
    while (n-- > 0) p *= 10;
    return p;
}

/* Integers from lo to hi, both at least 0; hi -1: without end. */
static const proa_expr *whole_range(proa_rules *r, int64_t lo, int64_t hi)
{
    proa_expr_items items = {0};
    char a[24], b[24];
    int length = snprintf(a, sizeof a, "%lld", (long long)lo);
    int last = hi < 0 ? length : snprintf(b, sizeof b, "%lld", (long long)hi);
    for (int n = length; n <= last; n++) {
        int64_t from = n == length ? lo : power_of_ten(n - 1), to = power_of_ten(n) - 1;
        if (hi >= 0 && hi < to) to = hi;
        if (from > to) continue;
        snprintf(a, sizeof a, "%lld", (long long)from);
        snprintf(b, sizeof b, "%lld", (long long)to);
        proa_expr_push(r, &items, same_length(r, a, b, true, true));
    }
    if (hi < 0) proa_expr_push(r, &items, proa_expr_seq2(r, digit_from(r, 1, 9), digits_of(r, length, -1)));
    return proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
}

/* ---- ranges of decimals ---- */

/* A bound that is at least 0: whole part, digits after the point without zeros at the end, whether it is excluded. */
typedef struct decimal {
    int64_t whole;
    char fraction[40];
    bool open;
    bool none; /* no bound */
} decimal;

static const proa_expr *any_zeros(proa_rules *r)
{
    return proa_expr_repeat(r, digit_from(r, 0, 0), 0, -1);
}

/* Digits after the point that make at least d. */
static const proa_expr *digits_at_least(proa_rules *r, const char *d, bool open)
{
    if (!*d) {
        const proa_expr *above[] = {any_zeros(r), digit_from(r, 1, 9), digits_of(r, 0, -1)};
        return open ? proa_expr_list(r, PROA_EXPR_SEQ, above, 3) : digits_of(r, 0, -1);
    }
    const proa_expr *same = proa_expr_seq2(r, digit_from(r, *d - '0', *d - '0'), digits_at_least(r, d + 1, open));
    if (*d == '9') return same;
    return proa_expr_alt2(r, same, proa_expr_seq2(r, digit_from(r, *d - '0' + 1, 9), digits_of(r, 0, -1)));
}

/* Digits that make at most d; they may end before d does, which is less. */
static const proa_expr *digits_at_most(proa_rules *r, const char *d, bool open)
{
    if (!*d) return open ? proa_expr_never(r) : any_zeros(r);
    const proa_expr *same = proa_expr_seq2(r, digit_from(r, *d - '0', *d - '0'), digits_at_most(r, d + 1, open));
    const proa_expr *less = *d == '0' ? proa_expr_never(r)
                                      : proa_expr_seq2(r, digit_from(r, 0, *d - '0' - 1), digits_of(r, 0, -1));
    const proa_expr *all[] = {same, less, proa_expr_empty(r)};
    return proa_expr_list(r, PROA_EXPR_ALT, all, 3);
}

static const proa_expr *after_point(proa_rules *r, const proa_expr *digits)
{
    return proa_expr_seq2(r, proa_expr_text(r, "."), digits);
}

/* At least one digit, of those that make at most d. */
static const proa_expr *some_at_most(proa_rules *r, const char *d, bool open)
{
    int first = *d ? *d - '0' : 0;
    const proa_expr *same = proa_expr_seq2(r, digit_from(r, first, first),
                                           digits_at_most(r, *d ? d + 1 : d, open));
    if (first == 0) return same;
    return proa_expr_alt2(r, same, proa_expr_seq2(r, digit_from(r, 0, first - 1), digits_of(r, 0, -1)));
}

/* Fractions from lo to hi of one whole part; lo < hi, or both are included. */
static const proa_expr *digits_between(proa_rules *r, const char *lo, const char *hi, bool open_lo, bool open_hi)
{
    if (!*lo && !*hi) return open_lo || open_hi ? proa_expr_never(r) : any_zeros(r);
    if (!*lo && !open_lo) return digits_at_most(r, hi, open_hi);
    int a = *lo ? *lo - '0' : 0, b = *hi ? *hi - '0' : 0;
    const char *rest_lo = *lo ? lo + 1 : lo, *rest_hi = *hi ? hi + 1 : hi;
    if (a == b)
        return proa_expr_seq2(r, digit_from(r, a, a), digits_between(r, rest_lo, rest_hi, open_lo, open_hi));
    const proa_expr *all[] = {proa_expr_seq2(r, digit_from(r, a, a), digits_at_least(r, rest_lo, open_lo)),
                              proa_expr_seq2(r, digit_from(r, b, b), digits_at_most(r, rest_hi, open_hi)),
                              a + 1 < b ? proa_expr_seq2(r, digit_from(r, a + 1, b - 1), digits_of(r, 0, -1))
                                        : proa_expr_never(r)};
    return proa_expr_list(r, PROA_EXPR_ALT, all, 3);
}

/* The text of one whole part with fractions at least lo. */
static const proa_expr *whole_at_least(proa_rules *r, const decimal *lo)
{
    const proa_expr *whole = whole_range(r, lo->whole, lo->whole);
    if (*lo->fraction || lo->open)
        return proa_expr_seq2(r, whole, after_point(r, digits_at_least(r, lo->fraction, lo->open)));
    return proa_expr_seq2(r, whole, proa_expr_optional(r, after_point(r, digits_of(r, 1, -1))));
}

static const proa_expr *whole_at_most(proa_rules *r, const decimal *hi)
{
    if (!*hi->fraction && hi->open) return proa_expr_never(r);
    return proa_expr_seq2(r, whole_range(r, hi->whole, hi->whole),
                          proa_expr_optional(r, after_point(r, some_at_most(r, hi->fraction, hi->open))));
}

static const proa_expr *same_whole(proa_rules *r, const decimal *lo, const decimal *hi)
{
    const proa_expr *whole = whole_range(r, lo->whole, lo->whole);
    bool bare = !*lo->fraction && !lo->open && (*hi->fraction || !hi->open);
    if (bare && !*hi->fraction) return whole;
    if (bare) return whole_at_most(r, hi);
    return proa_expr_seq2(r, whole,
                          after_point(r, digits_between(r, lo->fraction, hi->fraction, lo->open, hi->open)));
}

/* Decimals from lo to hi, both at least 0. */
static const proa_expr *decimal_range(proa_rules *r, const decimal *lo, const decimal *hi)
{
    proa_expr_items items = {0};
    if (!hi->none &&
        (lo->whole > hi->whole || (lo->whole == hi->whole && strcmp(lo->fraction, hi->fraction) > 0)))
        return proa_expr_never(r);
    if (!hi->none && lo->whole == hi->whole) return same_whole(r, lo, hi);
    proa_expr_push(r, &items, whole_at_least(r, lo));
    if (!hi->none) proa_expr_push(r, &items, whole_at_most(r, hi));
    if (hi->none || lo->whole + 1 <= hi->whole - 1)
        proa_expr_push(r, &items,
                       proa_expr_seq2(r, whole_range(r, lo->whole + 1, hi->none ? -1 : hi->whole - 1),
                                      proa_expr_optional(r, after_point(r, digits_of(r, 1, -1)))));
    return proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
}

/* ---- numbers ---- */

typedef struct bound {
    double value;
    bool given, open;
} bound;

/* The narrower of the bounds of all schemas. sign 1: lower ones, -1: upper ones. */
static proa_status read_bound(const proa_schema *s, const proa_all *all, const char *const names[2], int sign,
                              const proa_path *path, bound *out)
{
    for (int32_t i = 0; i < all->count; i++)
        for (int k = 0; k < 2; k++) {
            const proa_json *j = proa_json_get(all->list[i], names[k]);
            double v = proa_json_double(j);
            if (!j) continue;
            if (proa_json_kind(j) != PROA_JSON_INT && proa_json_kind(j) != PROA_JSON_DOUBLE)
                return proa_schema_refuse(s, path, "'%s' must be a number", names[k]);
            if (!(fabs(v) < 1e15))
                return proa_schema_refuse(s, path, "'%s' must be between -1e15 and 1e15", names[k]);
            if (!out->given || sign * v > sign * out->value || (sign * v >= sign * out->value && k == 1))
                *out = (bound){v, true, k == 1};
        }
    return PROA_OK;
}

/* The magnitude of a bound in decimal. False: it has too many digits. */
static bool decimal_of(const bound *b, decimal *out)
{
    char text[64];
    double v = fabs(b->value), whole = floor(v);
    *out = (decimal){.whole = (int64_t)whole, .open = b->open, .none = !b->given};
    snprintf(text, sizeof text, "%.12f", v);
    char *end, *point = strchr(text, '.');
    double back = strtod(text, &end);
    if (!point || back < v || back > v) return false;
    size_t n = strlen(point + 1);
    while (n && point[n] == '0') n--;
    memcpy(out->fraction, point + 1, n);
    out->whole = strtoll(text, &end, 10);
    return true;
}

/* The narrowest integers of the bounds. */
static const proa_expr *integer_range(proa_schema *s, const bound *lo, const bound *hi)
{
    proa_rules *r = s->rules;
    int64_t a = INT64_MIN, b = INT64_MAX;
    if (lo->given) a = (int64_t)(lo->open ? floor(lo->value) + 1 : ceil(lo->value));
    if (hi->given) b = (int64_t)(hi->open ? ceil(hi->value) - 1 : floor(hi->value));
    proa_expr_items items = {0};
    if (a > b) return proa_expr_never(r);
    if (b >= 0) proa_expr_push(r, &items, whole_range(r, a > 0 ? a : 0, hi->given ? b : -1));
    if (a < 0) {
        int64_t least = !hi->given || b >= 0 ? 1 : -b;
        const proa_expr *magnitude = whole_range(r, least, lo->given ? -a : -1);
        proa_expr_push(r, &items, proa_expr_seq2(r, proa_expr_text(r, "-"), magnitude));
    }
    return proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
}

static proa_status number_range(proa_schema *s, const bound *lo, const bound *hi, const proa_path *path,
                                const proa_expr **out)
{
    proa_rules *r = s->rules;
    proa_expr_items items = {0};
    decimal a, b;
    const decimal zero = {.whole = 0};
    if (!decimal_of(lo, &a) || !decimal_of(hi, &b))
        return proa_schema_refuse(s, path, "a bound of a number with more than 12 digits after the point");
    bool negative = !lo->given || lo->value < 0, positive = !hi->given || hi->value >= 0;
    if (positive) proa_expr_push(r, &items, decimal_range(r, lo->given && lo->value >= 0 ? &a : &zero, &b));
    if (negative) {
        decimal least = hi->given && hi->value < 0 ? b : (decimal){.open = true};
        proa_expr_push(r, &items, proa_expr_seq2(r, proa_expr_text(r, "-"), decimal_range(r, &least, &a)));
    }
    *out = proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

static proa_status check_multiple(const proa_schema *s, const proa_all *all, bool integer, const proa_path *path)
{
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *j = proa_json_get(all->list[i], "multipleOf");
        if (j && !(integer && proa_json_kind(j) == PROA_JSON_INT && proa_json_int(j) == 1))
            return proa_schema_refuse(s, path, "'multipleOf' is not supported");
    }
    return PROA_OK;
}

proa_status proa_schema_number(proa_schema *s, const proa_all *all, bool integer, const proa_path *path,
                               const proa_expr **out)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum"}, *const most[] = {"maximum",
                                                                                         "exclusiveMaximum"};
    bound lo = {.given = false}, hi = {.given = false};
    PROA_TRY(read_bound(s, all, least, 1, path, &lo));
    PROA_TRY(read_bound(s, all, most, -1, path, &hi));
    PROA_TRY(check_multiple(s, all, integer, path));
    if (!lo.given && !hi.given) return *out = integer ? s->integer : s->number, PROA_OK;
    if (lo.given && hi.given && (lo.value > hi.value || (lo.value >= hi.value && (lo.open || hi.open))))
        return *out = proa_expr_never(s->rules), PROA_OK;
    if (!integer) PROA_TRY(number_range(s, &lo, &hi, path, out));
    else *out = integer_range(s, &lo, &hi);
    *out = proa_expr_shared(s->rules, "number", *out);
    return PROA_OK;
}
