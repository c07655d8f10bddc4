/* SPDX-License-Identifier: Apache-2.0
 * site.c - a hub as a site of the client: addresses, token, what refusals mean. */
#include "hub/site.h"

#include "base/json.h"
#include "hub/reply.h"
#include "hub/url.h"
#include <string.h>

/* The hub's own words: a header, or {"error": "..."} in the body. */
static void own_words(char *out, size_t size, const proa_hub_transfer *t)
{
    proa_json *body = NULL;
    snprintf(out, size, "%s", t->reply.error_message);
    if (out[0] || !t->error_body.len) return;
    if (proa_json_parse(&body, proa_buf_view(&t->error_body), "the answer", NULL) == PROA_OK) {
        proa_str words = proa_json_str(proa_json_get(body, "error"));
        snprintf(out, size, "%.*s", (int)words.len, words.ptr ? words.ptr : "");
    }
    proa_json_free(body);
}

static void fail_access(const proa_hub_transfer *t, proa_err *err)
{
    const char *repo = t->client->repo, *endpoint = t->client->settings->endpoint;
    bool token = t->client->settings->token[0] != '\0';
    if (strcmp(t->reply.error_code, "GatedRepo") == 0)
        (void)PROA_FAIL(err, NOT_FOUND, "'%s' is gated: accept its terms at %s/%s%s", repo, endpoint, repo,
                        token ? " with the account of your token" : " and set HF_TOKEN");
    else if (t->reply.code == 401 && token)
        (void)PROA_FAIL(err, NOT_FOUND, "%s has no '%s' for your token, or the token is wrong (HF_TOKEN)",
                        endpoint, repo);
    else if (t->reply.code == 401)
        (void)PROA_FAIL(err, NOT_FOUND, "%s has no '%s', or it is private: set HF_TOKEN", endpoint, repo);
    else if (strcmp(t->reply.error_code, "RevisionNotFound") == 0)
        (void)PROA_FAIL(err, NOT_FOUND, "'%s' has no revision '%s'", repo, t->client->revision);
    else if (strcmp(t->reply.error_code, "EntryNotFound") == 0)
        (void)PROA_FAIL(err, NOT_FOUND, "'%s' has no such file", repo);
    else if (strcmp(t->reply.error_code, "RepoNotFound") == 0 || (t->reply.code == 404 && !t->what))
        (void)PROA_FAIL(err, NOT_FOUND, "%s has no '%s'", endpoint, repo);
}

/* ---- the site ---- */

static void refuse_transfer(const proa_hub_transfer *t, proa_err *err)
{
    char words[256], host[256];
    proa_hub_host(host, sizeof host, t->url);
    fail_access(t, err);
    if (err->status != PROA_OK) return;
    own_words(words, sizeof words, t);
    if (t->reply.code == 429 && t->reply.retry_after_s >= 0)
        (void)PROA_FAIL(err, UNAVAILABLE, "%s answers 429 Too Many Requests: try again in %lld s", host,
                        (long long)t->reply.retry_after_s);
    else
        (void)PROA_FAIL(err, UNAVAILABLE, "%s answers %ld %s%s%s", host, t->reply.code,
                        proa_hub_reason(t->reply.code), words[0] ? ": " : "", words);
}

static char *resolve_url(const proa_hub_client *c, const char *commit, const proa_hub_entry *entry)
{
    proa_buf url;
    proa_buf_init(&url, PROA_HUB_URL_MAX);
    proa_buf_printf(&url, "%s/%s/resolve/%s/", c->settings->endpoint, c->repo, commit);
    proa_hub_escape(&url, entry->path, true);
    return url.ptr;
}

static struct curl_slist *add_token(const proa_hub_transfer *t, struct curl_slist *headers)
{
    const proa_hub_client *c = t->client;
    char line[PROA_HUB_TOKEN_MAX + 32];
    if (!c->settings->token[0]) return headers;
    snprintf(line, sizeof line, "Authorization: Bearer %s", c->settings->token);
    return c->curl->slist_append(headers, line);
}

const proa_hub_site proa_hub_site_hub = {.address = resolve_url, .sign = add_token, .refuse = refuse_transfer};
