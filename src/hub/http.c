/* SPDX-License-Identifier: Apache-2.0
 * http.c - transfers over libcurl: what is sent, and when it is repeated. */
#include "hub/http.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "hub/reply.h"
#include "hub/url.h"
#include <string.h>
#include <strings.h>

#define SECOND_NS ((int64_t)1000000000)

proa_status proa_hub_client_open(proa_hub_client *c, const proa_hub_site *site,
                                 const proa_hub_settings *settings, const char *repo, proa_err *err)
{
    *c = (proa_hub_client){.site = site, .settings = settings, .repo = repo};
    PROA_TRY(proa_curl_open(&c->curl, err));
    c->multi = c->curl->multi_init();
    return c->multi ? PROA_OK : PROA_FAIL(err, NO_MEMORY, "libcurl has no memory");
}

void proa_hub_client_close(proa_hub_client *c)
{
    while (c->transfers) proa_hub_stop(c->transfers);
    if (c->multi) c->curl->multi_cleanup(c->multi);
    c->multi = NULL;
}

/* ---- one attempt ---- */

static proa_status accept_reply(proa_hub_transfer *t, proa_err *err)
{
    const proa_hub_reply *r = &t->reply;
    int64_t from = t->first + t->received;
    if (t->end < 0) return PROA_OK;
    if (r->code == 206) {
        if (r->range_first == from) return PROA_OK;
        return PROA_FAIL(err, CORRUPT, "the server sent bytes from %lld where %lld was requested",
                         (long long)r->range_first, (long long)from);
    }
    if (from == 0) return PROA_OK; /* the whole file, from its beginning */
    t->range_ignored = true;
    return PROA_FAIL(err, CORRUPT, "the server does not send parts of files");
}

static size_t take_body(char *bytes, size_t size, size_t count, void *arg)
{
    proa_hub_transfer *t = arg;
    size_t len = size * count;
    proa_status status = PROA_OK;
    if (!t->body_begun) {
        t->body_begun = true;
        t->client->curl->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->reply.code);
        if (t->reply.code == 200 || t->reply.code == 206) status = accept_reply(t, &t->err);
        else proa_buf_init(&t->error_body, PROA_HUB_ERROR_BYTES_MAX);
    }
    if (t->reply.code != 200 && t->reply.code != 206) return proa_buf_append(&t->error_body, bytes, len), len;
    if (status == PROA_OK && t->end < 0 && t->received + (int64_t)len > t->bytes_max)
        status = PROA_FAIL(&t->err, LIMIT, "the answer has more than %lld bytes", (long long)t->bytes_max);
    if (status == PROA_OK) status = t->on_body(t, bytes, len, &t->err);
    if (status != PROA_OK) return 0; /* libcurl ends the transfer with CURLE_WRITE_ERROR */
    t->received += (int64_t)len;
    return len;
}

static size_t take_header(char *line, size_t size, size_t count, void *arg)
{
    proa_hub_transfer *t = arg;
    proa_hub_reply_header(&t->reply, (proa_str){line, size * count});
    return size * count;
}

static const char *ca_file(void)
{
    static const char *const names[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        const char *path = getenv(names[i]);
        if (path && path[0]) return path;
    }
    return NULL;
}

static void set_headers(proa_hub_transfer *t)
{
    const proa_hub_client *c = t->client;
    t->headers = c->curl->slist_append(NULL, "Accept-Encoding: identity"); /* sizes and ranges are those of the file */
    if (proa_hub_same_origin(c->curl, t->url, c->settings->endpoint))
        t->headers = c->site->sign(t, t->headers);
    c->curl->easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
}

static void set_range(proa_hub_transfer *t)
{
    char range[64];
    if (t->end < 0) return;
    snprintf(range, sizeof range, "%lld-%lld", (long long)(t->first + t->received), (long long)(t->end - 1));
    t->client->curl->easy_setopt(t->easy, CURLOPT_RANGE, range);
}

