/* SPDX-License-Identifier: Apache-2.0
 * grant.c - reads keys and their expiry. */
#include "hub/cloud/identity/grant.h"

#include "hub/cloud/identity/take.h"
#include "hub/cloud/xml.h"
#include <ctype.h>
#include <string.h>
#include <time.h>

/* ---- times ---- */

/* The number of the digits at text[at, at + count). */
static int read_digits(proa_str text, size_t at, size_t count)
{
    int n = 0;
    for (size_t i = at; i < at + count; i++) n = 10 * n + (text.ptr[i] - '0');
    return n;
}

/* Whether a text is "dddd-dd-ddTdd:dd:dd", perhaps a point and more digits, and Z. */
static bool has_form_of_time(proa_str text)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd";
    size_t len = sizeof form - 1;
    if (text.len <= len || text.ptr[text.len - 1] != 'Z') return false;
    for (size_t i = 0; i < text.len - 1; i++) {
        char expected = i < len ? form[i] : i == len ? '.' : 'd';
        if (expected == 'd' ? !isdigit((unsigned char)text.ptr[i]) : text.ptr[i] != expected) return false;
    }
    return true;
}

int64_t proa_cloud_read_time(proa_str text)
{
    static const int most[] = {9999, 12, 31, 23, 59, 60};
    int parts[6];
    if (!has_form_of_time(text)) return -1;
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        parts[i] = i == 0 ? read_digits(text, 0, 4) : read_digits(text, 2 + 3 * i, 2);
        if (parts[i] > most[i]) return -1;
    }
    struct tm tm = {.tm_year = parts[0] - 1900,
                    .tm_mon = parts[1] - 1,
                    .tm_mday = parts[2],
                    .tm_hour = parts[3],
                    .tm_min = parts[4],
                    .tm_sec = parts[5]};
    return parts[0] < 1970 || parts[1] == 0 || parts[2] == 0 ? -1 : (int64_t)timegm(&tm);
}

/* Seconds as a number, or as digits in a string; -1: neither. */
static int64_t read_seconds(const proa_json *value)
{
    proa_str text = proa_json_str(value);
    int64_t n = 0;
    if (proa_json_kind(value) == PROA_JSON_INT) return proa_json_int(value) < 0 ? -1 : proa_json_int(value);
    if (text.len == 0 || text.len > 12) return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (!isdigit((unsigned char)text.ptr[i])) return -1;
        n = 10 * n + (text.ptr[i] - '0');
    }
    return n;
}

/* ---- form of a key ---- */

/* A part of a key: one word. */
static proa_status take_word(char *out, size_t size, proa_str text, const char *name, proa_err *err)
{
    PROA_TRY(proa_cloud_take_text(out, size, text, name, err));
    if (out[0] && !strchr(out, ' ')) return PROA_OK;
    return PROA_FAIL(err, CORRUPT, "the answer has no %s", name);
}

static proa_status take_key(proa_cloud_key *out, const proa_str parts[4], proa_err *err)
{
    PROA_TRY(take_word(out->id, sizeof out->id, parts[0], "AccessKeyId", err));
    PROA_TRY(take_word(out->secret, sizeof out->secret, parts[1], "SecretAccessKey", err));
    out->token[0] = '\0', out->until_s = 0;
    if (parts[2].len) PROA_TRY(take_word(out->token, sizeof out->token, parts[2], "session token", err));
    if (!parts[3].len) return PROA_OK;
    out->until_s = proa_cloud_read_time(parts[3]);
    return out->until_s > 0 ? PROA_OK : PROA_FAIL(err, CORRUPT, "the answer's Expiration is no time");
}

/* ---- Amazon ---- */

proa_status proa_cloud_grant_aws(proa_cloud_key *out, proa_str body, proa_err *err)
{
    proa_json *j = NULL;
    PROA_TRY(proa_json_parse(&j, body, "the answer with credentials", err));
    proa_str code = proa_json_str(proa_json_get(j, "Code"));
    const proa_str parts[] = {
        proa_json_str(proa_json_get(j, "AccessKeyId")), proa_json_str(proa_json_get(j, "SecretAccessKey")),
        proa_json_str(proa_json_get(j, "Token")), proa_json_str(proa_json_get(j, "Expiration"))};
    proa_status status = PROA_OK;
    if (code.len && !proa_str_is(code, "Success")) /* the instance's, for a role that does not trust it */
        status = PROA_FAIL(err, NOT_FOUND, "the answer has the code %.*s instead of a key",
                           code.len < 60 ? (int)code.len : 60, code.ptr);
    if (status == PROA_OK) status = take_key(out, parts, err);
    proa_json_free(j);
    return status;
}

/* The four texts of <Credentials>, copied. */
typedef struct sts_reader {
    proa_buf texts[4];
} sts_reader;

static bool end_element(proa_cloud_xml *r, const char *path, proa_str text)
{
    static const char *const names[] = {"Credentials/AccessKeyId", "Credentials/SecretAccessKey",
                                        "Credentials/SessionToken", "Credentials/Expiration"};
    sts_reader *s = r->arg;
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        if (!proa_str_ends(proa_str_c(path), proa_str_c(names[i]))) continue;
        proa_buf_clear(&s->texts[i]);
        proa_buf_str(&s->texts[i], text);
    }
    return true;
}

proa_status proa_cloud_grant_sts(proa_cloud_key *out, proa_str body, proa_err *err)
{
    sts_reader s;
    proa_str parts[4];
    proa_cloud_xml r = {.on_end = end_element, .arg = &s};
    for (size_t i = 0; i < PROA_COUNT(s.texts); i++) proa_buf_init(&s.texts[i], PROA_CLOUD_XML_TEXT_MAX);
    proa_status status = proa_cloud_xml_read(&r, body, err);
    for (size_t i = 0; i < PROA_COUNT(parts); i++) parts[i] = proa_buf_view(&s.texts[i]);
    if (status == PROA_OK) status = take_key(out, parts, err);
    for (size_t i = 0; i < PROA_COUNT(s.texts); i++) proa_buf_release(&s.texts[i]);
    return status;
}

/* ---- Google and Azure ---- */

enum { BEARER_SECS = 3600 }; /* lifetime if the response names none */

static int64_t bearer_until(const proa_json *j, int64_t now_s)
{
    int64_t in = read_seconds(proa_json_get(j, "expires_in")),
            on = read_seconds(proa_json_get(j, "expires_on"));
    proa_str time = proa_json_str(proa_json_get(j, "expireTime"));
    if (time.len) return proa_cloud_read_time(time);
    if (in >= 0) return now_s + (in < INT32_MAX ? in : INT32_MAX);
    return on >= 0 ? on : now_s + BEARER_SECS;
}

proa_status proa_cloud_grant_bearer(proa_cloud_key *out, proa_str body, int64_t now_s, proa_err *err)
{
    proa_json *j = NULL;
    PROA_TRY(proa_json_parse(&j, body, "the answer with a token", err));
    proa_str token = proa_json_str(proa_json_get(j, "access_token"));
    if (!token.len) token = proa_json_str(proa_json_get(j, "accessToken"));
    proa_status status = take_word(out->token, sizeof out->token, token, "access_token", err);
    out->until_s = bearer_until(j, now_s);
    if (status == PROA_OK && out->until_s <= 0)
        status = PROA_FAIL(err, CORRUPT, "the answer's expireTime is no time");
    proa_json_free(j);
    return status;
}
