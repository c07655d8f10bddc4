/* SPDX-License-Identifier: Apache-2.0
 * cloud.c - a repository in an object store as a folder of this machine. */
#include "hub/cloud/cloud.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/cloud/snapshot.h"
#include "hub/cloud/store.h"
#include "hub/cloud/view.h"
#include "hub/fetch.h"
#include "hub/name.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPORT_SECS = 5 }; /* seconds between two lines of the log about a download */

struct proa_cloud {
    pthread_mutex_t lock;
    proa_cloud_options options;
    proa_cloud_store store;
    proa_hub_cache cache;
    proa_cloud_view view;
    proa_cloud_listing listing; /* the last one of the whole repository */
    char single[256];           /* "": a repository */
};

/* ---- where the cache is ---- */

static proa_status find_cache(char out[PROA_PATH_MAX], const proa_cloud_options *o, proa_cloud_kind kind,
                              proa_err *err)
{
    static const char *const triton[] = {"TRITON_AWS_MOUNT_DIRECTORY", "TRITON_GCS_MOUNT_DIRECTORY",
                                         "TRITON_AZURE_MOUNT_DIRECTORY"}; /* by proa_cloud_kind */
    const char *given = o->cache, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char base[PROA_PATH_MAX];
    if (!given || !given[0]) given = getenv("PROA_CLOUD_CACHE");
    if (!given || !given[0]) given = getenv(triton[kind]);
    if (given && given[0]) {
        snprintf(out, PROA_PATH_MAX, "%s", given);
        return strlen(given) < PROA_PATH_MAX / 2
                   ? PROA_OK
                   : PROA_FAIL(err, LIMIT, "the path of the cloud cache is too long");
    }
    if (xdg && xdg[0]) return proa_path_join(out, xdg, "proa/cloud", err);
    PROA_TRY(proa_path_join(base, home && home[0] ? home : "/tmp", ".cache", err));
    return proa_path_join(out, base, "proa/cloud", err);
}

/* "BUCKET/HASH": the bucket for people, the hash of endpoint and path so that no two repositories share a folder. */
static void cache_name(char out[PROA_HUB_NAME_MAX], const proa_cloud_store *s)
{
    unsigned char sum[PROA_CRYPTO_SHA256_BYTES];
    char hex[2 * PROA_CRYPTO_SHA256_BYTES + 1], text[sizeof s->settings.endpoint + sizeof s->address.prefix + 8];
    snprintf(text, sizeof text, "%d %s %s", (int)s->address.kind, s->settings.endpoint, s->address.prefix);
    proa_crypto_sha256(s->crypto, sum, proa_str_c(text));
    proa_crypto_hex(hex, sum, sizeof sum);
    snprintf(out, PROA_HUB_NAME_MAX, "%.60s/%.16s", s->address.bucket, hex);
}

/* ---- listing ---- */

/* Whether the files at the top make the address a model and not a repository. */
static bool is_model(const proa_cloud_listing *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        const char *path = l->entries[i].path;
        if (strcmp(path, "config.pbtxt") == 0 || strcmp(path, "config.json") == 0) return true;
        if (!strchr(path, '/') && proa_str_ends(proa_str_c(path), proa_str_c(".gguf"))) return true;
    }
    return false;
}

