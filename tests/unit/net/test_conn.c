/* SPDX-License-Identifier: Apache-2.0
 * test_conn.c - connections under a small protocol of this test: echoes, kept and copied writes, read_into, pause,
 * deadlines, resets, graceful ends, the choice between two protocols on a port, limits of the listener, drain. */
#include "net_helper.h"

#include "base/limits.h"

/* A protocol of lines: each line is a command. */
typedef struct line_server {
    atomic_int opened, closed, eofs, drained, released, got, errors;
    bool eof_closes;
} line_server;

typedef struct line_conn {
    proa_conn *conn;
    line_server *server;
    char *body;
    size_t body_len;
    bool shutting;
} line_conn;

static void *line_open(proa_conn *conn, void *server)
{
    line_conn *c = calloc(1, sizeof *c);
    c->conn = conn;
    c->server = server;
    atomic_fetch_add(&c->server->opened, 1);
    return c;
}

static void reply(line_conn *c, const char *text)
{
    struct iovec iov[2] = {{(void *)text, strlen(text)}, {(void *)"\n", 1}};
    proa_conn_write(c->conn, iov, 2, NULL, NULL);
}

static void release_big(void *arg)
{
    line_server *server = *(line_server **)arg;
    free(arg);
    atomic_fetch_add(&server->released, 1);
}

/* n bytes 'x' behind a pointer to the server, kept and not copied. */
static void reply_big(line_conn *c, size_t n)
{
    char *block = malloc(sizeof(void *) + n);
    memcpy(block, &c->server, sizeof(void *));
    memset(block + sizeof(void *), 'x', n);
    struct iovec iov[3] = {
        {block + sizeof(void *), n / 2}, {NULL, 0}, {block + sizeof(void *) + n / 2, n - n / 2}};
    proa_conn_write(c->conn, iov, 3, release_big, block);
}

static void body_done(void *arg, size_t got)
{
    line_conn *c = arg;
    atomic_fetch_add(&c->server->got, (int)got);
    if (got < c->body_len) return; /* the connection ends */
    unsigned long sum = 0;
    for (size_t i = 0; i < got; i++) sum += (unsigned char)c->body[i];
    char text[64];
    snprintf(text, sizeof text, "sum %lu", sum);
    reply(c, text);
}

/* "into N\nbytes": what came along is answered with its sum, then the others are read to their place. */
static size_t start_body(line_conn *c, const char *bytes, size_t len, size_t want)
{
    size_t have = len < want ? len : want;
    free(c->body);
    c->body = malloc(want);
    c->body_len = want;
    memcpy(c->body, bytes, have);
    if (have == want) {
        body_done(c, want);
        return have;
    }
    size_t rest = want - have;
    unsigned long sum = 0;
    for (size_t i = 0; i < have; i++) sum += (unsigned char)c->body[i];
    char text[64];
    snprintf(text, sizeof text, "head %lu", sum);
    reply(c, text);
    c->body_len = rest;
    proa_conn_read_into(c->conn, c->body, rest, body_done, c);
    return have;
}

static bool run_line(line_conn *c, const char *line)
{
    char peer[64];
    if (strcmp(line, "quit") == 0) proa_conn_close(c->conn, false);
    else if (strcmp(line, "die") == 0) proa_conn_close(c->conn, true);
    else if (strcmp(line, "pause") == 0) proa_conn_pause(c->conn, true);
    else if (strcmp(line, "bad") == 0) return false;
    else if (strncmp(line, "big ", 4) == 0) reply_big(c, (size_t)strtoul(line + 4, NULL, 10));
    else if (strncmp(line, "deadline ", 9) == 0) proa_conn_deadline(c->conn, strtol(line + 9, NULL, 10));
    else if (strcmp(line, "peer") == 0) {
        snprintf(peer, sizeof peer, "%s", proa_conn_peer(c->conn));
        reply(c, peer);
    } else reply(c, line);
    return true;
}

static int64_t line_input(void *state, const char *bytes, size_t len)
{
    line_conn *c = state;
    size_t at = 0;
    const char *end;
    while (at < len && (end = memchr(bytes + at, '\n', len - at))) {
        char line[256] = "";
        size_t n = (size_t)(end - bytes) - at;
        if (n >= sizeof line) return -1;
        memcpy(line, bytes + at, n);
        at += n + 1;
        if (strncmp(line, "into ", 5) == 0)
            at += start_body(c, bytes + at, len - at, (size_t)strtoul(line + 5, NULL, 10));
        else if (!run_line(c, line)) return -1;
    }
    return (int64_t)at;
}

