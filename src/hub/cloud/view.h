/* SPDX-License-Identifier: Apache-2.0
 * view.h - the models of a repository as links to snapshots in the cache, and the removal of unused snapshots.
 *
 *     views/.lock          held with flock while a view is made, or snapshots are removed
 *     views/.fetch         held, shared, while files are downloaded that no view leads to yet
 *     views/XXXXXX/.lock   held as long as its process lives; without a holder the view is removed
 *     views/XXXXXX/NAME    -> ../../snapshots/COMMIT, or ../../empty: its files were not needed yet
 *     views/XXXXXX/.NAME   -> the snapshot before, which a model that is being unloaded may still read
 *
 * Owner:   the caller's struct. Threads: one at a time; processes agree by the locks. */
#ifndef PROA_HUB_CLOUD_VIEW_H
#define PROA_HUB_CLOUD_VIEW_H

#include "hub/cache.h"

typedef struct proa_cloud_view {
    const proa_hub_cache *cache;
    char path[PROA_PATH_MAX]; /* of views/XXXXXX; "": not open */
    int fd, lock_fd;
    char **names; /* [count], sorted: those of proa_cloud_view_name */
    int count, cap;
} proa_cloud_view;

void proa_cloud_view_init(proa_cloud_view *v);
/* Makes a view, and removes those whose processes have ended. */
PROA_MUST_CHECK proa_status proa_cloud_view_open(proa_cloud_view *v, const proa_hub_cache *cache, proa_err *err);
void proa_cloud_view_close(proa_cloud_view *v);

/* The names that there are: clear, then each name in order, which is linked to the empty folder if it is new; sweep
 * removes those that were not named. */
void proa_cloud_view_clear(proa_cloud_view *v);
PROA_MUST_CHECK proa_status proa_cloud_view_name(proa_cloud_view *v, const char *name, proa_err *err);
void proa_cloud_view_sweep(proa_cloud_view *v);

/* Makes NAME the snapshot of `commit`, in one step. */
PROA_MUST_CHECK proa_status proa_cloud_view_link(proa_cloud_view *v, const char *name, const char *commit,
                                                 proa_err *err);
/* Whether it is that already. */
bool proa_cloud_view_is(const proa_cloud_view *v, const char *name, const char *commit);
void proa_cloud_view_remove(proa_cloud_view *v, const char *name);

/* Removes what no view leads to if the files of the cache and those of the tree that it has not would have more than
 * bytes_max. LIMIT if that is not enough. */
PROA_MUST_CHECK proa_status proa_cloud_view_make_room(proa_cloud_view *v, const proa_hub_tree *tree,
                                                      int64_t bytes_max, proa_err *err);
/* Keeps others from removing anything until the descriptor is closed. -1: no lock is to be had here; go on without. */
int proa_cloud_view_hold(const proa_cloud_view *v);

#endif
