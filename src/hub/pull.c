/* SPDX-License-Identifier: Apache-2.0
 * pull.c - makes a model of the hub available: which commit, which files, which of them are missing, download them. */
#include "proa/hub.h"

#include "base/alloc.h"
#include "base/log.h"
#include "hub/fetch.h"
#include "hub/name.h"
#include "hub/site.h"
#include "hub/url.h"
#include <string.h>
#include <unistd.h>

typedef struct pull {
    const proa_hub_options *options;
    proa_hub_settings settings;
    proa_hub_name name;
    proa_hub_cache cache;
    proa_hub_client client;
    proa_hub_tree tree;
    proa_hub_fetch fetch;
    const char *gguf;
} pull;

/* ---- which commit, which files ---- */

static proa_status take_list(proa_hub_transfer *t, const char *bytes, size_t len, proa_err *err)
{
    if (proa_buf_append(t->arg, bytes, len)) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the list of files is longer than %lld bytes",
                     (long long)PROA_HUB_LIST_BYTES_MAX);
}

static void restart_list(proa_hub_transfer *t)
{
    proa_buf_clear(t->arg);
}

static void ignore_done(proa_hub_transfer *t)
{
    t->client = NULL;
}

/* GET /api/models/REPO/revision/REV?blobs=true: the commit and its files, with sizes and checksums. */
static proa_status fetch_list(pull *p, proa_err *err)
{
    proa_buf url, body;
    proa_buf_init(&url, PROA_HUB_URL_MAX);
    proa_buf_init(&body, (size_t)PROA_HUB_LIST_BYTES_MAX);
    proa_buf_printf(&url, "%s/api/models/%s/revision/", p->settings.endpoint, p->name.repo);
    proa_hub_escape(&url, p->name.revision, false);
    proa_buf_printf(&url, "?blobs=true");
    proa_hub_transfer t = {.url = url.ptr,
                           .no_retry = true,
                           .end = -1,
                           .bytes_max = PROA_HUB_LIST_BYTES_MAX,
                           .on_body = take_list,
                           .on_restart = restart_list,
                           .on_done = ignore_done,
                           .arg = &body};
    proa_hub_start(&p->client, &t);
    proa_status status = proa_hub_fetch_run(&p->fetch, err);
    if (t.client) proa_hub_stop(&t);
    if (status == PROA_OK) status = proa_err_copy(err, &t.err);
    if (status == PROA_OK) status = proa_hub_tree_parse(&p->tree, proa_buf_view(&body), err);
    proa_buf_release(&body);
    proa_hub_transfer_release(&t);
    return status;
}

/* The commit and its files as the cache has them. Without a list (older versions of huggingface_hub keep none) the
 * folder is taken as it is, and *listed is false. */
static proa_status find_cached(pull *p, bool *listed, proa_err *err)
{
    char commit[41];
    proa_err why = {0};
    if (proa_hub_is_commit(proa_str_c(p->name.revision)))
        snprintf(commit, sizeof commit, "%s", p->name.revision);
    else if (proa_hub_cache_ref(commit, &p->cache, p->name.revision, &why) == PROA_NOT_FOUND)
        return PROA_FAIL(err, NOT_FOUND, "the cache %s has no '%s' of '%s'", p->settings.cache,
                         p->name.revision, p->name.repo);
    else if (why.status != PROA_OK) return proa_err_copy(err, &why);
    *listed = proa_hub_cache_tree(&p->tree, &p->cache, commit, &why) == PROA_OK;
    if (*listed) return PROA_OK;
    if (why.status == PROA_CORRUPT) return proa_err_copy(err, &why);
    snprintf(p->tree.commit, sizeof p->tree.commit, "%s", commit);
    return PROA_OK;
}

/* ---- etags that the list does not have: HEAD of each file, as huggingface_hub does it ---- */

