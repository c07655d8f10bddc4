/* SPDX-License-Identifier: Apache-2.0
 * store.c - addresses, signatures and refusals of the object stores, and their listings page by page. */
#include "hub/cloud/store.h"

#include "base/alloc.h"
#include "hub/cloud/identity/fetch.h"
#include "hub/digest.h"
#include "hub/reply.h"
#include "hub/url.h"
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_S = 10 };

/* ---- where the store is ---- */

/* Amazon's name of the bucket as a host needs a certificate for it, which covers no further dots. */
static void s3_endpoint(proa_cloud_store *s, const char *given)
{
    const proa_cloud_address *a = &s->address;
    const char *region = s->credentials.region, *domain = proa_cloud_aws_domain(region);
    size_t size = sizeof s->settings.endpoint;
    if (given[0]) snprintf(s->settings.endpoint, size, "%.700s/%s", given, a->bucket);
    else if (strchr(a->bucket, '.'))
        snprintf(s->settings.endpoint, size, "https://s3.%s.%s/%s", region, domain, a->bucket);
    else snprintf(s->settings.endpoint, size, "https://%s.s3.%s.%s", a->bucket, region, domain);
}

static void azure_endpoint(proa_cloud_store *s, const char *given)
{
    const proa_cloud_address *a = &s->address;
    size_t size = sizeof s->settings.endpoint;
    if (given[0]) snprintf(s->settings.endpoint, size, "%.700s/%s", given, a->bucket);
    else if (strchr(a->account, '.'))
        snprintf(s->settings.endpoint, size, "https://%s/%s", a->account, a->bucket);
    else snprintf(s->settings.endpoint, size, "https://%s.blob.core.windows.net/%s", a->account, a->bucket);
}

static proa_status find_endpoint(proa_cloud_store *s, proa_err *err)
{
    char given[1024];
    snprintf(given, sizeof given, "%.1000s",
             s->address.endpoint[0] ? s->address.endpoint : s->credentials.endpoint);
    size_t len = strlen(given);
    while (len > 0 && given[len - 1] == '/') given[--len] = '\0';
    bool known = strncmp(given, "https://", 8) == 0 || strncmp(given, "http://", 7) == 0;
    if (len >= 700 || (len && !known))
        return PROA_FAIL(err, INVALID, "the endpoint '%.200s' is not of the form http://HOST or https://HOST",
                         given);
    if (s->address.kind == PROA_CLOUD_S3) s3_endpoint(s, given);
    else if (s->address.kind == PROA_CLOUD_AZURE) azure_endpoint(s, given);
    else
        snprintf(s->settings.endpoint, sizeof s->settings.endpoint, "%.700s/storage/v1/b/%s/o",
                 given[0] ? given : "https://storage.googleapis.com", s->address.bucket);
    return PROA_OK;
}

/* ---- the site: addresses of objects ---- */

/* A shared access signature is part of the address; with a key it is not needed. */
static void add_sas(proa_buf *url, const proa_cloud_store *s, char before)
{
    const proa_cloud_credentials *c = &s->credentials;
    if (c->sas && !c->key.secret[0]) proa_buf_printf(url, "%c%s", before, c->key.token);
}

static char *object_url(const proa_hub_client *c, const char *commit, const proa_hub_entry *entry)
{
    const proa_cloud_store *s = c->site_arg;
    bool google = s->address.kind == PROA_CLOUD_GCS;
    proa_buf url;
    (void)commit;
    proa_buf_init(&url, PROA_HUB_URL_MAX);
    proa_buf_printf(&url, "%s/", s->settings.endpoint);
    proa_hub_escape(&url, s->base, !google);
    proa_hub_escape(&url, entry->path, !google);
    if (google) {
        proa_buf_printf(&url, "?alt=media&generation=");
        proa_hub_escape(&url, entry->match, false);
    }
    add_sas(&url, s, '?');
    return url.ptr;
}

static void list_url(proa_buf *url, const proa_cloud_store *s, const char *prefix, const char *next)
{
    static const char *const words[][3] = {
        [PROA_CLOUD_S3] = {"/?", "continuation-token=", "encoding-type=url&list-type=2&max-keys=1000&prefix="},
        [PROA_CLOUD_GCS] =
            {"?fields=items(name%2Csize%2Cmd5Hash%2Cetag%2Cgeneration)%2CnextPageToken&maxResults=1000&",
             "pageToken=", "prefix="},
        [PROA_CLOUD_AZURE] = {"?comp=list&", "marker=", "maxresults=5000&prefix="}};
    const char *const *w = words[s->address.kind];
    proa_buf_printf(url, "%s%s", s->settings.endpoint, w[0]);
    if (next) {
        proa_buf_printf(url, "%s", w[1]);
        proa_hub_escape(url, next, false);
        proa_buf_char(url, '&');
    }
    proa_buf_printf(url, "%s", w[2]);
    proa_hub_escape(url, prefix, false);
    if (s->address.kind == PROA_CLOUD_AZURE) proa_buf_printf(url, "&restype=container");
    add_sas(url, s, '&');
}

