/* SPDX-License-Identifier: Apache-2.0
 * collector.c - requests to an OpenTelemetry collector, and what its environment variables say. */
#include "telemetry/collector.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "hub/curl.h"
#include "proto/message.h"
#include "telemetry/otlp.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS_NS ((int64_t)1000000)

struct proa_collector {
    const proa_curl *curl;
    CURL *easy; /* keeps its connection */
    struct curl_slist *headers;
    char *url;
    proa_arena arena; /* of the resource */
    Otlp__Resource resource;
    atomic_llong close_ns; /* when all sending must have ended; 0: not yet */
    int64_t until_ns;      /* of the batch that is being sent */
    proa_buf answer;
    bool failed; /* the last batch was not taken, which was logged */
};

/* ---- the resource: attributes of the server ---- */

/* A later value replaces an earlier one. */
static void put_resource(proa_collector *c, proa_str key, proa_str value)
{
    Otlp__KeyValue *kv = proa_otlp_text(&c->arena, key, value);
    size_t i = 0;
    while (i < c->resource.n_attributes && strcmp(c->resource.attributes[i]->key, kv->key) != 0) i++;
    if (i == PROA_OTLP_HEADERS_MAX) return;
    c->resource.attributes[i] = kv;
    if (i == c->resource.n_attributes) c->resource.n_attributes++;
}

static proa_str trim_space(const char *from, const char *to)
{
    while (from < to && isspace((unsigned char)*from)) from++;
    while (to > from && isspace((unsigned char)to[-1])) to--;
    return (proa_str){from, (size_t)(to - from)};
}

/* Calls see for each "key=value" of a list with commas, as the environment variables have it. */
static void each_pair(const char *list, void (*see)(proa_collector *c, proa_str key, proa_str value),
                      proa_collector *c)
{
    for (const char *at = list; at && *at;) {
        const char *end = strchrnul(at, ','), *equals = memchr(at, '=', (size_t)(end - at));
        if (equals) {
            proa_str key = trim_space(at, equals), value = trim_space(equals + 1, end);
            if (key.len) see(c, key, value);
        }
        at = *end ? end + 1 : end;
    }
}

static proa_status take_resource(proa_collector *c, const proa_telemetry_options *o, proa_err *err)
{
    static const char name[] = "proa", version[] = PROA_VERSION;
    otlp__resource__init(&c->resource);
    c->resource.attributes = PROA_ARENA_NEW(&c->arena, Otlp__KeyValue *, PROA_OTLP_HEADERS_MAX);
    put_resource(c, proa_str_c("service.name"), proa_str_c(name));
    put_resource(c, proa_str_c("service.version"), proa_str_c(version));
    each_pair(getenv("OTEL_RESOURCE_ATTRIBUTES"), put_resource, c);
    const char *service = getenv("OTEL_SERVICE_NAME");
    if (service && *service) put_resource(c, proa_str_c("service.name"), proa_str_c(service));
    for (int i = 0; i < o->resource_count; i++) {
        const char *pair = o->resource[i], *equals = strchr(pair, '=');
        if (!equals || equals == pair) return PROA_FAIL(err, INVALID, "resource=%s: must be KEY=VALUE", pair);
        put_resource(c, (proa_str){pair, (size_t)(equals - pair)}, proa_str_c(equals + 1));
    }
    return PROA_OK;
}

/* ---- the address and the headers ---- */

static char *address_of(const char *url)
{
    const char *traces = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
               *base = getenv("OTEL_EXPORTER_OTLP_ENDPOINT");
    if (url) return proa_strdup(url);
    if (traces && *traces) return proa_strdup(traces);
    if (!base || !*base) return proa_strdup(PROA_OTLP_URL);
    size_t len = strlen(base);
    while (len && base[len - 1] == '/') len--;
    proa_buf joined;
    proa_buf_init(&joined, PROA_OTLP_URL_BYTES_MAX);
    proa_buf_printf(&joined, "%.*s/v1/traces", (int)len, base);
    return joined.ptr;
}

static proa_status check_address(const char *url, proa_err *err)
{
    bool scheme = strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0;
    bool plain = strlen(url) <= PROA_OTLP_URL_BYTES_MAX;
    for (const unsigned char *at = (const unsigned char *)url; *at; at++)
        plain = plain && *at > 0x20 && *at != 0x7f;
    if (scheme && plain) return PROA_OK;
    return PROA_FAIL(err, INVALID, "url=%.200s: must be http://HOST:PORT/PATH or https://...", url);
}

