/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a stream of HTTP/1.1 requests. The first byte seeds how the others are cut into portions: the codec must
 * make the same of them as of the whole. Heads and sizes that are announced must keep their promises. */
#include "fuzz.h"

#include "../unit/net/http1_trace.h"
#include "base/compiler.h"

#define BODY_MAX 5000

static void check_head(const trace *t)
{
    const proa_http1 *c = &t->codec;
    PROA_ASSERT(c->fields_count <= PROA_HTTP_HEADERS_MAX);
    PROA_ASSERT(c->fields_count == 0 || (c->method.len > 0 && c->target.len > 0));
    PROA_ASSERT(t->broken || !(c->chunked && c->content_length >= 0));
    PROA_ASSERT(c->status == 0 || c->why != NULL);
    PROA_ASSERT(t->wait_len <= PROA_HTTP_HEAD_BYTES_MAX);
}

static void feed_portions(trace *t, const char *bytes, size_t len, unsigned seed)
{
    while (len > 0) {
        seed = seed * 1103515245U + 12345U;
        size_t n = 1 + (seed >> 16) % (seed & 0x8000 ? 3 : 200);
        if (n > len) n = len;
        trace_feed(t, bytes, n, BODY_MAX);
        check_head(t);
        bytes += n;
        len -= n;
    }
}

static void split_targets(proa_str text)
{
    proa_str path, query;
    if (!proa_http1_split(text, &path, &query)) return;
    PROA_ASSERT(path.len > 0 && path.len + query.len <= text.len + 1);
    PROA_ASSERT(!proa_http1_has(text, "chunked") || text.len >= 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const char *bytes = (const char *)data + 1;
    trace whole, parts;
    trace_open(&whole);
    trace_open(&parts);
    trace_feed(&whole, bytes, size - 1, BODY_MAX);
    feed_portions(&parts, bytes, size - 1, data[0]);
    PROA_ASSERT(proa_str_eq(proa_buf_view(&whole.text), proa_buf_view(&parts.text)));
    PROA_ASSERT(whole.broken == parts.broken && whole.wait_len == parts.wait_len);
    split_targets((proa_str){bytes, size - 1});
    trace_close(&whole);
    trace_close(&parts);
    return 0;
}
