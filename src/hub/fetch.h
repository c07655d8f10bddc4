/* SPDX-License-Identifier: Apache-2.0
 * fetch.h - brings the files of a tree that are missing into the cache: several at a time, first the small files, then
 *           weights, which get their names when all small files have theirs.
 * Owner:   the caller's struct, with what it points to. Threads: one at a time. */
#ifndef PROA_HUB_FETCH_H
#define PROA_HUB_FETCH_H

#include "hub/download.h"
#include "hub/hub.h"

typedef struct proa_hub_fetch {
    proa_hub_cache *cache;
    proa_hub_client *client;
    const proa_hub_tree *tree; /* entries that are wanted have a size and an etag */
    const proa_hub_settings *settings;
    const char *repo;                /* for errors */
    const proa_hub_options *options; /* progress, verify, dry_run */
    proa_hub_download *downloads;    /* [downloads_count], small files first */
    int32_t downloads_count;
    bool *fetched; /* [tree->count]: downloaded by this call; NULL before it */
} proa_hub_fetch;

/* Steps the client until nothing is active, with progress. CANCELLED if the caller wants that. */
PROA_MUST_CHECK proa_status proa_hub_fetch_run(proa_hub_fetch *f, proa_err *err);
/* Downloads and links all wanted entries that the snapshot tree->commit has not. */
PROA_MUST_CHECK proa_status proa_hub_fetch_missing(proa_hub_fetch *f, proa_err *err);
void proa_hub_fetch_release(proa_hub_fetch *f);

#endif
