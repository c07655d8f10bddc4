/* SPDX-License-Identifier: Apache-2.0
 * download.h - one file from the hub into a blob of the cache.
 *
 * A large file is fetched in pieces by several connections. Bytes are hashed and written in order: those of the first
 * piece as they arrive, those of later ones are held in memory until it is their turn. So ETAG.incomplete is always
 * a prefix of the file, and a later download, also after a crash, continues after it.
 * Owner:   the caller's struct. Threads: one at a time.
 * Way in:  proa_hub_download_init, _begin until it has the lock, _fill before each step of the client. */
#ifndef PROA_HUB_DOWNLOAD_H
#define PROA_HUB_DOWNLOAD_H

#include "hub/cache.h"
#include "hub/digest.h"
#include "hub/http.h"

typedef enum proa_hub_stage {
    PROA_HUB_WAITING, /* for its turn, or for another process that downloads the same file */
    PROA_HUB_MOVING,
    PROA_HUB_READY, /* the blob is complete */
    PROA_HUB_FAILED /* err says why */
} proa_hub_stage;

typedef struct proa_hub_piece proa_hub_piece;
typedef struct proa_hub_download {
    const proa_hub_cache *cache;
    proa_hub_client *client;
    const proa_hub_entry *entry;
    const char *commit;
    proa_hub_stage stage;
    proa_err err;
    int fd, lock_fd;
    proa_hub_digest digest;
    int64_t resumed;        /* bytes that were there at the beginning */
    int64_t written;        /* bytes hashed and in the file, from its beginning */
    int64_t next;           /* the first byte that no piece has */
    proa_hub_piece *pieces; /* in order */
    char *url;              /* where the hub's redirects ended; NULL: not known */
    bool ranges;            /* the server has sent a part: so several may be requested at a time */
    bool whole;             /* it sends no parts: one request for all */
    bool opaque; /* the store encrypts with a key of its own, so that the etag is no checksum (S3 with KMS) */
    bool fresh_url_tried, restarted;
} proa_hub_download;

void proa_hub_download_init(proa_hub_download *d, const proa_hub_cache *cache, proa_hub_client *client,
                            const char *commit, const proa_hub_entry *entry);
void proa_hub_download_release(proa_hub_download *d);
/* Takes the lock and begins. Nothing happens while another process has it. */
void proa_hub_download_begin(proa_hub_download *d);
/* Starts requests while the client has fewer than connections_max. */
void proa_hub_download_fill(proa_hub_download *d, int connections_max);
/* Bytes that have arrived, with those that were there. */
int64_t proa_hub_download_bytes(const proa_hub_download *d);

#endif
