/* SPDX-License-Identifier: Apache-2.0
 * page_copy.h - moves the keys and values of a page, of all layers, between the pool and memory of the host.
 *
 * An image is such a page in memory of the host: [layers][K, V][Hk][64][dh], without gaps; then the same of what
 * another model has in the page (proa_kv_pages.beside). On a GPU a copy runs beside the kernels: it begins after the
 * passes that were submitted before it, and a number shows when it has ended. On the CPU it is done when the call
 * returns, and its number is 0.
 *
 * Moving a page out and using it for something else, and getting it back into another page:
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

enum { PROA_KV_POOLS_MAX = PROA_RANKS_MAX + 2 }; /* pools in a row: ranks, draft models */

/* Bytes of an image; 0 for a pool without pages. */
int64_t proa_kv_image_bytes(const proa_kv_pages *p);
/* Memory for `count` images, one after the other, that copies reach directly; NULL if there is not so much. */
char *proa_kv_images_alloc(const proa_kv_pages *p, int64_t count);
void proa_kv_images_free(const proa_kv_pages *p, char *images); /* NULL is fine; no copy may be under way */

/* Begin a copy of a whole page, and return its number. image: memory of proa_kv_images_alloc, which stays as it is
 * until the copy has ended. */
int64_t proa_kv_page_save(const proa_kv_pages *p, int32_t page, char *image);
int64_t proa_kv_page_load(const proa_kv_pages *p, int32_t page, const char *image);
/* Pages of another pool, which belongs to another engine with the same model: pages from_page[0..pages) of `from`
 * become to_page[0..pages) of p, with what other models or ranks have in them. Neither are written meanwhile, nor
 * returned. nr [PROA_KV_POOLS_MAX]: a number for each pool of the row. */
void proa_kv_pages_fetch(const proa_kv_pages *p, const int32_t *to_page, const proa_kv_pages *from,
                         const int32_t *from_page, int64_t pages, int64_t *nr);
/* Whether the copies with these numbers have ended. */
bool proa_kv_pages_fetched(const proa_kv_pages *p, const int64_t *nr);
/* Whether pages of `from` can become pages of p: the same layers, heads, dtypes, and kinds of device. */
bool proa_kv_pages_alike(const proa_kv_pages *p, const proa_kv_pages *from);

/* Passes that are submitted from now on begin after all copies that have begun. */
void proa_kv_pages_wait_on_stream(const proa_kv_pages *p);
/* The copies with numbers up to this one have ended. */
int64_t proa_kv_pages_copied(const proa_kv_pages *p);
void proa_kv_page_wait(const proa_kv_pages *p, int64_t nr); /* returns when that copy has ended */

#endif
