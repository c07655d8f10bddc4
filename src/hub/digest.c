/* SPDX-License-Identifier: Apache-2.0
 * digest.c - checksums of files by OpenSSL. */
#include "hub/digest.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "hub/crypto.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static const proa_crypto *crypto; /* set by proa_hub_digest_open */

proa_status proa_hub_digest_open(proa_err *err)
{
    return proa_crypto_open(&crypto, err);
}

static const EVP_MD *algorithm_of(size_t digits)
{
    if (digits == 64) return crypto->EVP_sha256();
    return digits == 40 ? crypto->EVP_sha1() : crypto->EVP_md5();
}

void proa_hub_digest_init(proa_hub_digest *d, const char *etag, int64_t bytes)
{
    size_t len = strspn(etag, "0123456789abcdef");
    *d = (proa_hub_digest){.context = NULL};
    if (etag[len] || (len != 64 && len != 40 && len != 32)) return;
    EVP_MD_CTX *context = crypto->EVP_MD_CTX_new();
    PROA_ASSERT(context);
    if (crypto->EVP_DigestInit_ex(context, algorithm_of(len), NULL) != 1) { /* OpenSSL in FIPS mode has no md5 */
        crypto->EVP_MD_CTX_free(context);
        return;
    }
    memcpy(d->expected, etag, len + 1);
    d->context = context;
    if (len != 40) return;
    char head[40];
    int n = snprintf(head, sizeof head, "blob %lld", (long long)bytes);
    proa_hub_digest_add(d, head, (size_t)n + 1);
}

void proa_hub_digest_release(proa_hub_digest *d)
{
    if (d->context) crypto->EVP_MD_CTX_free(d->context);
    d->context = NULL;
}

void proa_hub_digest_add(proa_hub_digest *d, const void *bytes, size_t len)
{
    if (d->context) PROA_ASSERT(crypto->EVP_DigestUpdate(d->context, bytes, len) == 1);
}

void proa_hub_digest_text(proa_hub_digest *d, char text[PROA_HUB_DIGEST_TEXT])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    _Static_assert(PROA_HUB_DIGEST_TEXT == 2 * EVP_MAX_MD_SIZE + 1, "the longest digest");
    PROA_ASSERT(crypto->EVP_DigestFinal_ex(d->context, sum, &len) == 1);
    proa_crypto_hex(text, sum, len);
}

proa_status proa_hub_digest_check(proa_hub_digest *d, const char *what, proa_err *err)
{
    char text[PROA_HUB_DIGEST_TEXT];
    if (!d->context) return PROA_OK;
    proa_hub_digest_text(d, text);
    size_t len = strlen(text) / 2;
    if (strcmp(text, d->expected) == 0) return PROA_OK;
    return PROA_FAIL(err, CORRUPT, "%s: its %s is %s, the server names %s", what,
                     len == 32   ? "sha256"
                     : len == 20 ? "git sha1"
                                 : "md5",
                     text, d->expected);
}

proa_status proa_hub_digest_add_file(proa_hub_digest *d, int fd, int64_t count, const char *what, proa_err *err)
{
    enum { BLOCK = 1 << 20 };
    proa_status status = PROA_OK;
    char *block = proa_malloc(BLOCK);
    for (int64_t at = 0; at < count && status == PROA_OK;) {
        ssize_t n = pread(fd, block, (size_t)proa_min64(BLOCK, count - at), at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            status = PROA_FAIL(err, IO, "cannot read %s: %s", what, n < 0 ? strerror(errno) : "it is shorter");
        else proa_hub_digest_add(d, block, (size_t)n), at += n;
    }
    free(block);
    return status;
}
