/* SPDX-License-Identifier: Apache-2.0
 * test_tls.c - TLS: HTTP over it with OpenSSL's client, ALPN, mutual TLS, old versions, slow and broken handshakes,
 * certificates that change. The certificates are made here. */
#include "net_helper.h"

#include "base/checked.h"
#include "base/limits.h"
#include "net/conn_inner.h"
#include "net/http.h"
#include "net/tls.h"
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>

/* ---- certificates ---- */

typedef struct identity {
    EVP_PKEY *key;
    X509 *cert;
} identity;

static long serial = 1;

static identity make_identity(const char *name, const identity *issuer)
{
    identity id = {.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    assert_non_null(id.key);
    X509_set_version(id.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), 3600);
    X509_set_pubkey(id.cert, id.key);
    X509_NAME *subject = X509_get_subject_name(id.cert);
    X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_ASC, (const unsigned char *)"Proa", -1, -1, 0);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(id.cert, issuer ? X509_get_subject_name(issuer->cert) : subject);
    X509_EXTENSION *ca = X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints,
                                             issuer ? "CA:FALSE" : "critical,CA:TRUE");
    X509_add_ext(id.cert, ca, -1);
    X509_EXTENSION_free(ca);
    assert_true(X509_sign(id.cert, issuer ? issuer->key : id.key, EVP_sha256()) > 0);
    return id;
}

static void free_identity(identity *id)
{
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

static char folder[] = "/tmp/proa-tls-XXXXXX";
static char path_cert[64], path_key[64], path_ca[64];
static identity ca, server_id, other_ca;

/* Written beside and moved over, as tools that renew certificates do. */
static void write_file(const char *path, const identity *id, bool key)
{
    char aside[80];
    snprintf(aside, sizeof aside, "%s.new", path);
    FILE *file = fopen(aside, "w");
    assert_non_null(file);
    if (key) PEM_write_PrivateKey(file, id->key, NULL, NULL, 0, NULL, NULL);
    else PEM_write_X509(file, id->cert);
    fclose(file);
    assert_int_equal(rename(aside, path), 0);
}

static int make_all(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN); /* the client's own writes */
    assert_non_null(mkdtemp(folder));
    snprintf(path_cert, sizeof path_cert, "%s/cert.pem", folder);
    snprintf(path_key, sizeof path_key, "%s/key.pem", folder);
    snprintf(path_ca, sizeof path_ca, "%s/ca.pem", folder);
    ca = make_identity("Authority", NULL);
    other_ca = make_identity("Others", NULL);
    server_id = make_identity("localhost", &ca);
    write_file(path_cert, &server_id, false);
    write_file(path_key, &server_id, true);
    write_file(path_ca, &ca, false);
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    unlink(path_cert);
    unlink(path_key);
    unlink(path_ca);
    rmdir(folder);
    free_identity(&ca);
    free_identity(&other_ca);
    free_identity(&server_id);
    return 0;
}

/* ---- the server ---- */

typedef struct secure {
    house house;
    proa_tls *tls;
    proa_http_server server;
} secure;

/* The subject of the client's certificate, or "nobody". */
static void respond_name(proa_http_exchange *x)
{
    static char name[64];
    X509 *cert = SSL_get0_peer_certificate(x->conn->ssl);
    if (!cert || X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name, sizeof name) <= 0)
        snprintf(name, sizeof name, "nobody");
    struct iovec iov = {name, strlen(name)};
    proa_http_respond(x, 200, proa_str_c(""), (proa_http_body){.iov = &iov, .count = 1});
}

