/* SPDX-License-Identifier: Apache-2.0
 * crypto.h - OpenSSL's libcrypto, opened at run time as libcurl is: checksums, HMAC, signatures.
 * Owner:   the process; it stays open.
 * Threads: any. */
#ifndef PROA_HUB_CRYPTO_H
#define PROA_HUB_CRYPTO_H

#include "base/status.h"
#include "base/str.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#define PROA_CRYPTO_LIST(X)                                                                                  \
    X(BIO_free)                                                                                              \
    X(BIO_new_mem_buf)                                                                                       \
    X(EVP_Digest)                                                                                            \
    X(EVP_DigestFinal_ex)                                                                                    \
    X(EVP_DigestInit_ex)                                                                                     \
    X(EVP_DigestSign)                                                                                        \
    X(EVP_DigestSignInit)                                                                                    \
    X(EVP_DigestUpdate)                                                                                      \
    X(EVP_MD_CTX_free)                                                                                       \
    X(EVP_MD_CTX_new)                                                                                        \
    X(EVP_PKEY_free)                                                                                         \
    X(EVP_md5)                                                                                               \
    X(EVP_sha1)                                                                                              \
    X(EVP_sha256)                                                                                            \
    X(HMAC)                                                                                                  \
    X(PEM_read_bio_PrivateKey)

#define PROA_CRYPTO_FIELD(name) __typeof__(name) *name;
typedef struct proa_crypto {
    PROA_CRYPTO_LIST(PROA_CRYPTO_FIELD)
} proa_crypto;

/* UNSUPPORTED if libcrypto is not installed. */
PROA_MUST_CHECK proa_status proa_crypto_open(const proa_crypto **out, proa_err *err);

#define PROA_CRYPTO_SHA256_BYTES 32
void proa_crypto_sha256(const proa_crypto *c, unsigned char out[PROA_CRYPTO_SHA256_BYTES], proa_str bytes);
void proa_crypto_hmac_sha256(const proa_crypto *c, unsigned char out[PROA_CRYPTO_SHA256_BYTES], proa_str key,
                             proa_str bytes);
/* Lower-case digits, with a NUL: out[2 * count + 1]. */
void proa_crypto_hex(char *out, const unsigned char *bytes, size_t count);

#endif
