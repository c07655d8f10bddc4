/* SPDX-License-Identifier: Apache-2.0
 * Any bytes from a client into a gRPC session over a connection in memory. The first byte says how they are cut, what
 * the service does, and when the clock moves; the rest follows the client's preface, which is not to be guessed.
 * Every call that was begun must end, every message that was kept be released. */
#include "../unit/net/conn_double.h"
#include "fuzz.h"
#include "net/grpc/grpc.h"

enum { CUT = 7, PAUSES = 8, KEEPS = 16, TICKS = 32, PACKS = 64, SLOW = 128 };

static unsigned flags;
static int calls, kept;
static proa_grpc_call *paused[64];
static int paused_count;

static void on_disconnect(proa_grpc_call *call)
{
    calls--;
    for (int i = 0; i < paused_count; i++)
        if (paused[i] == call) paused[i] = NULL;
}

static void release(void *message)
{
    kept--;
    proa_grpc_free(message);
}

static void on_message(proa_grpc_call *call, proa_str bytes)
{
    struct iovec iov = {(void *)(uintptr_t)bytes.ptr, bytes.len};
    if (flags & KEEPS) {
        kept++;
        proa_grpc_send(call, &iov, 1, release, proa_grpc_take(call));
    } else proa_grpc_send(call, &iov, 1, NULL, NULL);
    if (!(flags & PAUSES) || paused_count == 64) return;
    paused[paused_count++] = call;
    proa_grpc_pause(call, true);
}

static void on_half_close(proa_grpc_call *call)
{
    proa_grpc_header trailer = {proa_str_c("x-bin"), proa_grpc_get(call, "x-bin")};
    on_disconnect(call);
    proa_grpc_finish(call, PROA_GRPC_OK, call->path, &trailer, trailer.value.len ? 1 : 0);
}

static void on_call(proa_grpc_call *call, void *arg)
{
    PROA_UNUSED(arg);
    calls++;
    call->on_message = on_message;
    call->on_half_close = on_half_close;
    call->on_disconnect = on_disconnect;
}

static void resume_all(void)
{
    int count = paused_count;
    proa_grpc_call *list[64];
    memcpy(list, paused, sizeof list);
    paused_count = 0;
    for (int i = 0; i < count; i++)
        if (list[i]) proa_grpc_pause(list[i], false);
}

/* After each piece of input: what the loop would do. */
static void turn(proa_loop *loop, proa_conn *conn, void *session)
{
    double_run_tasks(loop);
    resume_all();
    double_run_tasks(loop);
    if (!(flags & SLOW) && double_taken(conn) && !conn->closing) proa_grpc_protocol.drained(session);
    if (flags & TICKS) double_advance(loop, 700);
}

static void feed(proa_loop *loop, proa_conn *conn, void *session, const char *bytes, size_t len)
{
    static const size_t cuts[] = {SIZE_MAX, 1, 2, 7, 9, 64, 500, 4096};
    size_t cut = cuts[flags & CUT];
    while (len && !conn->closing && !conn->paused) {
        size_t n = len < cut ? len : cut;
        char *copy = proa_malloc(n);
        memcpy(copy, bytes, n);
        int64_t took = proa_grpc_protocol.input(session, copy, n);
        free(copy);
        PROA_ASSERT(took == -1 || took == (int64_t)n);
        if (took < 0) break;
        turn(loop, conn, session);
        bytes += n;
        len -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    proa_loop loop;
    proa_conn conn;
    if (!size) return 0;
    flags = data[0];
    calls = kept = paused_count = 0;
    const proa_grpc_server server = {.on_call = on_call,
                                     .message_max = 100000,
                                     .streams_max = 20,
                                     .keepalive_ms = 1000,
                                     .connection_age_ms = 60000,
                                     .connection_grace_ms = 5000,
                                     .compression_level = flags & PACKS ? 1 : 0};
    double_init(&loop, &conn);
    void *session = proa_grpc_protocol.open(&conn, (void *)(uintptr_t)&server);
    feed(&loop, &conn, session, preface, sizeof preface - 1);
    feed(&loop, &conn, session, (const char *)data + 1, size - 1);
    if (!conn.closing && size % 2) {
        proa_grpc_protocol.shutdown(session);
        turn(&loop, &conn, session);
    }
    proa_grpc_protocol.close(session);
    double_run_tasks(&loop);
    double_free(&conn);
    PROA_ASSERT(calls == 0 && kept == 0);
    for (int i = 0; i < DOUBLE_TIMERS; i++) PROA_ASSERT(!loop.timers[i]);
    return 0;
}