/* ---- the site: signatures ---- */

static struct curl_slist *add_lines(const proa_curl *curl, struct curl_slist *headers, const proa_buf *lines)
{
    for (size_t at = 0; at < lines->len; at += strlen(lines->ptr + at) + 1)
        headers = curl->slist_append(headers, lines->ptr + at);
    return headers;
}

static struct curl_slist *sign_request(const proa_hub_transfer *t, struct curl_slist *headers)
{
    proa_cloud_store *s = t->client->site_arg;
    const proa_cloud_key *key = &s->credentials.key;
    char range[64], match[PROA_HUB_REVISION_MAX + 2];
    proa_buf lines;
    proa_cloud_request r = {
        .method = "GET", .url = t->url, .now = time(NULL), .service = "s3", .region = s->credentials.region};
    proa_status status = proa_cloud_renew(&s->renewal, &s->credentials, s->crypto, NULL);
    PROA_UNUSED(status); /* without a key the store refuses */
    proa_buf_init(&lines, PROA_HUB_URL_MAX);
    if (t->end >= 0) {
        snprintf(range, sizeof range, "bytes=%lld-%lld", (long long)(t->first + t->received),
                 (long long)(t->end - 1));
        r.range = range;
    }
    if (t->match && s->address.kind != PROA_CLOUD_GCS) {
        snprintf(match, sizeof match, "\"%s\"", t->match);
        r.match = match;
        proa_buf_printf(&lines, "If-Match: %s", match);
        proa_buf_char(&lines, '\0');
    }
    if (s->address.kind == PROA_CLOUD_S3 && key->secret[0]) proa_cloud_sign_aws(&lines, s->crypto, key, &r);
    if (s->address.kind == PROA_CLOUD_AZURE) {
        status = proa_cloud_sign_azure(&lines, s->crypto, key, &r, NULL); /* the key was checked at the start */
        PROA_UNUSED(status);
    }
    if (s->address.kind != PROA_CLOUD_S3 && key->token[0] && !s->credentials.sas) {
        proa_buf_printf(&lines, "Authorization: Bearer %s", key->token);
        proa_buf_char(&lines, '\0');
    }
    headers = add_lines(t->client->curl, headers, &lines);
    proa_buf_release(&lines);
    return headers;
}

/* ---- the site: refusals ---- */

/* Where credentials were looked for, if the request had none. */
static const char *explain_anonymous(char text[512], const proa_cloud_store *s)
{
    static const char *const places[] = {" or ~/.aws", " or ~/.config/gcloud", ""}; /* by proa_cloud_kind */
    const char *missed = s->renewal.missed;
    text[0] = '\0';
    if (s->credentials.key.secret[0] || s->credentials.key.token[0]) return text;
    snprintf(text, 512, " (no credentials were found in the environment%s%s%s; the request was anonymous)",
             places[s->address.kind], missed[0] ? "; " : "", missed);
    return text;
}

static void refuse_request(const proa_hub_transfer *t, proa_err *err)
{
    const proa_cloud_store *s = t->client->site_arg;
    char words[300], host[256], anonymous[512];
    long code = t->reply.code;
    proa_hub_host(host, sizeof host, t->url);
    proa_cloud_error_words(words, sizeof words, proa_buf_view(&t->error_body));
    const char *colon = words[0] ? ": " : "";
    if (code == 412) (void)PROA_FAIL(err, UNAVAILABLE, "it was changed while it was downloaded");
    else if (code == 404 && !t->what)
        (void)PROA_FAIL(err, NOT_FOUND, "%s has no '%s'%s%s", host, s->address.bucket, colon, words);
    else if (code == 401 || code == 403)
        (void)PROA_FAIL(err, NOT_FOUND, "%s answers %ld %s%s%s%s", host, code, proa_hub_reason(code), colon,
                        words, explain_anonymous(anonymous, s));
    else
        (void)PROA_FAIL(err, UNAVAILABLE, "%s answers %ld %s%s%s", host, code, proa_hub_reason(code), colon,
                        words);
}

static const proa_hub_site cloud_site = {.address = object_url, .sign = sign_request, .refuse = refuse_request};

/* ---- requests with small answers ---- */

/* url: on the heap, taken. */
static proa_status request_text(proa_hub_client *client, proa_buf *body, char *url, const char *form,
                                proa_err *err)
{
    proa_hub_transfer t = {.url = url, .form = form, .end = -1, .bytes_max = (int64_t)body->bytes_max};
    return proa_hub_receive(client, &t, body, err);
}

