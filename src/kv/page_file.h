/* SPDX-License-Identifier: Apache-2.0
 * page_file.h - a page of keys and values as a file, for the third level of the prefix cache: a head of
 * PROA_PAGE_HEAD_BYTES, then the image (page_copy.h). The head says which model and which arithmetic made the image and
 * for which tokens, and has checksums of itself and of the image. A file that differs in any byte of this is
 * refused. The checksums do not detect a deliberate forgery, so the folder must be private.
 *
 *   bytes      what (numbers are little-endian)
 *   0-7        "PROAPAGE"
 *   8-15       version, bytes of the head
 *   16-47      fingerprint of the model
 *   48-79      key of the page (page_key.h), which has the salt in it as a hash
 *   80-87      type of keys and values: "bf16"
 *   88-111     layers, heads, size of a head, tokens of a page, tokens in this one, pages before it
 *   112-127    bytes of the image, its checksum
 *   128-383    the tokens, 0 after the last one
 *   384-503    0
 *   504-511    checksum of the head up to here
 *
 * Threads: any, each on files and images of its own. */
#ifndef PROA_KV_PAGE_FILE_H
#define PROA_KV_PAGE_FILE_H

#include "base/status.h"
#include "kernels/device.h"
#include "kv/page_key.h"

enum { PROA_PAGE_HEAD_BYTES = 512 };

/* What all files of an engine have in common. */
typedef struct proa_page_format {
    unsigned char fingerprint[PROA_SHA256_BYTES]; /* of the model and of what decides about its results */
    proa_dtype dtype;
    int32_t layers;
    int64_t kv_heads, head_dim;
    int64_t image_bytes;
} proa_page_format;

/* The head of the file for this page. image [f->image_bytes]. */
void proa_page_head_make(unsigned char head[PROA_PAGE_HEAD_BYTES], const proa_page_format *f,
                         const proa_page_name *name, const char *image);
/* CORRUPT unless the head is that of this page, made by this model, and the image is the one that it was made
 * for. The text says what differs. */
PROA_MUST_CHECK proa_status proa_page_head_check(const unsigned char head[PROA_PAGE_HEAD_BYTES],
                                                 const proa_page_format *f, const proa_page_name *name,
                                                 const char *image, proa_err *err);

/* Writes the file `name` of the folder: under another name first, which a crash may leave behind, then by a rename. Two
 * processes that write one file at a time both write the same. */
PROA_MUST_CHECK proa_status proa_page_file_write(int folder, const char *name, const proa_page_format *f,
                                                 const proa_page_name *page, const char *image, proa_err *err);
/* Reads it into image. NOT_FOUND if there is none; CORRUPT if it is no regular file of this size, or not that of this
 * page. Links are not followed. The file counts as used now. */
PROA_MUST_CHECK proa_status proa_page_file_read(int folder, const char *name, const proa_page_format *f,
                                                const proa_page_name *page, char *image, proa_err *err);

#endif
