/* SPDX-License-Identifier: Apache-2.0
 * fetch.c - brings the files of a tree that are missing into the cache. */
#include "hub/fetch.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/log.h"
#include <stdlib.h>
#include <unistd.h>

enum { STEP_MS = 100 };

void proa_hub_fetch_release(proa_hub_fetch *f)
{
    for (int32_t i = 0; i < f->downloads_count; i++) proa_hub_download_release(&f->downloads[i]);
    free(f->downloads);
    free(f->fetched);
    f->downloads = NULL, f->fetched = NULL, f->downloads_count = 0;
}

/* ---- progress ---- */

static proa_status show_progress(const proa_hub_fetch *f, const char *waiting, proa_err *err)
{
    proa_hub_progress now = {.files = f->downloads_count,
                             .waiting = waiting                 ? waiting
                                        : f->client->waiting[0] ? f->client->waiting
                                                                : NULL};
    for (int32_t i = 0; i < f->downloads_count; i++) {
        const proa_hub_download *d = &f->downloads[i];
        now.files_done += d->stage == PROA_HUB_READY;
        now.bytes += d->entry->size;
        now.bytes_done += proa_hub_download_bytes(d);
        if (!now.file && d->stage == PROA_HUB_MOVING) now.file = d->entry->path;
    }
    if (!f->options->progress || f->options->progress(f->options->progress_arg, &now)) return PROA_OK;
    return PROA_FAIL(err, CANCELLED, "interrupted");
}

proa_status proa_hub_fetch_run(proa_hub_fetch *f, proa_err *err)
{
    while (f->client->active) {
        proa_hub_step(f->client, STEP_MS);
        PROA_TRY(show_progress(f, NULL, err));
    }
    return PROA_OK;
}

/* ---- what is missing ---- */

/* Whether the entry must be downloaded. A blob without its link gets one. */
static proa_status find_missing(proa_hub_fetch *f, proa_hub_entry *e, bool *missing, proa_err *err)
{
    bool has;
    proa_err damage = {0};
    PROA_TRY(proa_hub_cache_has(&has, f->cache, f->tree->commit, e, err));
    if (has && f->options->verify) {
        proa_status status = proa_hub_cache_verify(f->cache, f->tree->commit, e, &damage);
        if (status == PROA_CORRUPT) PROA_LOG(WARNING, "%s; it is downloaded again", damage.text);
        else if (status != PROA_OK) return proa_err_copy(err, &damage);
        has = status == PROA_OK;
    }
    *missing = !has;
    if (has || f->cache->repo_fd < 0 || !proa_hub_cache_has_blob(f->cache, e)) return PROA_OK;
    *missing = false;
    return f->options->dry_run ? PROA_OK : proa_hub_cache_link(f->cache, f->tree->commit, e, err);
}

static proa_status add_downloads(proa_hub_fetch *f, bool weights, proa_err *err)
{
    for (int64_t i = 0; i < f->tree->count; i++) {
        proa_hub_entry *e = &f->tree->entries[i];
        if (!e->wanted || e->weights != weights) continue;
        PROA_TRY(find_missing(f, e, &f->fetched[i], err));
        if (!f->fetched[i]) continue;
        proa_hub_download_init(&f->downloads[f->downloads_count++], f->cache, f->client, f->tree->commit, e);
    }
    return PROA_OK;
}

static proa_status check_room(const proa_hub_fetch *f, proa_err *err)
{
    int64_t bytes = 0, room = proa_hub_cache_room(f->cache);
    for (int32_t i = 0; i < f->downloads_count; i++) {
        const proa_hub_entry *e = f->downloads[i].entry;
        int64_t begun = proa_hub_cache_begun(f->cache, e->etag);
        bytes += e->size - proa_min64(begun, e->size);
    }
    if (bytes <= room) return PROA_OK;
    return PROA_FAIL(err, IO, "%s has room for %.2f GB, '%s' needs %.2f GB", f->cache->root,
                     (double)room * 1e-9, f->repo, (double)bytes * 1e-9);
}

/* ---- downloading ---- */

/* One round over the downloads [begin, end). *left: those that are not ready. */
static proa_status advance_downloads(proa_hub_fetch *f, int32_t begin, int32_t end, int32_t *left,
                                     bool *locked, proa_err *err)
{
    *left = 0, *locked = false;
    for (int32_t i = begin; i < end; i++) {
        proa_hub_download *d = &f->downloads[i];
        if (d->stage == PROA_HUB_WAITING && f->client->active < f->settings->connections) {
            proa_hub_download_begin(d);
            *locked |= d->stage == PROA_HUB_WAITING;
        }
        if (d->stage == PROA_HUB_MOVING) proa_hub_download_fill(d, f->settings->connections);
        if (d->stage == PROA_HUB_FAILED) return proa_err_copy(err, &d->err);
        *left += d->stage != PROA_HUB_READY;
    }
    return PROA_OK;
}

static proa_status run_downloads(proa_hub_fetch *f, int32_t begin, int32_t end, proa_err *err)
{
    for (;;) {
        int32_t left;
        bool locked;
        PROA_TRY(advance_downloads(f, begin, end, &left, &locked, err));
        if (!left) break;
        PROA_TRY(show_progress(f, locked && !f->client->active ? "another process downloads it" : NULL, err));
        if (f->client->active) proa_hub_step(f->client, STEP_MS);
        else if (locked) usleep(STEP_MS * 1000);
    }
    for (int32_t i = begin; i < end; i++)
        PROA_TRY(proa_hub_cache_link(f->cache, f->tree->commit, f->downloads[i].entry, err));
    return PROA_OK;
}

proa_status proa_hub_fetch_missing(proa_hub_fetch *f, proa_err *err)
{
    f->fetched = proa_calloc((size_t)f->tree->count + 1, sizeof *f->fetched);
    f->downloads = proa_calloc((size_t)f->tree->count + 1, sizeof *f->downloads);
    PROA_TRY(add_downloads(f, false, err));
    int32_t small = f->downloads_count;
    PROA_TRY(add_downloads(f, true, err));
    if (f->options->dry_run) return PROA_OK;
    if (f->downloads_count) PROA_TRY(check_room(f, err));
    PROA_TRY(run_downloads(f, 0, small, err));
    return run_downloads(f, small, f->downloads_count, err);
}
