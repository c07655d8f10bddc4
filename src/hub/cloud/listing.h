/* SPDX-License-Identifier: Apache-2.0
 * listing.h - what an object store says about its objects: pages of a listing in XML (S3, Azure) or JSON (Google), and
 *             the words of a refusal.
 * Owner:   the caller's struct; texts are in its arena.
 * Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_LISTING_H
#define PROA_HUB_CLOUD_LISTING_H

#include "base/arena.h"
#include "hub/cloud/address.h"
#include "hub/tree.h"

typedef struct proa_cloud_listing {
    proa_arena arena;
    /* [count], sorted by path after the last page. path: the key without the prefix; etag: a name for the bytes, which
     * is an md5 where the store has one; match: the state of the object, for the store. */
    proa_hub_entry *entries;
    int64_t count, cap;
    const char *next; /* the token of the next page; NULL: this was the last one */
} proa_cloud_listing;

void proa_cloud_listing_init(proa_cloud_listing *l);
void proa_cloud_listing_release(proa_cloud_listing *l);
/* Adds the objects of a page and sets `next`. CORRUPT for what is no listing, has a document type or names an object
 * outside of the prefix; LIMIT for more than PROA_CLOUD_OBJECTS_MAX objects. */
PROA_MUST_CHECK proa_status proa_cloud_listing_add(proa_cloud_listing *l, const proa_cloud_address *address,
                                                   const char *prefix, proa_str page, proa_err *err);
/* CORRUPT if an object is named twice. */
PROA_MUST_CHECK proa_status proa_cloud_listing_sort(proa_cloud_listing *l, proa_err *err);

/* "CODE: MESSAGE" of an error's body in XML or JSON, without control characters; "" if it is none. */
void proa_cloud_error_words(char *out, size_t size, proa_str body);

#endif