/* ---- the store ---- */

static proa_status check_key(proa_cloud_store *s, proa_err *err)
{
    proa_buf lines;
    proa_cloud_request r = {.method = "GET", .url = "https://host/"};
    if (s->address.kind != PROA_CLOUD_AZURE) return PROA_OK;
    proa_buf_init(&lines, PROA_HUB_URL_MAX);
    proa_status status = proa_cloud_sign_azure(&lines, s->crypto, &s->credentials.key, &r, err);
    proa_buf_release(&lines);
    return status;
}

/* The region is part of the store's address and of signatures. */
static proa_status find_credentials(proa_cloud_store *s, proa_err *err)
{
    proa_cloud_credentials *c = &s->credentials;
    proa_status status = proa_cloud_renew(&s->renewal, c, s->crypto, err);
    if (status != PROA_OK) return proa_err_prefix(err, "cannot open '%s'", s->address.text), status;
    if (!c->region[0] && c->source == PROA_CLOUD_AWS_INSTANCE && c->key.id[0])
        proa_cloud_fetch_region(c->region, sizeof c->region, c);
    if (!c->region[0]) snprintf(c->region, sizeof c->region, "us-east-1");
    return PROA_OK;
}

proa_status proa_cloud_store_open(proa_cloud_store *s, const char *address, proa_err *err)
{
    *s = (proa_cloud_store){.settings = {.timeout_s = TIMEOUT_S, .connections = PROA_HUB_CONNECTIONS}};
    PROA_TRY(proa_cloud_address_parse(&s->address, address, err));
    PROA_TRY(proa_cloud_credentials_read(&s->credentials, &s->address, err));
    PROA_TRY(proa_crypto_open(&s->crypto, err));
    PROA_TRY(proa_hub_digest_open(err));
    PROA_TRY(check_key(s, err));
    PROA_TRY(find_credentials(s, err));
    PROA_TRY(find_endpoint(s, err));
    PROA_TRY(proa_hub_client_open(&s->client, &cloud_site, &s->settings, s->address.text, err));
    s->client.site_arg = s;
    return PROA_OK;
}

void proa_cloud_store_close(proa_cloud_store *s)
{
    if (s->client.multi) proa_hub_client_close(&s->client);
}

static proa_status list_page(proa_cloud_store *s, proa_cloud_listing *out, const char *prefix,
                             const char *next, proa_err *err)
{
    proa_buf url, body;
    proa_buf_init(&url, PROA_HUB_URL_MAX);
    proa_buf_init(&body, (size_t)PROA_CLOUD_PAGE_BYTES_MAX);
    list_url(&url, s, prefix, next);
    if (url.full) {
        proa_buf_release(&url);
        return PROA_FAIL(err, LIMIT, "the token of the list's next page is too long");
    }
    proa_status status = request_text(&s->client, &body, url.ptr, NULL, err);
    if (status == PROA_OK)
        status = proa_cloud_listing_add(out, &s->address, prefix, proa_buf_view(&body), err);
    proa_buf_release(&body);
    return status;
}

static proa_status list_pages(proa_cloud_store *s, proa_cloud_listing *out, const char *prefix, proa_err *err)
{
    const char *next = NULL;
    for (int pages = 0; pages == 0 || next; pages++) {
        if (pages >= PROA_CLOUD_PAGES_MAX)
            return PROA_FAIL(err, LIMIT, "the list has more than %d pages", PROA_CLOUD_PAGES_MAX);
        PROA_TRY(list_page(s, out, prefix, next, err));
        if (next && out->next && strcmp(next, out->next) == 0)
            return PROA_FAIL(err, CORRUPT, "the list names the same page as its next one");
        next = out->next;
    }
    return proa_cloud_listing_sort(out, err);
}

proa_status proa_cloud_store_list(proa_cloud_store *s, proa_cloud_listing *out, const char *folder, proa_err *err)
{
    char prefix[2 * PROA_PATH_MAX];
    snprintf(prefix, sizeof prefix, "%s%s", s->address.prefix, folder);
    proa_status status = proa_cloud_renew(&s->renewal, &s->credentials, s->crypto, err);
    if (status == PROA_OK) status = list_pages(s, out, prefix, err);
    if (status != PROA_OK) proa_err_prefix(err, "cannot list '%s'", s->address.text);
    return status;
}

proa_status proa_cloud_store_enter(proa_cloud_store *s, const char *folder, proa_err *err)
{
    snprintf(s->base, sizeof s->base, "%s%s", s->address.prefix, folder);
    return proa_cloud_renew(&s->renewal, &s->credentials, s->crypto, err);
}
