/* SPDX-License-Identifier: Apache-2.0
 * digest.h - the checksum of a file on the hub, computed while its bytes arrive: sha256 of a large file, git's sha1 of
 *            a blob ("blob SIZE" and a NUL before the bytes) of a small one. An object store has md5.
 * Owner:   the caller; release it.
 * Threads: one at a time. */
#ifndef PROA_HUB_DIGEST_H
#define PROA_HUB_DIGEST_H

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct proa_hub_digest {
    void *context; /* OpenSSL's EVP_MD_CTX; NULL: the etag is no known checksum, all bytes are accepted */
    char expected[65];
} proa_hub_digest;

/* Opens OpenSSL's libcrypto, once in a process; before the first digest. UNSUPPORTED if it is not installed. */
PROA_MUST_CHECK proa_status proa_hub_digest_open(proa_err *err);
/* etag: 64 hexadecimal digits are a sha256, 40 a git sha1, 32 an md5. bytes: of the whole file. */
void proa_hub_digest_init(proa_hub_digest *d, const char *etag, int64_t bytes);
void proa_hub_digest_release(proa_hub_digest *d);
void proa_hub_digest_add(proa_hub_digest *d, const void *bytes, size_t len);
/* Ends it: the checksum in hexadecimal digits. There must be a context. */
enum { PROA_HUB_DIGEST_TEXT = 129 };
void proa_hub_digest_text(proa_hub_digest *d, char text[PROA_HUB_DIGEST_TEXT]);
/* CORRUPT if the bytes are not those of the etag. what: the file, for the message. */
PROA_MUST_CHECK proa_status proa_hub_digest_check(proa_hub_digest *d, const char *what, proa_err *err);
/* Adds bytes [0, count) of a file. IO if it is shorter. */
PROA_MUST_CHECK proa_status proa_hub_digest_add_file(proa_hub_digest *d, int fd, int64_t count,
                                                     const char *what, proa_err *err);

#endif
