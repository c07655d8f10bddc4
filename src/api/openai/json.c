/* SPDX-License-Identifier: Apache-2.0
 * json.c - typed members of a body, with OpenAI's texts for what is wrong, and values as JSON. */
#include "api/openai/openai.h"

#include <math.h>

void proa_oai_put_number(proa_buf *out, double value)
{
    char text[40];
    if (!isfinite(value)) { /* JSON has no infinity; a probability of 0 is as OpenAI shows it */
        proa_buf_str(out, proa_str_c(isnan(value) ? "null" : value < 0 ? "-9999.0" : "9999.0"));
        return;
    }
    int n = snprintf(text, sizeof text, "%.9g", value);
    proa_buf_append(out, text, (size_t)n);
}

static void put_members(proa_buf *out, const proa_json *j)
{
    bool first = true;
    proa_buf_char(out, '{');
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it); first = false) {
        if (!first) proa_buf_char(out, ',');
        proa_buf_json_str(out, it.key);
        proa_buf_char(out, ':');
        proa_oai_put_json(out, it.value); /* as deep as PROA_JSON_DEPTH_MAX */
    }
    proa_buf_char(out, '}');
}

void proa_oai_put_json(proa_buf *out, const proa_json *j)
{
    switch (proa_json_kind(j)) {
    case PROA_JSON_NULL: proa_buf_str(out, proa_str_c("null")); break;
    case PROA_JSON_BOOL: proa_buf_str(out, proa_str_c(proa_json_bool(j) ? "true" : "false")); break;
    case PROA_JSON_INT: proa_buf_printf(out, "%lld", (long long)proa_json_int(j)); break;
    case PROA_JSON_DOUBLE: proa_buf_printf(out, "%.17g", proa_json_double(j)); break;
    case PROA_JSON_STRING: proa_buf_json_str(out, proa_json_str(j)); break;
    case PROA_JSON_ARRAY:
        proa_buf_char(out, '[');
        for (int64_t i = 0; i < proa_json_len(j); i++) {
            if (i > 0) proa_buf_char(out, ',');
            proa_oai_put_json(out, proa_json_at(j, i));
        }
        proa_buf_char(out, ']');
        break;
    case PROA_JSON_OBJECT: put_members(out, j); break;
    }
}

/* ---- members ---- */

static bool is_number(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_INT || proa_json_kind(j) == PROA_JSON_DOUBLE;
}

bool proa_oai_number(proa_oai *job, const char *key, double min, double max, double *value, bool *given)
{
    proa_oai_error *e = &job->error;
    const proa_json *j = proa_json_get(job->body, key);
    if (!j) return true;
    if (!is_number(j))
        return proa_oai_bad(e, key, "Invalid type for '%s': expected a number, but got %s instead.", key,
                            proa_json_kind_name(proa_json_kind(j)));
    double v = proa_json_double(j);
    if (!(v >= min && v <= max))
        return proa_oai_bad(e, key, "Invalid '%s': %g is not between %g and %g.", key, v, min, max);
    *value = v;
    if (given) *given = true;
    return true;
}

bool proa_oai_whole(proa_oai *job, const char *key, int64_t min, int64_t max, int64_t *value, bool *given)
{
    proa_oai_error *e = &job->error;
    const proa_json *j = proa_json_get(job->body, key);
    if (!j) return true;
    double d = proa_json_double(j);
    bool integer = proa_json_kind(j) == PROA_JSON_INT;
    bool whole = integer || (is_number(j) && fabs(d) < 9e18 && floor(d) >= d && floor(d) <= d);
    if (!whole)
        return proa_oai_bad(e, key, "Invalid type for '%s': expected an integer, but got %s instead.", key,
                            is_number(j) ? "a decimal number" : proa_json_kind_name(proa_json_kind(j)));
    if (fabs(d) > 9223372036854775808.0) /* json-c clamps it: the tree has another number */
        return proa_oai_bad(e, key, "Invalid '%s': %.17g is not between %lld and %lld.", key, d,
                            (long long)min, (long long)max);
    int64_t v = integer ? proa_json_int(j) : (int64_t)d;
    if (v < min || v > max)
        return proa_oai_bad(e, key, "Invalid '%s': %lld is not between %lld and %lld.", key, (long long)v,
                            (long long)min, (long long)max);
    *value = v;
    if (given) *given = true;
    return true;
}

bool proa_oai_flag(proa_oai_error *e, const proa_json *body, const char *key, bool *value)
{
    const proa_json *j = proa_json_get(body, key);
    if (!j) return true;
    if (proa_json_kind(j) != PROA_JSON_BOOL)
        return proa_oai_bad(e, key, "Invalid type for '%s': expected a boolean, but got %s instead.", key,
                            proa_json_kind_name(proa_json_kind(j)));
    *value = proa_json_bool(j);
    return true;
}