static void head_done(proa_hub_transfer *t)
{
    proa_hub_entry *e = t->arg;
    const proa_hub_reply *r = &t->reply;
    const char *etag = r->linked_etag[0] ? r->linked_etag : r->etag;
    t->client = NULL;
    if (t->err.status != PROA_OK) return;
    bool redirected = r->code >= 300 && r->code < 400;
    e->size = r->linked_size >= 0 ? r->linked_size : redirected ? -1 : r->length;
    snprintf(e->etag, sizeof e->etag, "%s", etag);
    if (e->size < 0 || e->size > PROA_HUB_FILE_BYTES_MAX || !etag[0])
        (void)PROA_FAIL(&t->err, CORRUPT, "%s: the server names no size or no etag", e->path);
    else if (strspn(etag, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") != strlen(etag))
        (void)PROA_FAIL(&t->err, CORRUPT, "%s: the server's etag '%.80s' is not of letters and digits",
                        e->path, etag);
}

static proa_status fetch_heads(pull *p, proa_err *err)
{
    proa_status status = PROA_OK;
    for (int64_t i = 0; i < p->tree.count && status == PROA_OK; i++) {
        proa_hub_entry *e = &p->tree.entries[i];
        proa_buf url;
        if (!e->wanted || (e->etag[0] && e->size >= 0)) continue;
        proa_buf_init(&url, PROA_HUB_URL_MAX);
        proa_buf_printf(&url, "%s/%s/resolve/%s/", p->settings.endpoint, p->name.repo, p->tree.commit);
        proa_hub_escape(&url, e->path, true);
        proa_hub_transfer t = {
            .url = url.ptr, .what = e->path, .head = true, .end = -1, .on_done = head_done, .arg = e};
        proa_hub_start(&p->client, &t);
        status = proa_hub_fetch_run(&p->fetch, err);
        if (t.client) proa_hub_stop(&t);
        if (status == PROA_OK) status = proa_err_copy(err, &t.err);
        proa_hub_transfer_release(&t);
    }
    return status;
}

/* ---- the whole ---- */

static proa_status pull_online(pull *p, proa_err *err)
{
    PROA_TRY(proa_hub_choose(&p->tree, p->name.repo, p->name.file, &p->gguf, err));
    PROA_TRY(fetch_heads(p, err));
    if (!p->options->dry_run) {
        proa_hub_cache_close(&p->cache);
        PROA_TRY(proa_hub_cache_open(&p->cache, p->settings.cache, p->name.repo, true, err));
        proa_hub_cache_keep_tree(&p->cache, &p->tree);
    }
    PROA_TRY(proa_hub_fetch_missing(&p->fetch, err));
    if (p->options->dry_run) return PROA_OK;
    PROA_TRY(proa_hub_cache_check_links(&p->cache, p->tree.commit, err));
    return proa_hub_cache_set_ref(&p->cache, p->name.revision, p->tree.commit, err);
}

static proa_status check_cached(pull *p, bool listed, proa_err *err)
{
    char *folder = proa_hub_cache_path(&p->cache, p->tree.commit, NULL);
    bool there = access(folder, R_OK) == 0;
    free(folder);
    if (!there) return PROA_FAIL(err, NOT_FOUND, "the cache has no files of commit %s", p->tree.commit);
    PROA_TRY(proa_hub_cache_check_links(&p->cache, p->tree.commit, err));
    if (!listed) {
        p->gguf = p->name.file[0] ? p->name.file : NULL;
        return PROA_OK;
    }
    PROA_TRY(proa_hub_choose(&p->tree, p->name.repo, p->name.file, &p->gguf, err));
    for (int64_t i = 0; i < p->tree.count; i++) {
        const proa_hub_entry *e = &p->tree.entries[i];
        bool has = true;
        if (e->wanted) PROA_TRY(proa_hub_cache_has(&has, &p->cache, p->tree.commit, e, err));
        if (!has) return PROA_FAIL(err, NOT_FOUND, "the cache has no complete %s", e->path);
        if (e->wanted && p->options->verify)
            PROA_TRY(proa_hub_cache_verify(&p->cache, p->tree.commit, e, err));
    }
    return PROA_OK;
}

static proa_status pull_cached(pull *p, proa_err *err)
{
    bool listed = false;
    proa_err why = {0};
    proa_status status = find_cached(p, &listed, &why);
    if (status == PROA_OK) status = check_cached(p, listed, &why);
    if (status == PROA_OK) return PROA_OK;
    if (why.status != PROA_NOT_FOUND) return proa_err_copy(err, &why);
    return PROA_FAIL(err, NOT_FOUND, "%s; HF_HUB_OFFLINE forbids to download it", why.text);
}

static proa_status pull_files(pull *p, proa_err *err)
{
    proa_err why = {0};
    PROA_TRY(proa_hub_digest_open(err));
    PROA_TRY(proa_hub_cache_open(&p->cache, p->settings.cache, p->name.repo, false, err));
    if (p->settings.offline) return pull_cached(p, err);
    PROA_TRY(proa_hub_client_open(&p->client, &proa_hub_site_hub, &p->settings, p->name.repo, err));
    p->client.revision = p->name.revision;
    proa_status status = fetch_list(p, &why);
    if (status == PROA_OK) return pull_online(p, err);
    if (status == PROA_UNAVAILABLE && p->cache.repo_fd >= 0 && pull_cached(p, NULL) == PROA_OK) {
        PROA_LOG(WARNING, "%s; '%s' comes from the cache", why.text, p->name.repo);
        return PROA_OK;
    }
    return proa_err_copy(err, &why);
}

static void fill_result(pull *p, proa_hub_result *r)
{
    *r = (proa_hub_result){.path = proa_hub_cache_path(&p->cache, p->tree.commit, p->gguf),
                           .repo = proa_strdup(p->name.repo),
                           .commit = proa_strdup(p->tree.commit)};
    r->files = proa_calloc((size_t)p->tree.count + 1, sizeof *r->files);
    for (int64_t i = 0; i < p->tree.count; i++) {
        const proa_hub_entry *e = &p->tree.entries[i];
        if (!e->wanted) continue;
        r->files[r->files_count++] = (proa_hub_file){proa_strdup(e->path), e->size,
                                                     p->fetch.fetched && p->fetch.fetched[i]};
        if (r->files[r->files_count - 1].downloaded) r->bytes_downloaded += e->size;
    }
}

static void release_pull(pull *p)
{
    proa_hub_fetch_release(&p->fetch);
    if (p->client.multi) proa_hub_client_close(&p->client);
    proa_hub_cache_close(&p->cache);
    proa_hub_tree_release(&p->tree);
}

proa_status proa_hub_pull(char **path, const char *name, const proa_hub_options *options,
                          proa_hub_result *result, proa_err *err)
{
    static const proa_hub_options defaults;
    pull p = {.options = options ? options : &defaults, .cache = {.root_fd = -1, .repo_fd = -1}};
    proa_hub_tree_init(&p.tree);
    p.fetch = (proa_hub_fetch){.cache = &p.cache,
                               .client = &p.client,
                               .tree = &p.tree,
                               .settings = &p.settings,
                               .repo = p.name.repo,
                               .options = p.options};
    proa_status status = proa_hub_name_parse(&p.name, name, err);
    if (status == PROA_OK) status = proa_hub_settings_read(&p.settings, p.options, err);
    if (status == PROA_OK) status = pull_files(&p, err);
    if (status == PROA_OK && path) *path = proa_hub_cache_path(&p.cache, p.tree.commit, p.gguf);
    if (status == PROA_OK && result) fill_result(&p, result);
    release_pull(&p);
    return status;
}

void proa_hub_result_release(proa_hub_result *r)
{
    for (int32_t i = 0; i < r->files_count; i++) free((void *)(uintptr_t)r->files[i].name);
    free(r->files), free(r->path), free(r->repo), free(r->commit);
    *r = (proa_hub_result){.path = NULL};
}