/* A value may have %XX. Control characters would begin another header: such a pair is left out. */
static void put_header(proa_collector *c, proa_str key, proa_str value)
{
    proa_buf line;
    proa_buf_init(&line, PROA_OTLP_URL_BYTES_MAX);
    proa_buf_printf(&line, "%.*s: ", (int)key.len, key.ptr);
    for (size_t i = 0; i < value.len; i++) {
        int high = i + 2 < value.len && value.ptr[i] == '%' ? proa_hex_digit(value.ptr[i + 1]) : -1;
        int low = high >= 0 ? proa_hex_digit(value.ptr[i + 2]) : -1;
        proa_buf_char(&line, low >= 0 ? (char)(16 * high + low) : value.ptr[i]);
        if (low >= 0) i += 2;
    }
    bool plain = !line.full;
    for (size_t i = 0; i < line.len; i++) plain = plain && (unsigned char)line.ptr[i] >= 0x20;
    if (plain) c->headers = c->curl->slist_append(c->headers, line.ptr);
    proa_buf_release(&line);
}

/* ---- one request ---- */

static size_t take_answer(char *bytes, size_t size, size_t count, void *arg)
{
    proa_collector *c = arg;
    proa_buf_append(&c->answer, bytes, size * count); /* what is too long is dropped */
    return size * count;
}

static int64_t time_left_ns(const proa_collector *c)
{
    int64_t close_ns = atomic_load(&c->close_ns), until = c->until_ns;
    if (close_ns && close_ns < until) until = close_ns;
    return until - proa_clock_ns();
}

/* libcurl calls this about once a second, and whenever bytes move. */
static int stop_if_late(void *arg, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e)
{
    PROA_UNUSED(a), PROA_UNUSED(b), PROA_UNUSED(d), PROA_UNUSED(e);
    return time_left_ns(arg) <= 0;
}

/* The status of the answer; 0: none came, and *why says why not. */
static long post_once(proa_collector *c, const proa_buf *body, const char **why)
{
    const proa_curl *curl = c->curl;
    long status = 0;
    proa_buf_clear(&c->answer);
    c->answer.full = false;
    curl->easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
    curl->easy_setopt(c->easy, CURLOPT_POSTFIELDS, body->ptr);
    curl->easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, (long)(time_left_ns(c) / MS_NS + 1));
    CURLcode code = curl->easy_perform(c->easy);
    *why = curl->easy_strerror(code);
    if (code == CURLE_OK) curl->easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool may_repeat(long status)
{
    return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* False: there is no time for another try. */
static bool pause_before_retry(const proa_collector *c, int64_t ms)
{
    for (int64_t slept = 0; slept < ms; slept += 50) {
        if (time_left_ns(c) <= 0) return false;
        nanosleep(&(struct timespec){.tv_nsec = 50 * MS_NS}, NULL);
    }
    return time_left_ns(c) > 0;
}

static void log_failure(proa_collector *c, long status, const char *why)
{
    if (!c->failed && status)
        PROA_LOG(WARNING, "the collector at %s answers %ld: spans are lost until it takes them", c->url, status);
    else if (!c->failed)
        PROA_LOG(WARNING, "no answer of the collector at %s (%s): spans are lost", c->url, why);
    c->failed = true;
}

/* Spans of a batch of `spans` that were not taken. */
static int64_t rejected_spans(const proa_collector *c, int64_t spans)
{
    Otlp__ExportTraceServiceResponse *answer = otlp__export_trace_service_response__unpack(
        NULL, c->answer.len, (const uint8_t *)c->answer.ptr);
    int64_t rejected = answer && answer->partial_success ? answer->partial_success->rejected_spans : 0;
    if (rejected > 0)
        PROA_LOG(WARNING, "the collector at %s has rejected %lld of %lld spans: %.200s", c->url,
                 (long long)rejected, (long long)spans, answer->partial_success->error_message);
    if (answer) otlp__export_trace_service_response__free_unpacked(answer, NULL);
    return rejected < 0 ? 0 : rejected > spans ? spans : rejected;
}

static void post_batch(proa_collector *c, const proa_buf *body, int64_t spans, proa_telemetry_counts *counts)
{
    const char *why;
    c->until_ns = proa_clock_ns() + PROA_OTLP_TIMEOUT_MS * MS_NS;
    long status = post_once(c, body, &why);
    for (int64_t ms = 500; may_repeat(status) && pause_before_retry(c, ms); ms *= 2)
        status = post_once(c, body, &why);
    if (status < 200 || status > 299) {
        log_failure(c, status, why);
        counts->failed_exports++;
        counts->dropped += (uint64_t)spans;
        return;
    }
    if (c->failed) PROA_LOG(INFO, "the collector at %s takes spans again", c->url);
    c->failed = false;
    int64_t rejected = rejected_spans(c, spans);
    counts->exported += (uint64_t)(spans - rejected);
    counts->dropped += (uint64_t)rejected;
}

/* ---- batches ---- */

static void send_spans(proa_collector *c, Otlp__Span **spans, int64_t count, proa_telemetry_counts *counts)
{
    static char name[] = "proa", version[] = PROA_VERSION;
    Otlp__InstrumentationScope scope = OTLP__INSTRUMENTATION_SCOPE__INIT;
    Otlp__ScopeSpans of_scope = OTLP__SCOPE_SPANS__INIT, *scopes[] = {&of_scope};
    Otlp__ResourceSpans of_resource = OTLP__RESOURCE_SPANS__INIT, *resources[] = {&of_resource};
    Otlp__ExportTraceServiceRequest request = OTLP__EXPORT_TRACE_SERVICE_REQUEST__INIT;
    proa_buf body;
    scope.name = name;
    scope.version = version;
    of_scope.scope = &scope;
    of_scope.spans = spans;
    of_scope.n_spans = (size_t)count;
    of_resource.resource = &c->resource;
    of_resource.scope_spans = scopes;
    of_resource.n_scope_spans = 1;
    request.resource_spans = resources;
    request.n_resource_spans = 1;
    proa_buf_init(&body, PROA_TRACE_QUEUED_BYTES);
    if (proa_message_pack(&body, &request.base)) post_batch(c, &body, count, counts);
    else counts->dropped += (uint64_t)count;
    proa_buf_release(&body);
}

void proa_collector_send(proa_collector *c, const proa_trace *list, int64_t batch_max,
                         proa_telemetry_counts *counts)
{
    int64_t count = 0, made = 0, unix_ns = proa_otlp_unix_offset();
    proa_arena arena;
    proa_arena_init(&arena);
    for (const proa_trace *t = list; t; t = t->next) count += proa_otlp_count(t);
    Otlp__Span **spans = PROA_ARENA_NEW(&arena, Otlp__Span *, count);
    for (const proa_trace *t = list; t; t = t->next) made += proa_otlp_add(spans + made, t, unix_ns, &arena);
    PROA_ASSERT(made == count);
    for (int64_t at = 0; at < count; at += batch_max)
        send_spans(c, spans + at, proa_min64(batch_max, count - at), counts);
    proa_arena_release(&arena);
}

void proa_collector_hurry(proa_collector *c)
{
    atomic_store(&c->close_ns, proa_clock_ns() + PROA_OTLP_CLOSE_MS * MS_NS);
}

/* ---- open and close ---- */

static void set_options(proa_collector *c)
{
    const proa_curl *curl = c->curl;
    curl->easy_setopt(c->easy, CURLOPT_URL, c->url);
    curl->easy_setopt(c->easy, CURLOPT_POST, 1L);
    curl->easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
    curl->easy_setopt(c->easy, CURLOPT_USERAGENT, "proa/" PROA_VERSION);
    curl->easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, take_answer);
    curl->easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl->easy_setopt(c->easy, CURLOPT_NOPROGRESS, 0L);
    curl->easy_setopt(c->easy, CURLOPT_XFERINFOFUNCTION, stop_if_late);
    curl->easy_setopt(c->easy, CURLOPT_XFERINFODATA, c);
}

