/* SPDX-License-Identifier: Apache-2.0
 * cloud.h - model repositories in object stores, kept up to date as folders of this machine.
 *
 *     CACHE/models--BUCKET--HASH/blobs, snapshots     as a hub's cache has them: each file once, named by its checksum
 *                                views/XXXXXX/NAME    a link to the snapshot of the model NAME, or to an empty folder
 *                                                     while its files were not needed; a view is one proa_cloud's
 *
 * A snapshot has all files of a model as one listing named them. A link is replaced in one step when its snapshot is
 * complete: a model is never seen half, and what serves keeps the folder that it was loaded from.
 * Owner:   the caller; close it.
 * Threads: any; one call at a time works on a repository, others wait. */
#ifndef PROA_HUB_CLOUD_CLOUD_H
#define PROA_HUB_CLOUD_CLOUD_H

#include "hub/cloud/address.h"
#include "hub/hub.h"

typedef struct proa_cloud proa_cloud;

typedef struct proa_cloud_options {
    const char *cache; /* folder; NULL: PROA_CLOUD_CACHE, Triton's TRITON_{AWS,GCS,AZURE}_MOUNT_DIRECTORY, or
                             ~/.cache/proa/cloud */
    int64_t cache_bytes; /* files of a repository that are kept at most; 0: PROA_CLOUD_CACHE_BYTES */
    /* Called a few times a second on the caller's thread; returns false to cancel. NULL: not called. */
    bool (*progress)(void *arg, const proa_hub_progress *progress);
    void *progress_arg;
} proa_cloud_options;

/* Opens a repository and lists it. UNAVAILABLE if the store cannot be reached, NOT_FOUND if it refuses. */
PROA_MUST_CHECK proa_status proa_cloud_open(proa_cloud **out, const char *address,
                                            const proa_cloud_options *options, proa_err *err);
void proa_cloud_close(proa_cloud *c);

/* The view: a folder of model folders. */
const char *proa_cloud_folder(const proa_cloud *c);
/* The address is itself a model, of this name; NULL: it is a repository. */
const char *proa_cloud_single(const proa_cloud *c);
/* Lists again: new models get a folder, which is empty until proa_cloud_fetch, and removed ones lose theirs. After a
 * failure the view is as before. */
PROA_MUST_CHECK proa_status proa_cloud_list(proa_cloud *c, proa_err *err);
/* Downloads the files of a model as the last proa_cloud_list saw them or, with `relist`, as they are now. OK for a
 * model that does not exist: it has no folder then. After a failure its folder is as before. */
PROA_MUST_CHECK proa_status proa_cloud_fetch(proa_cloud *c, const char *model, bool relist, proa_err *err);
/* The folder of a model in the cache, without links, on the heap; NULL: there is none. */
char *proa_cloud_model_path(const proa_cloud *c, const char *model);

#endif
