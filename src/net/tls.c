/* SPDX-License-Identifier: Apache-2.0
 * tls.c - OpenSSL's context with our rules, made again when a certificate's file has changed. */
#include "net/tls.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/conn_inner.h"
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 3 }; /* certificate, key, clients' authority */

typedef struct file_stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec changed;
} file_stamp;

struct proa_tls {
    char *paths[FILES];
    BIO_METHOD *bio;
    pthread_mutex_t mutex; /* guards what follows */
    SSL_CTX *ctx;
    file_stamp stamps[FILES];
    int64_t checked_ns;
};

/* ---- the socket, without signals ---- */

static int bio_result(BIO *bio, ssize_t n)
{
    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return (int)n;
}

static int bio_read(BIO *bio, char *bytes, int len)
{
    proa_conn *conn = BIO_get_data(bio);
    ssize_t n = recv(conn->fd, bytes, (size_t)len, 0);
    if (n == 0) conn->raw_end = true;
    return bio_result(bio, n);
}

static int bio_write(BIO *bio, const char *bytes, int len)
{
    const proa_conn *conn = BIO_get_data(bio);
    ssize_t n = send(conn->fd, bytes, (size_t)len, MSG_NOSIGNAL);
    int result = bio_result(bio, n);
    if (BIO_should_retry(bio)) {
        BIO_clear_retry_flags(bio);
        BIO_set_retry_write(bio);
    }
    return result;
}

static long bio_ctrl(BIO *bio, int command, long number, void *ptr)
{
    PROA_UNUSED(number);
    PROA_UNUSED(ptr);
    const proa_conn *conn = BIO_get_data(bio);
    if (command == BIO_CTRL_EOF) return conn->raw_end;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *new_bio(void)
{
    BIO_METHOD *bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "proa");
    if (!bio) return NULL;
    BIO_meth_set_read(bio, bio_read);
    BIO_meth_set_write(bio, bio_write);
    BIO_meth_set_ctrl(bio, bio_ctrl);
    return bio;
}

/* ---- the context ---- */

static bool offers_protocol(const unsigned char *list, unsigned len, const char *name, const unsigned char **out)
{
    for (unsigned at = 0; at < len && at + 1 + list[at] <= len; at += 1U + list[at]) {
        if (!proa_str_is((proa_str){(const char *)list + at + 1, list[at]}, name)) continue;
        *out = list + at + 1;
        return true;
    }
    return false;
}

/* HTTP/2 first, as clients that name both prefer it. A client that names neither is refused (RFC 7301). */
static int choose_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *list,
                       unsigned len, void *arg)
{
    PROA_UNUSED(arg);
    const proa_conn *conn = SSL_get_app_data(ssl);
    const proa_listen_options *options = conn->group->options;
    const proa_protocol *both[2] = {options->http2, options->http1};
    for (int i = 0; i < 2; i++) {
        if (!both[i] || !offers_protocol(list, len, both[i]->alpn, out)) continue;
        *out_len = (unsigned char)strlen(both[i]->alpn);
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Of a file that cannot be opened OpenSSL has no text, but errno. */
static const char *tls_reason(void)
{
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    if (text) return text;
    return ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : "unknown reason";
}

static proa_status load_clients(SSL_CTX *ctx, const char *path, proa_err *err)
{
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_locations(ctx, path, NULL) != 1) {
        if (names) sk_X509_NAME_pop_free(names, X509_NAME_free);
        return PROA_FAIL(err, INVALID, "cannot read the clients' authority '%s': %s", path, tls_reason());
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return PROA_OK;
}

static proa_status load_files(SSL_CTX *ctx, char *const *paths, proa_err *err)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, paths[0]) != 1)
        return PROA_FAIL(err, INVALID, "cannot read the certificate '%s': %s", paths[0], tls_reason());
    if (SSL_CTX_use_PrivateKey_file(ctx, paths[1], SSL_FILETYPE_PEM) != 1)
        return PROA_FAIL(err, INVALID, "cannot read the key '%s': %s", paths[1], tls_reason());
    if (SSL_CTX_check_private_key(ctx) != 1)
        return PROA_FAIL(err, INVALID, "the key '%s' does not belong to the certificate '%s'", paths[1],
                         paths[0]);
    return paths[2] ? load_clients(ctx, paths[2], err) : PROA_OK;
}