static void line_drained(void *state)
{
    atomic_fetch_add(&((line_conn *)state)->server->drained, 1);
}

static bool line_eof(void *state)
{
    line_conn *c = state;
    atomic_fetch_add(&c->server->eofs, 1);
    if (c->server->eof_closes) return false;
    reply(c, "bye");
    proa_conn_close(c->conn, false);
    return true;
}

static void line_shutdown(void *state)
{
    line_conn *c = state;
    reply(c, "drain");
    proa_conn_close(c->conn, false);
}

static void line_close(void *state)
{
    line_conn *c = state;
    atomic_fetch_add(&c->server->closed, 1);
    free(c->body);
    free(c);
}

static const proa_protocol lines = {
    .alpn = "lines",
    .open = line_open,
    .input = line_input,
    .drained = line_drained,
    .eof = line_eof,
    .shutdown = line_shutdown,
    .close = line_close,
};

static void expect(int fd, const char *text)
{
    char got[256] = "";
    recv_all(fd, got, strlen(text));
    assert_string_equal(got, text);
}

static void expect_end(int fd)
{
    char rest[8];
    assert_int_equal(recv_end(fd, rest, sizeof rest), 0);
    close(fd);
}

/* One byte at a time, several lines at once, and lines that wait while the connection is paused. */
static void test_lines(void **state)
{
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server});
    int fd = dial(h.port);
    for (const char *p = "hello\nyou\n"; *p; p++) {
        send_all(fd, p, 1);
        if (*p == 'e') sleep_ms(5);
    }
    expect(fd, "hello\nyou\n");
    send_str(fd, "a\nb\nc\npart");
    expect(fd, "a\nb\nc\n");
    send_str(fd, "ner\npeer\n");
    expect(fd, "partner\n127.0.0.1:");
    char rest[16];
    ssize_t n = recv(fd, rest, sizeof rest, 0); /* the port */
    assert_true(n >= 3 && rest[n - 1] == '\n');
    send_str(fd, "quit\n");
    expect_end(fd);
    fd = dial(h.port);
    send_str(fd, "one\nbad\n");
    expect(fd, "one\n");
    expect_end(fd);
    wait_int(&server.closed, 2);
    house_close(&h);
    assert_int_equal(server.opened, 2);
    (void)state;
}

/* 40 MB kept, not copied: to a reader that takes its time; then a reader that goes away in the middle. */
static void test_big(void **state)
{
    enum { BIG = 40 << 20 };
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server});
    int fd = dial(h.port);
    char text[64], *bytes = malloc(BIG);
    snprintf(text, sizeof text, "first\nbig %d\nlast\n", BIG);
    send_str(fd, text);
    sleep_ms(20);
    assert_int_equal(server.released, 0);
    expect(fd, "first\n");
    recv_all(fd, bytes, BIG);
    for (int i = 0; i < BIG; i += 4097) assert_int_equal(bytes[i], 'x');
    expect(fd, "last\n");
    wait_int(&server.released, 1);
    wait_int(&server.drained, 1);
    send_str(fd, "big 100\n"); /* so few are copied and released at once */
    recv_all(fd, bytes, 100);
    wait_int(&server.released, 2);
    send_str(fd, text);
    expect(fd, "first\n");
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd); /* resets */
    wait_int(&server.closed, 1);
    wait_int(&server.released, 3);
    free(bytes);
    house_close(&h);
    (void)state;
}

/* A graceful end writes all that is queued, even to a client that still sends. */
static void test_graceful(void **state)
{
    enum { BIG = 8 << 20 };
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server});
    int fd = dial(h.port);
    char *bytes = calloc(1, BIG + 64);
    snprintf(bytes, 64, "big %d\nquit\n", BIG);
    send_str(fd, bytes);
    memset(bytes, 'y', 1 << 20);
    send_all(fd, bytes, 1 << 20); /* the server does not read this */
    recv_all(fd, bytes, BIG);
    expect_end(fd);
    wait_int(&server.closed, 1);
    fd = dial(h.port);
    send_str(fd, "die\n");
    expect_end(fd);
    wait_int(&server.closed, 2);
    free(bytes);
    house_close(&h);
    (void)state;
}

