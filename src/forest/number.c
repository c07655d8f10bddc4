/* SPDX-License-Identifier: Apache-2.0
 * number.c - numbers in the text of model files: exact, and fast where that costs nothing.
 * A decimal of up to 2^53 times or over 10^22 at most is one exact product or quotient of doubles (Clinger 1990); the
 *   rest is strtod's. A float is rounded once: the double's answer is taken unless it is between two floats. */
#include "forest/readers.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

#define NUMBER_BYTES_MAX 128 /* characters of a number; 17 digits and an exponent need 24 */

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The parts of a decimal number. */
typedef struct decimal {
    uint64_t digits;         /* the first 18 that count */
    int32_t power;           /* of 10 */
    bool negative, any, all; /* any: there is a digit; all: `digits` has all of them */
} decimal;

static void take_digit(decimal *d, char c, bool fraction)
{
    d->any = true;
    if (d->digits < UINT64_C(100000000000000000)) {
        d->digits = d->digits * 10 + (uint64_t)(c - '0');
        d->power -= fraction;
    } else {
        d->all = false;
    }
}

/* Reads a complete exponent at p and returns its end; else p. */
static const char *take_power(decimal *d, const char *p, const char *end)
{
    const char *at = p + 1;
    bool negative = at < end && *at == '-';
    int32_t power = 0;
    if (at < end && (*at == '-' || *at == '+')) at++;
    if (at >= end || *at < '0' || *at > '9') return p;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (power < 100000) power = power * 10 + (*at - '0');
    d->power += negative ? -power : power;
    return at;
}

static const char *take_digits(decimal *d, const char *p, const char *end, bool fraction)
{
    for (; p < end && *p >= '0' && *p <= '9'; p++) take_digit(d, *p, fraction);
    return p;
}

static const char *take_decimal(decimal *d, const char *p, const char *end)
{
    *d = (decimal){.all = true};
    if (p < end && (*p == '-' || *p == '+')) d->negative = *p++ == '-';
    p = take_digits(d, p, end, false);
    if (p < end && *p == '.') p = take_digits(d, p + 1, end, true);
    if (d->any && p < end && (*p == 'e' || *p == 'E')) p = take_power(d, p, end);
    return p;
}

/* Whether the double is exactly half-way between two floats: rounding it again could go wrong. */
static bool between_floats(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (bits & 0x1fffffff) == 0x10000000;
}

/* Numbers longer than NUMBER_BYTES_MAX are refused. */
static bool slow_number(const char *from, size_t bytes, bool as_float, double *out)
{
    char text[NUMBER_BYTES_MAX + 1];
    if (bytes > NUMBER_BYTES_MAX) return false;
    memcpy(text, from, bytes);
    text[bytes] = '\0';
    *out = as_float ? (double)strtof(text, NULL) : strtod(text, NULL);
    return true;
}

static bool word_number(const char **p, const char *end, double *out)
{
    static const char *const WORDS[] = {"infinity", "inf", "nan"};
    const char *at = *p;
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    for (size_t i = 0; i < PROA_COUNT(WORDS); i++) {
        size_t len = strlen(WORDS[i]);
        if ((size_t)(end - at) < len || strncasecmp(at, WORDS[i], len) != 0) continue;
        *out = i == 2 ? (double)NAN : (negative ? -HUGE_VAL : HUGE_VAL);
        *p = at + len;
        return true;
    }
    return false;
}

bool proa_forest_number(const char **p, const char *end, bool as_float, double *out)
{
    decimal d;
    const char *behind = take_decimal(&d, *p, end);
    if (!d.any) return word_number(p, end, out);
    if (d.all && d.digits <= UINT64_C(1) << 53 && d.power >= -22 && d.power <= 22) {
        double v = d.power < 0 ? (double)d.digits / POWERS[-d.power] : (double)d.digits * POWERS[d.power];
        *out = d.negative ? -v : v;
        if (as_float) *out = (double)(float)*out;
        if (!as_float || !between_floats(v)) {
            *p = behind;
            return true;
        }
    }
    if (!slow_number(*p, (size_t)(behind - *p), as_float, out)) return false;
    *p = behind;
    return true;
}

/* ---- arrays of them ---- */

void proa_forest_numbers_reserve(proa_forest_numbers *n, int64_t cap)
{
    if (cap <= n->cap) return;
    n->cap = cap;
    n->v = proa_realloc(n->v, (size_t)cap * sizeof *n->v);
}

void proa_forest_numbers_push(proa_forest_numbers *n, double v)
{
    if (n->count == n->cap) proa_forest_numbers_reserve(n, n->cap < 64 ? 64 : n->cap * 2);
    n->v[n->count++] = v;
}

void proa_forest_numbers_release(proa_forest_numbers *n)
{
    free(n->v);
    *n = (proa_forest_numbers){.v = NULL};
}

proa_status proa_forest_integer(double v, int64_t min, int64_t max, const char *what, int64_t *out, proa_err *err)
{
    if (!(v >= (double)min && v <= (double)max) || v != floor(v))
        return PROA_FAIL(err, INVALID, "%s is %.17g, must be an integer from %lld to %lld", what, v,
                         (long long)min, (long long)max);
    *out = (int64_t)v;
    return PROA_OK;
}