static void set_rules(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    /* Released buffers make an idle connection 34 KB lighter. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"proa", 4);
    SSL_CTX_set_alpn_select_cb(ctx, choose_alpn, NULL);
}

static proa_status new_ctx(SSL_CTX **out, char *const *paths, proa_err *err)
{
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) return PROA_FAIL(err, INTERNAL, "cannot make a TLS context: %s", tls_reason());
    set_rules(ctx);
    proa_status status = load_files(ctx, paths, err);
    ERR_clear_error();
    if (status == PROA_OK) *out = ctx;
    else SSL_CTX_free(ctx);
    return status;
}

/* ---- files that change ---- */

static file_stamp stamp_of(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) != 0) return (file_stamp){0};
    return (file_stamp){st.st_dev, st.st_ino, st.st_size, st.st_mtim};
}

static bool same_stamp(const file_stamp *a, const file_stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->changed.tv_sec == b->changed.tv_sec && a->changed.tv_nsec == b->changed.tv_nsec;
}

/* With the mutex. A set of files that does not go together is tried once, not at each look: a tool may be about to
 * replace the other file, and then it has changed again. */
static proa_status reload_locked(proa_tls *tls, proa_err *err)
{
    file_stamp now[FILES];
    bool changed = false;
    for (int i = 0; i < FILES; i++) {
        now[i] = stamp_of(tls->paths[i]);
        changed |= !same_stamp(&now[i], &tls->stamps[i]);
    }
    if (!changed) return PROA_OK;
    memcpy(tls->stamps, now, sizeof now);
    SSL_CTX *ctx = NULL;
    PROA_TRY(new_ctx(&ctx, tls->paths, err));
    SSL_CTX_free(tls->ctx); /* sessions that use it keep it */
    tls->ctx = ctx;
    return PROA_OK;
}

SSL *proa_tls_session(const proa_tls *shared, int64_t now_ns)
{
    proa_tls *tls = (proa_tls *)shared; /* const for its users; the mutex guards what changes */
    proa_err err = {0};
    pthread_mutex_lock(&tls->mutex);
    if (now_ns - tls->checked_ns > PROA_TLS_CHECK_MS * INT64_C(1000000)) {
        tls->checked_ns = now_ns;
        if (reload_locked(tls, &err) != PROA_OK)
            PROA_LOG(ERROR, "the old certificate stays in use: %s", err.text);
    }
    SSL *ssl = SSL_new(tls->ctx);
    pthread_mutex_unlock(&tls->mutex);
    return ssl;
}

const BIO_METHOD *proa_tls_bio(const proa_tls *tls)
{
    return tls->bio;
}

proa_status proa_tls_open(proa_tls **out, const proa_tls_options *options, proa_err *err)
{
    *out = NULL;
    if (!options->cert || !options->key) return PROA_FAIL(err, INVALID, "TLS needs a certificate and a key");
    proa_tls *tls = proa_calloc(1, sizeof *tls);
    const char *paths[FILES] = {options->cert, options->key, options->client_ca};
    for (int i = 0; i < FILES; i++) {
        tls->paths[i] = paths[i] ? proa_strdup(paths[i]) : NULL;
        tls->stamps[i] = stamp_of(paths[i]);
    }
    pthread_mutex_init(&tls->mutex, NULL);
    tls->checked_ns = proa_clock_ns();
    tls->bio = new_bio();
    proa_status status = tls->bio ? new_ctx(&tls->ctx, tls->paths, err)
                                  : PROA_FAIL(err, INTERNAL, "cannot make a TLS context: %s", tls_reason());
    if (status == PROA_OK) *out = tls;
    else proa_tls_close(tls);
    return status;
}

void proa_tls_close(proa_tls *tls)
{
    if (!tls) return;
    SSL_CTX_free(tls->ctx);
    if (tls->bio) BIO_meth_free(tls->bio);
    for (int i = 0; i < FILES; i++) free(tls->paths[i]);
    pthread_mutex_destroy(&tls->mutex);
    free(tls);
}
