/* SPDX-License-Identifier: Apache-2.0
 * digest.c - checksums of files by OpenSSL, which is opened at run time as libcurl is. */
#include "hub/digest.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <dlfcn.h>
#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define LIBCRYPTO "libcrypto.so.3"
#define LIBCRYPTO_LIST(X)                                                                                    \
    X(EVP_MD_CTX_new)                                                                                        \
    X(EVP_MD_CTX_free)                                                                                       \
    X(EVP_DigestInit_ex)                                                                                     \
    X(EVP_DigestUpdate)                                                                                      \
    X(EVP_DigestFinal_ex)                                                                                    \
    X(EVP_sha256)                                                                                            \
    X(EVP_sha1)

#define LIBCRYPTO_FIELD(name) __typeof__(name) *name;
static struct {
    LIBCRYPTO_LIST(LIBCRYPTO_FIELD)
} crypto;
#define LIBCRYPTO_NAME(name) #name,
static const char *const crypto_names[] = {LIBCRYPTO_LIST(LIBCRYPTO_NAME)};
_Static_assert(sizeof crypto == sizeof crypto_names, "a pointer for each name");

static proa_err crypto_error;
static pthread_once_t crypto_once = PTHREAD_ONCE_INIT;

static void load_crypto(void)
{
    void *handle = dlopen(LIBCRYPTO, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle && i < PROA_COUNT(crypto_names); i++) {
        void *symbol = dlsym(handle, crypto_names[i]);
        if (symbol) memcpy((char *)&crypto + i * sizeof symbol, &symbol, sizeof symbol);
        else handle = NULL;
    }
    if (!handle)
        (void)PROA_FAIL(&crypto_error, UNSUPPORTED,
                        "%s is not installed, which checks downloads (Debian: libssl3)", LIBCRYPTO);
}

proa_status proa_hub_digest_open(proa_err *err)
{
    pthread_once(&crypto_once, load_crypto);
    return proa_err_copy(err, &crypto_error);
}

void proa_hub_digest_init(proa_hub_digest *d, const char *etag, int64_t bytes)
{
    size_t len = strspn(etag, "0123456789abcdef");
    bool sha256 = len == 64, git = len == 40;
    *d = (proa_hub_digest){.context = NULL};
    if (etag[len] || (!sha256 && !git)) return;
    memcpy(d->expected, etag, len + 1);
    EVP_MD_CTX *context = crypto.EVP_MD_CTX_new();
    PROA_ASSERT(context &&
                crypto.EVP_DigestInit_ex(context, sha256 ? crypto.EVP_sha256() : crypto.EVP_sha1(), NULL) == 1);
    d->context = context;
    if (sha256) return;
    char head[40];
    int n = snprintf(head, sizeof head, "blob %lld", (long long)bytes);
    proa_hub_digest_add(d, head, (size_t)n + 1);
}

void proa_hub_digest_release(proa_hub_digest *d)
{
    if (d->context) crypto.EVP_MD_CTX_free(d->context);
    d->context = NULL;
}

void proa_hub_digest_add(proa_hub_digest *d, const void *bytes, size_t len)
{
    if (d->context) PROA_ASSERT(crypto.EVP_DigestUpdate(d->context, bytes, len) == 1);
}

proa_status proa_hub_digest_check(proa_hub_digest *d, const char *what, proa_err *err)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1];
    unsigned len = 0;
    if (!d->context) return PROA_OK;
    PROA_ASSERT(crypto.EVP_DigestFinal_ex(d->context, sum, &len) == 1);
    for (unsigned i = 0; i < len; i++) snprintf(text + (size_t)2 * i, 3, "%02x", sum[i]);
    if (strcmp(text, d->expected) == 0) return PROA_OK;
    return PROA_FAIL(err, CORRUPT, "%s: its %s is %s, the hub names %s", what,
                     len == 32 ? "sha256" : "git sha1", text, d->expected);
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
