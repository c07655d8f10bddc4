/* SPDX-License-Identifier: Apache-2.0
 * ask.c - requests to metadata and token services over the hub's client. */
#include "hub/cloud/identity/ask.h"

#include "base/alloc.h"
#include "hub/cloud/listing.h"
#include "hub/http.h"
#include "hub/reply.h"
#include "hub/url.h"
#include <arpa/inet.h>
#include <string.h>

enum { TIMEOUT_S = 10 };

/* ---- the site ---- */

static struct curl_slist *add_headers(const proa_hub_transfer *t, struct curl_slist *headers)
{
    const proa_cloud_ask *ask = t->client->site_arg;
    for (size_t i = 0; i < PROA_CLOUD_ASK_HEADERS && ask->headers[i]; i++)
        headers = t->client->curl->slist_append(headers, ask->headers[i]);
    return headers;
}

static void refuse_answer(const proa_hub_transfer *t, proa_err *err)
{
    char words[300], host[256];
    long code = t->reply.code;
    proa_hub_host(host, sizeof host, t->url);
    proa_cloud_error_words(words, sizeof words, proa_buf_view(&t->error_body));
    (void)PROA_FAIL(err, NOT_FOUND, "%s answers %ld %s%s%s", host, code, proa_hub_reason(code),
                    words[0] ? ": " : "", words);
}

static char *no_address(const proa_hub_client *c, const char *commit, const proa_hub_entry *entry)
{
    (void)c, (void)commit, (void)entry;
    return NULL;
}

static const proa_hub_site ask_site = {.address = no_address, .sign = add_headers, .refuse = refuse_answer};

/* ---- one request ---- */

static proa_status send_with(proa_hub_client *client, proa_buf *body, const proa_cloud_ask *ask, proa_err *err)
{
    proa_hub_transfer t = {.url = proa_strdup(ask->url),
                           .form = ask->form,
                           .method = ask->method,
                           .attempts_max = PROA_CLOUD_GRANT_ATTEMPTS_MAX,
                           .timeout_ms = ask->local ? PROA_CLOUD_METADATA_MS : TIMEOUT_S * 1000,
                           .no_retry = ask->local,
                           .no_redirect = true,
                           .no_proxy = ask->local,
                           .end = -1,
                           .bytes_max = PROA_CLOUD_GRANT_BYTES_MAX};
    return proa_hub_receive(client, &t, body, err);
}

proa_status proa_cloud_ask_send(proa_buf *body, const proa_cloud_ask *ask, proa_err *err)
{
    proa_hub_settings settings = {.timeout_s = TIMEOUT_S, .connections = 1};
    proa_hub_client client;
    if (strncmp(ask->url, "http://", 7) != 0 && strncmp(ask->url, "https://", 8) != 0)
        return PROA_FAIL(err, INVALID,
                         "the address of the service for credentials is not of the form http://HOST "
                         "or https://HOST");
    snprintf(settings.endpoint, sizeof settings.endpoint, "%.*s", (int)sizeof settings.endpoint - 1, ask->url);
    PROA_TRY(proa_hub_client_open(&client, &ask_site, &settings, "", err));
    client.site_arg = (void *)(uintptr_t)ask;
    proa_status status = send_with(&client, body, ask, err);
    proa_hub_client_close(&client);
    return status;
}

/* ---- where secrets may go ---- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return strcmp(host, "[::1]") == 0 || strcmp(host, "localhost") == 0;
}

bool proa_cloud_is_near(const char *url, const char *const *hosts)
{
    const proa_curl *curl;
    char *scheme = NULL, *host = NULL;
    bool near = false;
    if (proa_curl_open(&curl, NULL) != PROA_OK) return false;
    CURLU *u = curl->url();
    if (u && curl->url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl->url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl->url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        near = strcmp(scheme, "https") == 0 || (strcmp(scheme, "http") == 0 && is_loopback(host));
        for (; !near && hosts && *hosts; hosts++)
            near = strcmp(scheme, "http") == 0 && strcmp(host, *hosts) == 0;
    }
    curl->free(scheme), curl->free(host);
    curl->url_cleanup(u);
    return near;
}
