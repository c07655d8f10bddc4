/* SPDX-License-Identifier: Apache-2.0
 * address.c - parses the address of a folder in an object store. */
#include "hub/cloud/address.h"

#include "hub/name.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *scheme, *form;
} schemes[] = {[PROA_CLOUD_S3] = {"s3://", "s3://BUCKET/PATH or s3://https://HOST:PORT/BUCKET/PATH"},
               [PROA_CLOUD_GCS] = {"gs://", "gs://BUCKET/PATH"},
               [PROA_CLOUD_AZURE] = {"as://", "as://ACCOUNT/CONTAINER/PATH"}};

static int scheme_of(const char *text)
{
    for (int i = 0; i < (int)PROA_COUNT(schemes); i++)
        if (strncmp(text, schemes[i].scheme, strlen(schemes[i].scheme)) == 0) return i;
    return -1;
}

bool proa_cloud_is_address(const char *text)
{
    return scheme_of(text) >= 0;
}

static proa_status fail_form(const proa_cloud_address *a, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "'%.200s' is not of the form %s", a->text, schemes[a->kind].form);
}

/* Copies the text up to the next slash and steps over it. False if it is empty, too long or has other characters. */
static bool take_part(char *out, size_t size, const char **at, const char *also)
{
    size_t len = strcspn(*at, "/");
    if (len == 0 || len >= size) return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)(*at)[i]) && !strchr(also, (*at)[i])) return false;
    memcpy(out, *at, len);
    out[len] = '\0';
    *at += len + ((*at)[len] == '/');
    return strcmp(out, ".") != 0 && strcmp(out, "..") != 0;
}

/* "http://HOST:PORT/", "https://HOST:PORT/" or "HOST:PORT/" in front of the bucket. */
static bool take_endpoint(proa_cloud_address *a, const char **at)
{
    bool secure = strncmp(*at, "https://", 8) == 0, plain = strncmp(*at, "http://", 7) == 0;
    const char *host = *at + (secure ? 8 : plain ? 7 : 0);
    size_t len = strcspn(host, "/");
    bool port = memchr(host, ':', len) != NULL;
    if (!secure && !plain && !port) return true;
    char name[512];
    *at = host;
    if (!take_part(name, sizeof name, at, ".-_:[]")) return false;
    snprintf(a->endpoint, sizeof a->endpoint, "%s://%s", secure ? "https" : "http", name);
    return true;
}

proa_status proa_cloud_address_parse(proa_cloud_address *out, const char *text, proa_err *err)
{
    size_t len = strlen(text);
    int kind = scheme_of(text);
    *out = (proa_cloud_address){.kind = kind < 0 ? PROA_CLOUD_S3 : (proa_cloud_kind)kind};
    while (len > 0 && text[len - 1] == '/') len--;
    if (len >= sizeof out->text / 2) return PROA_FAIL(err, LIMIT, "the address '%.80s...' is too long", text);
    snprintf(out->text, sizeof out->text, "%.*s", (int)len, text);
    if (kind < 0 || len <= strlen(schemes[kind].scheme)) return fail_form(out, err);
    const char *at = out->text + strlen(schemes[kind].scheme);
    if (kind == PROA_CLOUD_S3 && !take_endpoint(out, &at)) return fail_form(out, err);
    if (kind == PROA_CLOUD_AZURE && !take_part(out->account, sizeof out->account, &at, ".-"))
        return fail_form(out, err);
    if (!take_part(out->bucket, sizeof out->bucket, &at, ".-_$")) return fail_form(out, err);
    if (!*at) return PROA_OK;
    if (!proa_hub_is_path(proa_str_c(at)))
        return PROA_FAIL(err, INVALID, "'%.200s': the path in the bucket has an empty part, '.' or '..'", text);
    snprintf(out->prefix, sizeof out->prefix, "%s/", at);
    return PROA_OK;
}