static void find_single(proa_cloud *c)
{
    char path[PROA_PATH_MAX];
    c->single[0] = '\0';
    if (!is_model(&c->listing)) return;
    snprintf(path, sizeof path, "%s/%s", c->store.address.bucket, c->store.address.prefix);
    path[strlen(path) - 1] = '\0';
    snprintf(c->single, sizeof c->single, "%.255s", strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

/* The folder at the beginning of a path as a model's name. False: the path has none, or one that no model has. */
static bool model_of(char name[256], const char *path)
{
    size_t len = strcspn(path, "/");
    if (!path[len] || len > 255 || path[0] == '.') return false;
    memcpy(name, path, len);
    name[len] = '\0';
    return proa_hub_is_path((proa_str){name, len});
}

static proa_status show_models(proa_cloud *c, proa_err *err)
{
    char name[256], last[256] = "";
    proa_cloud_view_clear(&c->view);
    if (c->single[0]) PROA_TRY(proa_cloud_view_name(&c->view, c->single, err));
    for (int64_t i = 0; i < c->listing.count && !c->single[0]; i++) {
        if (!model_of(name, c->listing.entries[i].path) || strcmp(name, last) == 0) continue;
        PROA_TRY(proa_cloud_view_name(&c->view, name, err));
        memcpy(last, name, sizeof last);
    }
    proa_cloud_view_sweep(&c->view);
    return PROA_OK;
}

static proa_status list_all(proa_cloud *c, proa_err *err)
{
    proa_cloud_listing now;
    proa_cloud_listing_init(&now);
    proa_status status = proa_cloud_store_list(&c->store, &now, "", err);
    if (status != PROA_OK) {
        proa_cloud_listing_release(&now);
        return status;
    }
    proa_cloud_listing_release(&c->listing);
    c->listing = now;
    find_single(c);
    return show_models(c, err);
}

proa_status proa_cloud_list(proa_cloud *c, proa_err *err)
{
    pthread_mutex_lock(&c->lock);
    proa_status status = list_all(c, err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- the files of a model ---- */

typedef struct report {
    const proa_cloud *cloud;
    const char *model;
    int64_t next_ns;
} report;

/* The log gets a line at the beginning and every few seconds. */
static bool log_progress(void *arg, const proa_hub_progress *now)
{
    report *r = arg;
    const proa_cloud_options *o = &r->cloud->options;
    if (o->progress) return o->progress(o->progress_arg, now);
    if (!now->files || proa_clock_ns() < r->next_ns) return true;
    r->next_ns = proa_clock_ns() + (int64_t)REPORT_SECS * 1000000000;
    PROA_LOG(INFO, "downloading '%s' of %s: %d of %d files, %.1f of %.1f MB%s%s", r->model,
             r->cloud->store.address.text, now->files_done, now->files, (double)now->bytes_done * 1e-6,
             (double)now->bytes * 1e-6, now->waiting ? ", " : "", now->waiting ? now->waiting : "");
    return true;
}

static proa_status download_files(proa_cloud *c, const char *model, const proa_cloud_snapshot *s, proa_err *err)
{
    char folder[300] = "";
    report r = {.cloud = c, .model = model};
    const proa_hub_options options = {.progress = log_progress, .progress_arg = &r};
    proa_hub_fetch fetch = {.cache = &c->cache,
                            .client = &c->store.client,
                            .tree = &s->tree,
                            .settings = &c->store.settings,
                            .repo = c->store.address.text,
                            .options = &options};
    if (!c->single[0]) snprintf(folder, sizeof folder, "%s/", model);
    PROA_TRY(proa_cloud_store_enter(&c->store, folder, err));
    proa_status status = proa_hub_fetch_missing(&fetch, err);
    proa_hub_fetch_release(&fetch);
    for (int64_t i = 0; i < s->folders_count && status == PROA_OK; i++)
        status = proa_hub_cache_make_folder(&c->cache, s->tree.commit, s->folders[i], err);
    if (status == PROA_OK) status = proa_hub_cache_check_links(&c->cache, s->tree.commit, err);
    return status;
}

static proa_status download_snapshot(proa_cloud *c, const char *model, const proa_cloud_snapshot *s, proa_err *err)
{
    int64_t most = c->options.cache_bytes ? c->options.cache_bytes : PROA_CLOUD_CACHE_BYTES;
    PROA_TRY(proa_cloud_view_make_room(&c->view, &s->tree, most, err));
    int guard = proa_cloud_view_hold(&c->view); /* nothing is removed from the cache meanwhile */
    proa_status status = download_files(c, model, s, err);
    if (guard >= 0) close(guard);
    return status;
}

/* entries: sorted objects, those of the model begin with `strip`. */
static proa_status show_snapshot(proa_cloud *c, const char *model, const char *strip,
                                 const proa_hub_entry *entries, int64_t count, proa_err *err)
{
    proa_cloud_snapshot s;
    proa_status status = proa_cloud_snapshot_read(&s, entries, count, strip, err);
    if (status == PROA_OK && s.tree.count + s.folders_count == 0) {
        proa_cloud_view_remove(&c->view, model);
    } else if (status == PROA_OK && !proa_cloud_view_is(&c->view, model, s.tree.commit)) {
        status = download_snapshot(c, model, &s, err);
        if (status == PROA_OK) status = proa_cloud_view_link(&c->view, model, s.tree.commit, err);
    }
    proa_cloud_snapshot_release(&s);
    if (status != PROA_OK) proa_err_prefix(err, "'%s' of '%s'", model, c->store.address.text);
    return status;
}

static proa_status fetch_model(proa_cloud *c, const char *model, bool relist, proa_err *err)
{
    char folder[300] = "";
    proa_cloud_listing now;
    if (c->single[0] && strcmp(c->single, model) != 0) return PROA_OK;
    if (!c->single[0]) snprintf(folder, sizeof folder, "%s/", model);
    if (!relist) return show_snapshot(c, model, folder, c->listing.entries, c->listing.count, err);
    proa_cloud_listing_init(&now);
    proa_status status = proa_cloud_store_list(&c->store, &now, folder, err);
    if (status == PROA_OK) status = show_snapshot(c, model, "", now.entries, now.count, err);
    proa_cloud_listing_release(&now);
    return status;
}

proa_status proa_cloud_fetch(proa_cloud *c, const char *model, bool relist, proa_err *err)
{
    char name[256], path[300];
    snprintf(path, sizeof path, "%.280s/", model);
    if (strlen(model) > 255 || !model_of(name, path) || strcmp(name, model) != 0)
        return PROA_OK; /* no such model */
    pthread_mutex_lock(&c->lock);
    proa_status status = fetch_model(c, model, relist, err);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- open and close ---- */

static proa_status open_cache(proa_cloud *c, proa_err *err)
{
    char path[PROA_PATH_MAX], name[PROA_HUB_NAME_MAX];
    PROA_TRY(find_cache(path, &c->options, c->store.address.kind, err));
    cache_name(name, &c->store);
    PROA_TRY(proa_hub_cache_open(&c->cache, path, name, true, err));
    return proa_cloud_view_open(&c->view, &c->cache, err);
}

proa_status proa_cloud_open(proa_cloud **out, const char *address, const proa_cloud_options *options,
                            proa_err *err)
{
    proa_cloud *c = proa_calloc(1, sizeof *c);
    if (options) c->options = *options;
    pthread_mutex_init(&c->lock, NULL);
    proa_cloud_listing_init(&c->listing);
    c->cache = (proa_hub_cache){.root_fd = -1, .repo_fd = -1};
    proa_cloud_view_init(&c->view);
    proa_status status = proa_cloud_store_open(&c->store, address, err);
    if (status == PROA_OK) status = open_cache(c, err);
    if (status == PROA_OK) status = list_all(c, err);
    if (status == PROA_OK && !c->listing.count)
        status = PROA_FAIL(err, NOT_FOUND, "'%s' has no objects", c->store.address.text);
    *out = status == PROA_OK ? c : NULL;
    if (status != PROA_OK) proa_cloud_close(c);
    return status;
}

void proa_cloud_close(proa_cloud *c)
{
    if (!c) return;
    proa_cloud_view_close(&c->view);
    proa_hub_cache_close(&c->cache);
    proa_cloud_store_close(&c->store);
    proa_cloud_listing_release(&c->listing);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const char *proa_cloud_folder(const proa_cloud *c)
{
    return c->view.path;
}

const char *proa_cloud_single(const proa_cloud *c)
{
    return c->single[0] ? c->single : NULL;
}

char *proa_cloud_model_path(const proa_cloud *c, const char *model)
{
    char path[PROA_PATH_MAX];
    if (proa_path_join(path, c->view.path, model, NULL) != PROA_OK) return NULL;
    return realpath(path, NULL);
}