static void begin_attempt(proa_hub_transfer *t)
{
    const proa_curl *curl = t->client->curl;
    long timeout = (long)t->client->settings->timeout_s;
    if (t->end < 0 && t->received > 0) t->on_restart(t), t->received = 0;
    t->body_begun = false, t->received_before = t->received;
    proa_buf_release(&t->error_body);
    t->easy = curl->easy_init();
    PROA_ASSERT(t->easy);
    curl->easy_setopt(t->easy, CURLOPT_URL, t->url);
    curl->easy_setopt(t->easy, CURLOPT_NOBODY, (long)t->head);
    if (t->form) curl->easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->form);
    if (t->method) curl->easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, t->method);
    if (t->no_proxy) curl->easy_setopt(t->easy, CURLOPT_NOPROXY, "*");
    if (t->timeout_ms) curl->easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)t->timeout_ms);
    curl->easy_setopt(t->easy, CURLOPT_USERAGENT, "proa/" PROA_VERSION);
    curl->easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    /* several ranges over one HTTP/2 connection would share its congestion window */
    curl->easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(t->easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl->easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT, timeout);
    curl->easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl->easy_setopt(t->easy, CURLOPT_LOW_SPEED_TIME, timeout);
    if (ca_file()) curl->easy_setopt(t->easy, CURLOPT_CAINFO, ca_file());
    curl->easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl->easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl->easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, take_header);
    curl->easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl->easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    set_headers(t);
    set_range(t);
    curl->multi_add_handle(t->client->multi, t->easy);
}

static void end_attempt(proa_hub_transfer *t)
{
    const proa_curl *curl = t->client->curl;
    if (!t->easy) return;
    curl->multi_remove_handle(t->client->multi, t->easy);
    curl->easy_cleanup(t->easy);
    curl->slist_free_all(t->headers);
    t->easy = NULL, t->headers = NULL;
}

/* ---- what follows an attempt ---- */

static void unlink_transfer(proa_hub_transfer *t)
{
    proa_hub_transfer **link = &t->client->transfers;
    while (*link && *link != t) link = &(*link)->next;
    if (*link) *link = t->next, t->client->active--;
}

static void finish_transfer(proa_hub_transfer *t)
{
    end_attempt(t);
    unlink_transfer(t);
    if (t->err.status != PROA_OK && t->what) proa_err_prefix(&t->err, "%s", t->what);
    t->on_done(t);
}

/* Begins again after a pause. False if that has been done often enough, or the server wants to rest for too long. */
static bool retry_later(proa_hub_transfer *t, const char *why)
{
    int64_t pause_ns;
    int attempts_max = t->attempts_max ? t->attempts_max : PROA_HUB_ATTEMPTS_MAX;
    if (t->end >= 0 && t->received > t->received_before) t->attempts = 0;
    if (++t->attempts >= attempts_max || t->reply.retry_after_s > PROA_HUB_WAIT_SECS_MAX) return false;
    pause_ns = ((int64_t)PROA_HUB_RETRY_MS * 1000000) << (t->attempts - 1);
    if (t->reply.retry_after_s >= 0)
        pause_ns = proa_max64(t->reply.retry_after_s * SECOND_NS, SECOND_NS / 20);
    t->start_ns = proa_clock_ns() + pause_ns;
    snprintf(t->client->waiting, sizeof t->client->waiting, "%s: %.0f s", why, (double)pause_ns * 1e-9);
    return true;
}

static void after_redirect(proa_hub_transfer *t)
{
    const proa_hub_client *c = t->client;
    char *target = NULL;
    if (t->redirects++ >= PROA_HUB_REDIRECTS_MAX) {
        (void)PROA_FAIL(&t->err, CORRUPT, "more than %d redirects", PROA_HUB_REDIRECTS_MAX);
        finish_transfer(t);
        return;
    }
    if (proa_hub_follow(&target, c->curl, t->url, t->reply.location, &t->err) != PROA_OK) {
        finish_transfer(t);
        return;
    }
    bool stop = t->head && !proa_hub_same_origin(c->curl, t->url, target);
    free(t->url);
    t->url = target;
    if (stop)
        finish_transfer(t); /* the hub's own headers describe the file; the other host only has its bytes */
    else t->start_ns = 0;
}

static bool is_passing(long code)
{
    return code == 408 || code == 429 || code == 500 || code == 502 || code == 503 || code == 504;
}

static void after_response(proa_hub_transfer *t)
{
    const proa_hub_reply *r = &t->reply;
    char why[64];
    if (r->code >= 301 && r->code <= 308 && r->location && !t->form && !t->no_redirect) {
        after_redirect(t);
        return;
    }
    if (is_passing(r->code)) {
        snprintf(why, sizeof why, "the server answers %ld %s", r->code, proa_hub_reason(r->code));
        if (retry_later(t, why)) return;
    }
    bool good = r->code == 200 || r->code == 206;
    if (!good) t->client->site->refuse(t, &t->err);
    finish_transfer(t);
}

