/* SPDX-License-Identifier: Apache-2.0
 * conn_tls.c - the bytes of a connection through TLS. The handshake runs inside the first reads; when it is done, ALPN
 * says which protocol starts. */
#include "net/conn_inner.h"

#include "base/alloc.h"
#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#define RECORD_BYTES ((size_t)16 << 10) /* the largest record of TLS: so much is put together for one */

static const proa_protocol *by_alpn(const proa_conn *conn)
{
    const proa_listen_options *options = conn->group->options;
    const unsigned char *name = NULL;
    unsigned len = 0;
    SSL_get0_alpn_selected(conn->ssl, &name, &len);
    if (!options->http2) return options->http1;
    if (!options->http1) return options->http2;
    if (len == 0) return NULL; /* the first bytes say it */
    return proa_str_is((proa_str){(const char *)name, len}, options->http2->alpn) ? options->http2
                                                                                  : options->http1;
}

static void start_tls(proa_conn *conn)
{
    if (conn->protocol || conn->ending != PROA_CONN_OPEN || !SSL_is_init_finished(conn->ssl)) return;
    const proa_protocol *protocol = by_alpn(conn);
    if (protocol) proa_conn_start(conn, protocol);
    else proa_conn_deadline(conn, conn->group->options->idle_ms);
}

/* What a failed call means: 0 the end, -EAGAIN, -EPROTO if OpenSSL has refused to go on (and has written an alert that
 * says why), or -ECONNRESET for all else that breaks the connection. */
static int64_t close_reason(proa_conn *conn, int rc)
{
    int error = SSL_get_error(conn->ssl, rc);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_WRITE) {
        proa_conn_block(conn);
        return -EAGAIN;
    }
    if (error == SSL_ERROR_SSL) return -EPROTO;
    return error == SSL_ERROR_WANT_READ ? -EAGAIN : -ECONNRESET;
}

/* Fills all of iov if there are enough bytes, so that a smaller count means that there are no more. */
static int64_t tls_recv(proa_conn *conn, const struct iovec *iov, int count)
{
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        for (size_t at = 0; at < iov[i].iov_len;) {
            size_t room = iov[i].iov_len - at;
            ERR_clear_error();
            int n = SSL_read(conn->ssl, (char *)iov[i].iov_base + at, room > INT_MAX ? INT_MAX : (int)room);
            start_tls(conn);
            if (n > 0) {
                at += (size_t)n;
                total += n;
                continue;
            }
            int64_t why = close_reason(conn, n);
            if (total == 0) return why;
            if (why != -EAGAIN) conn->hup = true; /* the next call returns it again */
            return total;
        }
    }
    return total;
}

/* Small pieces go together into one record, in the loop's scratch. A call that has to be repeated finds the same bytes
 * again, since the queue only grows at its end. */
static int64_t send_some(proa_conn *conn, const struct iovec *iov, int count, size_t skip)
{
    const char *bytes = (const char *)iov->iov_base + skip;
    size_t len = iov->iov_len - skip;
    if (count > 1 && len < RECORD_BYTES) {
        char *scratch = conn->loop->scratch;
        memcpy(scratch, bytes, len);
        for (int i = 1; i < count && len < RECORD_BYTES; i++) {
            size_t n = iov[i].iov_len < RECORD_BYTES - len ? iov[i].iov_len : RECORD_BYTES - len;
            memcpy(scratch + len, iov[i].iov_base, n);
            len += n;
        }
        bytes = scratch;
    }
    ERR_clear_error();
    int n = SSL_write(conn->ssl, bytes, len > INT_MAX ? INT_MAX : (int)len);
    if (n > 0) return n;
    int64_t why = close_reason(conn, n);
    return why == 0 ? -ECONNRESET : why;
}

static int64_t tls_send(proa_conn *conn, const struct iovec *iov, int count)
{
    int64_t total = 0;
    size_t skip = 0; /* of iov[0] */
    while (count > 0) {
        int64_t n = send_some(conn, iov, count, skip);
        if (n < 0) return total > 0 ? total : n;
        total += n;
        skip += (size_t)n;
        while (count > 0 && skip >= iov->iov_len) {
            skip -= iov->iov_len;
            iov++;
            count--;
        }
    }
    return total;
}

const proa_conn_io proa_conn_tls_io = {tls_recv, tls_send};

bool proa_conn_tls_attach(proa_conn *conn)
{
    BIO *bio = BIO_new(proa_tls_bio(conn->group->options->tls));
    if (!bio) return false;
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(conn->ssl, bio, bio);
    SSL_set_app_data(conn->ssl, conn);
    SSL_set_accept_state(conn->ssl);
    return true;
}

bool proa_conn_tls_shut(proa_conn *conn)
{
    ERR_clear_error();
    if (!SSL_is_init_finished(conn->ssl)) return true;
    int rc = SSL_shutdown(conn->ssl);
    return rc >= 0 || close_reason(conn, rc) != -EAGAIN;
}

void proa_conn_tls_free(proa_conn *conn)
{
    SSL_free(conn->ssl);
    conn->ssl = NULL;
}
