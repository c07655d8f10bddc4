/* SPDX-License-Identifier: Apache-2.0
 * crypto.c - opens libcrypto and finds its functions. */
#include "hub/crypto.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBCRYPTO "libcrypto.so.3"

static proa_crypto crypto;
#define CRYPTO_NAME(name) #name,
static const char *const crypto_names[] = {PROA_CRYPTO_LIST(CRYPTO_NAME)};
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

proa_status proa_crypto_open(const proa_crypto **out, proa_err *err)
{
    pthread_once(&crypto_once, load_crypto);
    *out = &crypto;
    return proa_err_copy(err, &crypto_error);
}

void proa_crypto_sha256(const proa_crypto *c, unsigned char out[PROA_CRYPTO_SHA256_BYTES], proa_str bytes)
{
    unsigned len = 0;
    PROA_ASSERT(c->EVP_Digest(bytes.ptr, bytes.len, out, &len, c->EVP_sha256(), NULL) == 1);
}

void proa_crypto_hmac_sha256(const proa_crypto *c, unsigned char out[PROA_CRYPTO_SHA256_BYTES], proa_str key,
                             proa_str bytes)
{
    unsigned len = 0;
    const unsigned char *data = (const unsigned char *)bytes.ptr;
    PROA_ASSERT(c->HMAC(c->EVP_sha256(), key.ptr, (int)key.len, data, bytes.len, out, &len));
}

void proa_crypto_hex(char *out, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}