/* Whether another attempt could fare better. */
static bool is_passing_failure(const proa_hub_transfer *t, CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return !t->no_retry;
    case CURLE_OPERATION_TIMEDOUT: return !t->timeout_ms;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

static void after_failure(proa_hub_transfer *t, CURLcode code)
{
    const char *why = t->client->curl->easy_strerror(code);
    char host[256];
    t->reply.retry_after_s = -1;
    if (t->err.status == PROA_OK && is_passing_failure(t, code) && retry_later(t, why)) return;
    proa_hub_host(host, sizeof host, t->url);
    if (t->err.status == PROA_OK) (void)PROA_FAIL(&t->err, UNAVAILABLE, "cannot reach %s: %s", host, why);
    finish_transfer(t);
}

static void after_attempt(proa_hub_transfer *t, CURLcode code)
{
    bool complete = t->end < 0 || t->received >= t->end - t->first;
    t->client->curl->easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->reply.code);
    end_attempt(t);
    if (code == CURLE_OK && t->reply.code == 206 && !complete) code = CURLE_PARTIAL_FILE;
    if (code == CURLE_OK) after_response(t);
    else after_failure(t, code);
}

/* ---- the client ---- */

void proa_hub_start(proa_hub_client *c, proa_hub_transfer *t)
{
    t->client = c;
    t->start_ns = 0;
    proa_hub_reply_clear(&t->reply);
    t->next = c->transfers;
    c->transfers = t;
    c->active++;
}

void proa_hub_stop(proa_hub_transfer *t)
{
    end_attempt(t);
    unlink_transfer(t);
}

void proa_hub_transfer_release(proa_hub_transfer *t)
{
    proa_buf_release(&t->error_body);
    free(t->reply.location);
    free(t->url);
    t->reply.location = t->url = NULL;
}

/* Begins what is due. Returns the milliseconds until the next one is, at most wait_ms. */
static int begin_due(proa_hub_client *c, int wait_ms)
{
    int64_t now = proa_clock_ns();
    bool moving = false;
    for (proa_hub_transfer *t = c->transfers; t; t = t->next) {
        if (!t->easy && t->start_ns <= now) begin_attempt(t);
        moving |= t->easy != NULL;
        if (!t->easy) wait_ms = (int)proa_min64(wait_ms, (t->start_ns - now) / 1000000 + 1);
    }
    if (moving) c->waiting[0] = '\0';
    return wait_ms;
}

void proa_hub_step(proa_hub_client *c, int wait_ms)
{
    int running = 0, left = 0;
    wait_ms = begin_due(c, wait_ms);
    c->curl->multi_perform(c->multi, &running);
    for (CURLMsg *m; (m = c->curl->multi_info_read(c->multi, &left));) {
        proa_hub_transfer *t = NULL;
        CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE) continue;
        c->curl->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        after_attempt(t, code);
    }
    bool due = false;
    int64_t now = proa_clock_ns();
    for (proa_hub_transfer *t = c->transfers; t; t = t->next) due |= !t->easy && t->start_ns <= now;
    if (c->active && !due) c->curl->multi_poll(c->multi, NULL, 0, wait_ms, NULL);
}

/* ---- a whole answer ---- */

enum { FETCH_STEP_MS = 100 };

static proa_status take_bytes(proa_hub_transfer *t, const char *bytes, size_t len, proa_err *err)
{
    if (proa_buf_append(t->arg, bytes, len)) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the answer has more than %zu bytes", ((proa_buf *)t->arg)->bytes_max);
}

static void restart_bytes(proa_hub_transfer *t)
{
    proa_buf_clear(t->arg);
}

static void forget_client(proa_hub_transfer *t)
{
    t->client = NULL;
}

proa_status proa_hub_receive(proa_hub_client *c, proa_hub_transfer *t, proa_buf *body, proa_err *err)
{
    t->on_body = take_bytes, t->on_restart = restart_bytes, t->on_done = forget_client, t->arg = body;
    proa_hub_start(c, t);
    while (c->active) proa_hub_step(c, FETCH_STEP_MS);
    proa_status status = proa_err_copy(err, &t->err);
    proa_hub_transfer_release(t);
    return status;
}
