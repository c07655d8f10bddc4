/* SPDX-License-Identifier: Apache-2.0
 * snapshot.h - the objects below a folder of a bucket as the files of one model: which are files, which only
 *              folders, and a name for their state.
 * Owner:   the caller's struct. Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_SNAPSHOT_H
#define PROA_HUB_CLOUD_SNAPSHOT_H

#include "hub/cloud/listing.h"

typedef struct proa_cloud_snapshot {
    proa_hub_tree tree;   /* commit: the state; entries: the files */
    const char **folders; /* [folders_count]: folders without files, which a version of an ensemble may be */
    int64_t folders_count;
    int64_t bytes;
} proa_cloud_snapshot;

/* Takes the objects of entries[0..count) whose paths begin with `folder` ("" or "NAME/"), which are sorted. CORRUPT for
 * a key that is no path inside the folder and for one that is both a file and a folder. */
PROA_MUST_CHECK proa_status proa_cloud_snapshot_read(proa_cloud_snapshot *out, const proa_hub_entry *entries,
                                                     int64_t count, const char *folder, proa_err *err);
void proa_cloud_snapshot_release(proa_cloud_snapshot *s);

#endif
