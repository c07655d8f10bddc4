/* SPDX-License-Identifier: Apache-2.0
 * compress.h - gzip and deflate (zlib) of whole bodies and messages.
 * Threads: none of its own. */
#ifndef PROA_NET_COMPRESS_H
#define PROA_NET_COMPRESS_H

#include "base/status.h"
#include "base/str.h"

typedef enum proa_coding {
    PROA_CODING_IDENTITY,
    PROA_CODING_GZIP,
    PROA_CODING_DEFLATE,
    PROA_CODING_COUNT
} proa_coding;

const char *proa_coding_name(proa_coding coding);          /* "gzip" */
bool proa_coding_find(proa_coding *coding, proa_str name); /* any case; "" is identity; false: unknown */
/* The best of an Accept-Encoding header by its q-values; identity if nothing else is acceptable. */
proa_coding proa_coding_accept(proa_str accept_encoding);
/* Appends to out. level 1..9. */
proa_status proa_compress(proa_buf *out, proa_coding coding, int level, const char *bytes, size_t len,
                          proa_err *err);
/* Appends to out; LIMIT once the result would have more than bytes_max (a bomb costs no more than that), INVALID for
 * broken or unfinished input, and for bytes after its end. deflate takes zlib's and the raw form, as browsers do. */
proa_status proa_decompress(proa_buf *out, proa_coding coding, const char *bytes, size_t len,
                            size_t bytes_max, proa_err *err);

#endif