static void on_request(proa_http_exchange *x, void *arg)
{
    (void)arg;
    if (proa_str_is(x->path, "/who")) {
        respond_name(x);
        return;
    }
    int few = 4608; /* as little as the kernel allows */
    if (proa_str_is(x->path, "/narrow")) setsockopt(x->conn->fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    struct iovec iov = {x->body, x->body_len};
    char *body = proa_http_take_body(x);
    proa_http_respond(x, 200, proa_str_c(""),
                      (proa_http_body){.iov = &iov, .count = 1, .release = proa_http_body_free, .arg = body});
}

static void *h2_open(proa_conn *conn, void *server)
{
    (void)server;
    struct iovec iov = {(void *)"settings", 8};
    proa_conn_write(conn, &iov, 1, NULL, NULL);
    return conn;
}

static int64_t h2_input(void *state, const char *bytes, size_t len)
{
    struct iovec iov = {(void *)bytes, len};
    proa_conn_write(state, &iov, 1, NULL, NULL);
    return (int64_t)len;
}

static void h2_close(void *state)
{
    (void)state;
}

static const proa_protocol h2 = {.alpn = "h2", .open = h2_open, .input = h2_input, .close = h2_close};

static void secure_open(secure *s, const char *client_ca, bool both, proa_listen_options options)
{
    *s = (secure){.server = {.on_request = on_request}};
    proa_err err = {0};
    proa_tls_options tls = {.cert = path_cert, .key = path_key, .client_ca = client_ca};
    if (proa_tls_open(&s->tls, &tls, &err) != PROA_OK) fail_msg("%s", err.text);
    options.tls = s->tls;
    options.http1 = &proa_http_protocol;
    options.http1_server = &s->server;
    if (both) options.http2 = &h2;
    house_open(&s->house, options);
}

static void secure_close(secure *s)
{
    house_close(&s->house);
    proa_tls_close(s->tls);
}

/* ---- the client ---- */

typedef struct caller {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
} caller;

static caller caller_new(const secure *s, const identity *id, const char *alpn)
{
    caller c = {.ctx = SSL_CTX_new(TLS_client_method()), .fd = dial(s->house.port)};
    X509_STORE_add_cert(SSL_CTX_get_cert_store(c.ctx), ca.cert);
    SSL_CTX_set_verify(c.ctx, SSL_VERIFY_PEER, NULL);
    if (id) {
        SSL_CTX_use_certificate(c.ctx, id->cert);
        SSL_CTX_use_PrivateKey(c.ctx, id->key);
    }
    if (alpn) SSL_CTX_set_alpn_protos(c.ctx, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    c.ssl = SSL_new(c.ctx);
    SSL_set_fd(c.ssl, c.fd);
    return c;
}

static void caller_free(caller *c)
{
    ERR_clear_error();
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
}

static void call_write(caller *c, const char *bytes, size_t len)
{
    size_t n = 0;
    assert_int_equal(SSL_write_ex(c->ssl, bytes, len, &n), 1);
    assert_int_equal(n, len);
}

static void call_read(caller *c, char *bytes, size_t len)
{
    for (size_t at = 0, n; at < len; at += n)
        if (SSL_read_ex(c->ssl, bytes + at, len - at, &n) != 1)
            fail_msg("the end after %zu of %zu bytes", at, len);
}

static void call_expect(caller *c, const char *text)
{
    char got[256] = "";
    call_read(c, got, strlen(text));
    assert_string_equal(got, text);
}

static void exchange(caller *c, const char *body)
{
    char text[300];
    snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s", strlen(body),
             body);
    call_write(c, text, strlen(text));
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    call_expect(c, text);
}

/* ---- tests ---- */

static void test_exchanges(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    secure s;
    secure_open(&s, NULL, false, (proa_listen_options){0});
    for (int v = 0; v < 2; v++) {
        caller c = caller_new(&s, NULL, v ? "\x08http/1.1" : NULL);
        SSL_set_min_proto_version(c.ssl, versions[v]);
        SSL_set_max_proto_version(c.ssl, versions[v]);
        assert_int_equal(SSL_connect(c.ssl), 1);
        for (int i = 0; i < 3; i++) exchange(&c, i ? "some bytes" : "");
        /* a request in pieces of a byte each */
        static const char request[] = "GET /who HTTP/1.1\r\nHost: x\r\n\r\n";
        for (const char *p = request; *p; p++) call_write(&c, p, 1);
        call_expect(&c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nnobody");
        SSL_shutdown(c.ssl);
        caller_free(&c);
    }
    secure_close(&s);
    (void)state;
}

/* Megabytes both ways; the client sends all before it reads, so the server's writes are cut at every place. */
static void test_large(void **state)
{
    enum { BYTES = 20 << 20 };
    secure s;
    secure_open(&s, NULL, false, (proa_listen_options){0});
    caller c = caller_new(&s, NULL, NULL);
    assert_int_equal(SSL_connect(c.ssl), 1);
    char *out = malloc(BYTES), *in = malloc(BYTES), text[128];
    for (int i = 0; i < BYTES; i++) out[i] = (char)(i * 31 + i / 997);
    for (int round = 0; round < 2; round++) {
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BYTES);
        call_write(&c, text, strlen(text));
        for (int at = 0; at < BYTES; at += 1 << 20) call_write(&c, out + at, 1 << 20);
        sleep_ms(50); /* the server's buffers fill up */
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BYTES);
        call_expect(&c, text);
        call_read(&c, in, BYTES);
        assert_memory_equal(in, out, BYTES);
    }
    /* many small answers at once */
    for (int i = 0; i < 500; i++) {
        static const char request[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
        call_write(&c, request, sizeof request - 1);
    }
    for (int i = 0; i < 500; i++) call_expect(&c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    caller_free(&c);
    free(out);
    free(in);
    secure_close(&s);
    (void)state;
}

/* The end of TLS comes behind the last byte of an answer, also if that has filled the socket: without it a client must
 * take the answer for cut. */
static void test_whole_end(void **state)
{
    enum { BYTES = 16000 }; /* one record */
    secure s;
    secure_open(&s, NULL, false, (proa_listen_options){0});
    for (int half = 0; half < 2; half++) {
        caller c = caller_new(&s, NULL, NULL);
        int few = 2304;
        setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
        assert_int_equal(SSL_connect(c.ssl), 1);
        char bytes[BYTES] = "", text[128];
        snprintf(text, sizeof text,
                 "POST /narrow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", BYTES);
        call_write(&c, text, strlen(text));
        call_write(&c, bytes, sizeof bytes);
        if (half) shutdown(c.fd, SHUT_WR);
        sleep_ms(50); /* the server has written what it can */
        size_t n = 0, len = 0;
        while (SSL_read_ex(c.ssl, bytes, sizeof bytes, &n) == 1) len += n;
        assert_true(len > BYTES);
        assert_int_equal(SSL_get_error(c.ssl, 0), SSL_ERROR_ZERO_RETURN);
        caller_free(&c);
    }
    secure_close(&s);
    (void)state;
}

static void expect_alpn(const caller *c, const char *want)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(c->ssl, &name, &len);
    assert_int_equal(len, strlen(want));
    if (len) assert_memory_equal(name, want, len);
}

static void test_alpn(void **state)
{
    secure s;
    secure_open(&s, NULL, true, (proa_listen_options){0});
    caller c = caller_new(&s, NULL, "\x08http/1.1\x02h2");
    assert_int_equal(SSL_connect(c.ssl), 1);
    expect_alpn(&c, "h2");
    call_expect(&c, "settings"); /* before the client has said a word */
    call_write(&c, "ping", 4);
    call_expect(&c, "ping");
    caller_free(&c);
    c = caller_new(&s, NULL, "\x08http/1.1");
    assert_int_equal(SSL_connect(c.ssl), 1);
    expect_alpn(&c, "http/1.1");
    exchange(&c, "x");
    caller_free(&c);
    c = caller_new(&s, NULL, NULL); /* says nothing: the first bytes tell */
    assert_int_equal(SSL_connect(c.ssl), 1);
    expect_alpn(&c, "");
    exchange(&c, "y");
    caller_free(&c);
    c = caller_new(&s, NULL, "\x04smtp");
    assert_int_not_equal(SSL_connect(c.ssl), 1);
    caller_free(&c);
    secure_close(&s);
    (void)state;
}

/* A server may find out about the client's certificate only after the client believes to be connected (TLS 1.3). */
static bool is_served(caller *c)
{
    static const char request[] = "GET /who HTTP/1.1\r\nHost: x\r\n\r\n";
    size_t n;
    char byte;
    return SSL_connect(c->ssl) == 1 && SSL_write_ex(c->ssl, request, sizeof request - 1, &n) == 1 &&
           SSL_read_ex(c->ssl, &byte, 1, &n) == 1;
}

/* The client gets the reason of the refusal, although it has already sent more. */
static void expect_alert(caller *c, int why)
{
    char byte, *bytes = calloc(1, 1 << 20);
    size_t n;
    assert_int_equal(SSL_connect(c->ssl), 1);
    sleep_ms(20); /* the server has seen what it does not like */
    for (int i = 0; i < 4; i++) call_write(c, bytes, 1 << 20);
    assert_int_equal(SSL_read_ex(c->ssl, &byte, 1, &n), 0);
    assert_int_equal(ERR_GET_REASON(ERR_peek_error()), why);
    ERR_clear_error();
    caller_free(c);
    free(bytes);
}

static void test_mutual(void **state)
{
    secure s;
    secure_open(&s, path_ca, false, (proa_listen_options){0});
    identity alice = make_identity("alice", &ca), mallory = make_identity("mallory", &other_ca);
    caller c = caller_new(&s, &alice, NULL);
    assert_true(is_served(&c));
    call_expect(&c, "TTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nalice");
    caller_free(&c);
    c = caller_new(&s, NULL, NULL);
    assert_false(is_served(&c));
    caller_free(&c);
    c = caller_new(&s, &mallory, NULL);
    assert_false(is_served(&c));
    caller_free(&c);
    c = caller_new(&s, NULL, NULL);
    expect_alert(&c, SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED);
    c = caller_new(&s, &mallory, NULL);
    expect_alert(&c, SSL_R_TLSV1_ALERT_UNKNOWN_CA);
    free_identity(&alice);
    free_identity(&mallory);
    secure_close(&s);
    (void)state;
}

static void expect_end(int fd)
{
    char rest[256];
    recv_end(fd, rest, sizeof rest); /* perhaps an alert */
    close(fd);
}

/* Old versions, no TLS at all, half a handshake, and a client that vanishes in the middle of an answer. */
static void test_bad_clients(void **state)
{
    secure s;
    secure_open(&s, NULL, false, (proa_listen_options){.head_ms = 300});
    caller c = caller_new(&s, NULL, NULL);
    SSL_CTX_set_security_level(c.ctx, 0);
    SSL_set_security_level(c.ssl, 0);
    SSL_set_min_proto_version(c.ssl, TLS1_1_VERSION);
    SSL_set_max_proto_version(c.ssl, TLS1_1_VERSION);
    assert_int_not_equal(SSL_connect(c.ssl), 1);
    caller_free(&c);
    int fd = dial(s.house.port);
    send_str(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_end(fd);
    expect_end(dial(s.house.port)); /* says nothing: head_ms */
    fd = dial(s.house.port);
    send_all(fd, "\x16\x03\x01\x02\x00\x01", 6);
    expect_end(fd);
    c = caller_new(&s, NULL, NULL);
    assert_int_equal(SSL_connect(c.ssl), 1);
    static const char head[] = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n";
    call_write(&c, head, sizeof head - 1);
    char *zeros = calloc(1, 8000000);
    call_write(&c, zeros, 8000000);
    free(zeros);
    caller_free(&c);
    for (int i = 0; i < 60000 && proa_listener_connections(s.house.listener) > 0; i++) sleep_ms(1);
    assert_int_equal(proa_listener_connections(s.house.listener), 0);
    secure_close(&s);
    (void)state;
}

static void shown_name(const secure *s, char name[64])
{
    caller c = caller_new(s, NULL, NULL);
    assert_int_equal(SSL_connect(c.ssl), 1);
    X509 *cert = SSL_get1_peer_certificate(c.ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name, 64);
    X509_free(cert);
    exchange(&c, "z");
    caller_free(&c);
}

/* As a connection that comes when the next look at the files is due. */
static void look_at_files(const secure *s)
{
    static int64_t now_ns;
    now_ns = proa_max64(now_ns, proa_clock_ns()) + (PROA_TLS_CHECK_MS + 1) * INT64_C(1000000);
    SSL_free(proa_tls_session(s->tls, now_ns));
}

static void test_reload(void **state)
{
    secure s;
    char name[64];
    secure_open(&s, NULL, false, (proa_listen_options){0});
    caller kept = caller_new(&s, NULL, NULL);
    assert_int_equal(SSL_connect(kept.ssl), 1);
    shown_name(&s, name);
    assert_string_equal(name, "localhost");
    look_at_files(&s); /* nothing has changed */
    identity renewed = make_identity("renewed", &ca);
    write_file(path_cert, &renewed, false); /* the key is still the old one */
    look_at_files(&s);
    shown_name(&s, name);
    assert_string_equal(name, "localhost");
    write_file(path_key, &renewed, true);
    look_at_files(&s);
    shown_name(&s, name);
    assert_string_equal(name, "renewed");
    exchange(&kept, "old connections stay");
    caller_free(&kept);
    write_file(path_cert, &server_id, false);
    write_file(path_key, &server_id, true);
    free_identity(&renewed);
    secure_close(&s);
    (void)state;
}

static void test_bad_files(void **state)
{
    proa_tls *tls;
    proa_err err = {0};
    proa_tls_options options = {.cert = "/nonexistent.pem", .key = path_key};
    assert_int_equal(proa_tls_open(&tls, &options, &err), PROA_INVALID);
    assert_null(tls);
    assert_non_null(strstr(err.text, "cannot read the certificate '/nonexistent.pem': No such file"));
    options = (proa_tls_options){.cert = path_cert, .key = path_ca};
    err = (proa_err){0};
    assert_int_equal(proa_tls_open(&tls, &options, &err), PROA_INVALID);
    options = (proa_tls_options){.cert = path_ca, .key = path_key};
    err = (proa_err){0};
    assert_int_equal(proa_tls_open(&tls, &options, &err), PROA_INVALID);
    options = (proa_tls_options){.cert = path_cert, .key = path_key, .client_ca = path_key};
    err = (proa_err){0};
    assert_int_equal(proa_tls_open(&tls, &options, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "cannot read the clients' authority"));
    options = (proa_tls_options){.cert = path_cert};
    assert_int_equal(proa_tls_open(&tls, &options, NULL), PROA_INVALID);
    proa_tls_close(NULL);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchanges), cmocka_unit_test(test_large),
        cmocka_unit_test(test_alpn),      cmocka_unit_test(test_mutual),
        cmocka_unit_test(test_reload),    cmocka_unit_test(test_bad_clients),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_whole_end),
    };
    return cmocka_run_group_tests_name("net/tls", tests, make_all, remove_all);
}