static void test_read_into(void **state)
{
    enum { BIG = 9 << 20 };
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server});
    int fd = dial(h.port);
    send_str(fd, "into 3\nabcnext\n"); /* all there at once */
    expect(fd, "sum 294\nnext\n");
    send_str(fd, "into 4\na");
    expect(fd, "head 97\n");
    send_str(fd, "b");
    sleep_ms(5);
    send_str(fd, "cdend\n");
    expect(fd, "sum 297\nend\n");
    char *bytes = malloc(BIG + 16), text[64];
    memset(bytes, 1, BIG);
    memcpy(bytes + BIG, "after\n", 6);
    snprintf(text, sizeof text, "into %d\n", BIG);
    send_str(fd, text);
    sleep_ms(10); /* the command alone */
    send_all(fd, bytes, BIG + 6);
    snprintf(text, sizeof text, "head 0\nsum %d\nafter\n", BIG);
    expect(fd, text);
    int got = atomic_load(&server.got);
    send_str(fd, "into 1000\n");
    expect(fd, "head 0\n");
    send_all(fd, bytes, 400);
    sleep_ms(20);
    close(fd); /* in the middle: done gets the number of bytes that arrived */
    wait_int(&server.closed, 1);
    assert_int_equal(server.got, got + 400);
    free(bytes);
    house_close(&h);
    (void)state;
}

/* The end of input is reported at once, also behind lines; a paused connection sees a reset but no end. */
static void test_ends(void **state)
{
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server});
    int fd = dial(h.port);
    send_str(fd, "last words\nhalf a li");
    shutdown(fd, SHUT_WR);
    expect(fd, "last words\nbye\n");
    expect_end(fd);
    wait_int(&server.closed, 1);
    fd = dial(h.port);
    send_str(fd, "pause\nnot read\n");
    sleep_ms(50);
    assert_int_equal(server.closed, 1);
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    wait_int(&server.closed, 2);
    server.eof_closes = true;
    close(dial(h.port));
    wait_int(&server.closed, 3);
    assert_int_equal(server.eofs, 2);
    house_close(&h);
    (void)state;
}

/* Idle, a deadline of the protocol, and a reader that takes nothing: each ends within its time and a tick. */
static void test_deadlines(void **state)
{
    line_server server = {0};
    house h;
    house_open(&h, (proa_listen_options){.http1 = &lines, .http1_server = &server, .stall_ms = 300});
    int64_t start = proa_clock_ns();
    int fd = dial(h.port), slow = dial(h.port), kept = dial(h.port);
    send_str(fd, "deadline 300\n");
    send_str(slow, "big 30000000\n");
    send_str(kept, "deadline 200\ndeadline 0\nhere\n");
    expect_end(fd);
    assert_true(seconds_since(start) > 0.29 && seconds_since(start) < 10);
    wait_int(&server.released, 1);
    wait_int(&server.closed, 2);
    expect(kept, "here\n");
    send_str(kept, "still\n");
    expect(kept, "still\n");
    close(kept);
    close(slow);
    house_close(&h);
    (void)state;
}

/* ---- two protocols on one port ---- */

static void *other_open(proa_conn *conn, void *server)
{
    reply(&(line_conn){.conn = conn}, "settings");
    return line_open(conn, server);
}

static const proa_protocol other = {.alpn = "h2", .open = other_open, .input = line_input, .close = line_close};

