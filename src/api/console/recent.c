/* SPDX-License-Identifier: Apache-2.0
 * recent.c - the ring of recent requests, and its JSON. */
#include "api/console/recent.h"

#include "base/clock.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* The request with number n is in slot n % PROA_RECENT_REQUESTS_MAX, under lock n % LOCKS. */
enum { LOCKS = 8 };
static proa_recent_request slots[PROA_RECENT_REQUESTS_MAX];
static pthread_mutex_t locks[LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                       PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                       PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                       PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static atomic_uint_least64_t last_number;

/* ---- writing ---- */

/* At most PROA_RECENT_NAME_MAX - 1 bytes, without half a character at the end. */
static void copy_name(char to[PROA_RECENT_NAME_MAX], const char *name)
{
    size_t len = strlen(name);
    if (len >= PROA_RECENT_NAME_MAX) {
        len = PROA_RECENT_NAME_MAX - 1;
        while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80) len--;
    }
    memcpy(to, name, len);
    to[len] = 0;
}

static int64_t unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static proa_status status_of(const proa_infer *r, const proa_reply *reply)
{
    if (reply && reply->error.status != PROA_OK) return reply->error.status;
    return r->ticket.failed ? PROA_INTERNAL : PROA_OK; /* an earlier reply had an error */
}

void proa_recent_add(const proa_infer *r, const proa_reply *reply)
{
    int64_t now = proa_clock_ns();
    proa_recent_request one = {.version = reply ? reply->model_version : r->model_version,
                               .status = status_of(r, reply),
                               .times = r->times,
                               .usage = r->usage};
    if (!one.times.received) one.times.received = one.times.queued ? one.times.queued : now;
    if (!one.times.ended) one.times.ended = now;
    one.received_ms = unix_ms() - (now - one.times.received) / 1000000;
    copy_name(one.model, r->model_name ? r->model_name : "");
    copy_name(one.id, r->id ? r->id : "");
    one.number = atomic_fetch_add(&last_number, 1) + 1;
    proa_recent_request *slot = &slots[one.number % PROA_RECENT_REQUESTS_MAX];
    pthread_mutex_lock(&locks[one.number % LOCKS]);
    if (slot->number < one.number) *slot = one; /* else others went once around meanwhile */
    pthread_mutex_unlock(&locks[one.number % LOCKS]);
}

/* ---- reading ---- */

int proa_recent_read(proa_recent_request *list, int cap, uint64_t since)
{
    uint64_t last = atomic_load(&last_number), number = since;
    int count = 0;
    if (last > PROA_RECENT_REQUESTS_MAX && number < last - PROA_RECENT_REQUESTS_MAX)
        number = last - PROA_RECENT_REQUESTS_MAX;
    for (number++; number <= last && count < cap; number++) {
        pthread_mutex_lock(&locks[number % LOCKS]);
        list[count] = slots[number % PROA_RECENT_REQUESTS_MAX];
        pthread_mutex_unlock(&locks[number % LOCKS]);
        if (list[count].number < number) break;    /* its writer has not come to it */
        if (list[count].number == number) count++; /* else it was overwritten: the request is forgotten */
    }
    return count;
}

uint64_t proa_recent_last(uint64_t since)
{
    uint64_t last = atomic_load(&last_number);
    return since < last ? since : last;
}

/* A moment of the request, in microseconds after it was received; a moment that was not reached is left out. */
static void put_moment(proa_buf *out, const char *name, int64_t ns, int64_t received)
{
    if (!ns) return;
    int64_t us = (ns - received) / 1000;
    proa_buf_printf(out, ",\"%s\":%" PRId64, name, us > 0 ? us : 0);
}

static void put_request(proa_buf *out, const proa_recent_request *r)
{
    int64_t received = r->times.received;
    proa_buf_printf(out, "{\"number\":%" PRIu64 ",\"model\":", r->number);
    proa_buf_json_str(out, proa_str_c(r->model));
    proa_buf_printf(out, ",\"version\":\"%" PRId64 "\",\"id\":", r->version);
    proa_buf_json_str(out, proa_str_c(r->id));
    proa_buf_printf(out, ",\"received_ms\":%" PRId64 ",\"status\":%d,\"result\":\"%s\"", r->received_ms,
                    proa_status_http(r->status), proa_status_text(r->status));
    put_moment(out, "queued_us", r->times.queued, received);
    put_moment(out, "started_us", r->times.compute_start, received);
    put_moment(out, "first_token_us", r->usage.first_token_ns, received);
    put_moment(out, "ended_us", r->times.ended, received);
    proa_buf_printf(out, ",\"prompt_tokens\":%" PRId64 ",\"cached_tokens\":%" PRId64, r->usage.prompt_tokens,
                    r->usage.cached_tokens);
    proa_buf_printf(out, ",\"new_tokens\":%" PRId64 ",\"sequences\":%" PRId64 "}", r->usage.new_tokens,
                    r->usage.sequences);
}

void proa_recent_json(proa_buf *out, const proa_recent_request *list, int count)
{
    proa_buf_char(out, '[');
    for (int i = 0; i < count; i++) {
        if (i) proa_buf_char(out, ',');
        put_request(out, &list[i]);
    }
    proa_buf_char(out, ']');
}