static proa_status open_parts(proa_collector *c, const proa_telemetry_options *o, proa_err *err)
{
    PROA_TRY(proa_curl_open(&c->curl, err));
    c->url = address_of(o->url);
    PROA_TRY(check_address(c->url, err));
    PROA_TRY(take_resource(c, o, err));
    c->easy = c->curl->easy_init();
    if (!c->easy) return PROA_FAIL(err, NO_MEMORY, "libcurl has no memory");
    c->headers = c->curl->slist_append(NULL, "Content-Type: application/x-protobuf");
    c->headers = c->curl->slist_append(c->headers, "Expect:"); /* no 100-continue: it would cost a round trip */
    each_pair(getenv("OTEL_EXPORTER_OTLP_HEADERS"), put_header, c);
    each_pair(getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), put_header, c);
    set_options(c);
    return PROA_OK;
}

proa_status proa_collector_open(proa_collector **out, const proa_telemetry_options *options, proa_err *err)
{
    proa_collector *c = proa_calloc(1, sizeof *c);
    proa_arena_init(&c->arena);
    proa_buf_init(&c->answer, PROA_OTLP_ANSWER_BYTES_MAX);
    proa_status status = open_parts(c, options, err);
    *out = status == PROA_OK ? c : NULL;
    if (status != PROA_OK) proa_collector_close(c);
    return status;
}

const char *proa_collector_url(const proa_collector *c)
{
    return c->url;
}

void proa_collector_close(proa_collector *c)
{
    if (!c) return;
    if (c->headers) c->curl->slist_free_all(c->headers);
    if (c->easy) c->curl->easy_cleanup(c->easy);
    proa_buf_release(&c->answer);
    proa_arena_release(&c->arena);
    free(c->url);
    free(c);
}