static void test_shared_port(void **state)
{
    line_server one = {0}, two = {0};
    house h;
    house_open(
        &h, (proa_listen_options){
                .http1 = &lines, .http1_server = &one, .http2 = &other, .http2_server = &two, .idle_ms = 300});
    int fd = dial(h.port);
    for (const char *p = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"; *p; p++) {
        send_all(fd, p, 1);
        if (*p == 'T') sleep_ms(5);
    }
    expect(fd, "settings\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    int plain = dial(h.port);
    send_str(plain, "PRI");
    sleep_ms(5);
    send_str(plain, "SE\nx\n");
    expect(plain, "PRISE\nx\n");
    assert_int_equal(one.opened, 1);
    assert_int_equal(two.opened, 1);
    expect_end(dial(h.port)); /* says nothing: idle_ms */
    close(fd);
    close(plain);
    house_close(&h);
    assert_int_equal(two.closed + one.closed, 2);
    (void)state;
}

/* ---- the listener ---- */

static void test_listener(void **state)
{
    line_server server = {0};
    house h;
    proa_listen_options options = {.http1 = &lines, .http1_server = &server, .connections_max = 2};
    house_open(&h, options);
    int a = dial(h.port), b = dial(h.port);
    send_str(a, "a\n");
    expect(a, "a\n");
    send_str(b, "b\n");
    expect(b, "b\n");
    expect_end(dial(h.port)); /* one too many */
    assert_int_equal(proa_listener_connections(h.listener), 2);
    proa_err err = {0};
    proa_listener *second;
    options.address = "127.0.0.1";
    options.port = h.port;
    assert_int_equal(proa_listener_open(&second, &h.loop, 1, &options, &err), PROA_UNAVAILABLE);
    char text[100];
    snprintf(text, sizeof text, "cannot listen on 127.0.0.1:%d: address already in use", h.port);
    assert_string_equal(err.text, text);
    assert_null(second);
    err = (proa_err){0};
    assert_int_equal(proa_listener_check(&options, &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text, text);
    err = (proa_err){0};
    options.address = "no such address";
    assert_int_equal(proa_listener_check(&options, &err), PROA_INVALID);
    assert_int_equal(proa_listener_open(&second, &h.loop, 1, &options, &err), PROA_INVALID);
    proa_listener_drain(h.listener);
    proa_listener_drain(h.listener);
    expect(a, "drain\n");
    expect_end(a);
    expect(b, "drain\n");
    expect_end(b);
    wait_int(&server.closed, 2);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)h.port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_not_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    house_close(&h);
    (void)state;
}

/* Three loops share a port and a Unix socket; a stale file is replaced, one in use is not. */
static void test_loops(void **state)
{
    enum { LOOPS = 3, CLIENTS = 40 };
    line_server server = {0};
    proa_loop *loops[LOOPS];
    pthread_t threads[LOOPS];
    for (int i = 0; i < LOOPS; i++) assert_int_equal(proa_loop_new(&loops[i], NULL), PROA_OK);
    char address[64];
    snprintf(address, sizeof address, "unix:/tmp/proa-test-%d", (int)getpid());
    proa_listen_options options = {.address = "127.0.0.1", .http1 = &lines, .http1_server = &server},
                        local = options;
    local.address = address;
    proa_listener *tcp, *unix_one, *none;
    proa_err err = {0};
    assert_int_equal(proa_listener_open(&tcp, loops, LOOPS, &options, &err), PROA_OK);
    assert_int_equal(proa_listener_open(&unix_one, loops, LOOPS, &local, &err), PROA_OK);
    assert_int_equal(proa_listener_open(&none, loops, LOOPS, &local, &err), PROA_UNAVAILABLE);
    assert_int_equal(proa_listener_port(unix_one), 0);
    for (int i = 0; i < LOOPS; i++) pthread_create(&threads[i], NULL, house_thread, loops[i]);
    int fds[CLIENTS];
    struct sockaddr_un {
        sa_family_t family;
        char path[108];
    } at = {AF_UNIX, ""};
    snprintf(at.path, sizeof at.path, "%s", address + 5);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = i % 2 ? dial(proa_listener_port(tcp)) : socket(AF_UNIX, SOCK_STREAM, 0);
        if (i % 2 == 0) assert_int_equal(connect(fds[i], (struct sockaddr *)&at, sizeof at), 0);
        send_str(fds[i], "peer\n");
    }
    for (int i = 0; i < CLIENTS; i++) {
        expect(fds[i], i % 2 ? "127.0.0.1:" : "unix\n");
        close(fds[i]);
    }
    wait_int(&server.closed, CLIENTS + 1); /* and the one that looked whether the Unix socket is in use */
    for (int i = 0; i < LOOPS; i++) proa_loop_stop(loops[i]);
    for (int i = 0; i < LOOPS; i++) pthread_join(threads[i], NULL);
    proa_listener_close(tcp);
    proa_listener_close(unix_one);
    assert_int_not_equal(access(address + 5, F_OK), 0);
    for (int i = 0; i < LOOPS; i++) proa_loop_free(loops[i]);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),    cmocka_unit_test(test_big),
        cmocka_unit_test(test_graceful), cmocka_unit_test(test_read_into),
        cmocka_unit_test(test_ends),     cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_listener), cmocka_unit_test(test_shared_port),
        cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests_name("net/conn", tests, NULL, NULL);
}
