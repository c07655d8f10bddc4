/* SPDX-License-Identifier: Apache-2.0
 * page_copy.h - moves the keys and values of a page, of all layers, between the pool and memory of the host.
 *
 * An image is such a page in host memory: [layers][K, V][Hk][64][dh], without gaps, followed by the same for each pool
 * that shares its page numbers (proa_kv_pages.attached). On a GPU a copy runs at the same time as kernels, after the
 * passes that were submitted before it, and its number tells when it has ended. On the CPU the copy is done when the
 * call returns, and its number is 0.
 *
 * Saving a page, reusing it, and loading the image into another page:
 *
 *     nr = proa_kv_page_save(p, page, image);        the page's contents may be overwritten by ...
 *     proa_kv_pages_wait_on_stream(p);               ... passes that are submitted from here on
 *     proa_kv_page_wait(p, nr);                      the host may read the image
 *     nr = proa_kv_page_load(p, other, image);
 *     proa_kv_pages_wait_on_stream(p);               passes that are submitted from here on may read `other`
 *     proa_kv_page_wait(p, nr);                      the image may be overwritten
 *
 * Threads: the stepping thread. */
#ifndef PROA_KV_PAGE_COPY_H
#define PROA_KV_PAGE_COPY_H

#include "kv/pages.h"

/* Pools that share page numbers: ranks, draft models, and for each the layers of the other shape. */
enum { PROA_KV_POOLS_MAX = 2 * (PROA_RANKS_MAX + 2) };

/* Bytes of an image; 0 for a pool without pages. */
int64_t proa_kv_image_bytes(const proa_kv_pages *p);
/* Pinned memory for `count` contiguous images; NULL if there is not enough. */
char *proa_kv_images_alloc(const proa_kv_pages *p, int64_t count);
void proa_kv_images_free(const proa_kv_pages *p, char *images); /* when no copy is running; NULL is fine */

/* Starts to copy a whole page, and returns the number of the copy. image: memory of proa_kv_images_alloc, which must
 * not be changed (save: not read) until the copy has ended. */
int64_t proa_kv_page_save(const proa_kv_pages *p, int32_t page, char *image);
int64_t proa_kv_page_load(const proa_kv_pages *p, int32_t page, const char *image);
/* Starts to copy pages of the pool of another engine with the same model: page from_page[i] of `from` becomes
 * to_page[i] of p, in all pools that share these page numbers. The caller keeps both from being written or returned
 * meanwhile. nr [PROA_KV_POOLS_MAX]: the number of the copy in each of these pools. */
void proa_kv_pages_fetch(const proa_kv_pages *p, const int32_t *to_page, const proa_kv_pages *from,
                         const int32_t *from_page, int64_t pages, int64_t *nr);
/* Whether the copies with these numbers have ended. */
bool proa_kv_pages_fetched(const proa_kv_pages *p, const int64_t *nr);
/* Whether pages of `from` can become pages of p: the same layers, heads, dtypes, and kinds of device. */
bool proa_kv_pages_alike(const proa_kv_pages *p, const proa_kv_pages *from);

/* Passes that are submitted after this call begin when all copies that were started have ended. */
void proa_kv_pages_wait_on_stream(const proa_kv_pages *p);
/* All copies up to the returned number have ended. */
int64_t proa_kv_pages_copied(const proa_kv_pages *p);
void proa_kv_page_wait(const proa_kv_pages *p, int64_t nr); /* returns when that copy has ended */

#endif
