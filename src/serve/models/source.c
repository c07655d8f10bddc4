/* SPDX-License-Identifier: Apache-2.0
 * source.c - model folders on disk: finding them, reading their configuration, noticing that files changed. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "serve/core.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_DEPTH_MAX 32 /* of a model's own folder: links could go in circles */

/* ---- names in a folder ---- */

typedef struct names {
    char **name;
    int count, cap;
} names;

static void names_release(names *n)
{
    for (int i = 0; i < n->count; i++) free(n->name[i]);
    free(n->name);
    *n = (names){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_folder(const char *folder, const char *name)
{
    char path[PROA_PATH_MAX];
    return proa_path_join(path, folder, name, NULL) == PROA_OK && proa_dir_exists(path);
}

/* The folders in a folder, sorted; hidden ones (.git, .cache) are none of ours. */
static proa_status folders_in(names *out, const char *path, proa_err *err)
{
    *out = (names){0};
    DIR *d = opendir(path);
    if (!d) return PROA_FAIL(err, INTERNAL, "cannot read folder '%s': %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(d)) && out->count < PROA_MODELS_MAX;) {
        if (e->d_name[0] == '.' || (e->d_type != DT_DIR && !is_folder(path, e->d_name))) continue;
        if (out->count == out->cap) {
            out->cap = out->cap ? 2 * out->cap : 16;
            out->name = proa_realloc(out->name, (size_t)out->cap * sizeof *out->name);
        }
        out->name[out->count++] = proa_strdup(e->d_name);
    }
    closedir(d);
    if (out->count) qsort(out->name, (size_t)out->count, sizeof *out->name, by_name);
    return PROA_OK;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PROA_PATH_MAX];
    return proa_path_join(path, folder, name, NULL) == PROA_OK && proa_file_exists(path);
}

/* A folder that is a model itself, or one with config.pbtxt. */
static bool is_model_folder(const char *path)
{
    return has_file(path, "config.pbtxt") || proa_config_is_model_folder(path);
}

static bool has_versions(const char *path)
{
    names n;
    bool found = false;
    int64_t version;
    if (folders_in(&n, path, NULL) != PROA_OK) return false;
    for (int i = 0; i < n.count && !found; i++) found = proa_config_version_folder(n.name[i], &version);
    names_release(&n);
    return found;
}

/* ---- roots ---- */

/* NAME of ".../models--ORG--NAME/snapshots/COMMIT", as Hugging Face's cache has it; NULL for other paths. */
static const char *snapshot_name(const char *path, proa_arena *arena)
{
    const char *snapshots = strstr(path, "/snapshots/"), *name = NULL;
    if (!snapshots || strchr(snapshots + strlen("/snapshots/"), '/')) return NULL;
    for (const char *c = path; c + 2 < snapshots; c++)
        if (*c == '/') name = NULL;
        else if (c[0] == '-' && c[1] == '-') name = c + 2;
    return name ? proa_arena_strdup(arena, (proa_str){name, (size_t)(snapshots - name)}) : NULL;
}

/* A model's folder is named as the model; a file NAME.gguf is the model NAME. */
static const char *single_name(const char *path, proa_arena *arena)
{
    const char *slash = strrchr(path, '/'), *snapshot = snapshot_name(path, arena);
    if (!is_model_folder(path) || !slash || !slash[1]) return NULL;
    if (snapshot) return snapshot;
    if (!proa_config_is_gguf_file(path)) return slash + 1;
    return proa_arena_strdup(arena, (proa_str){slash + 1, strlen(slash + 1) - strlen(".gguf")});
}

static proa_status open_remote(proa_root *root, proa_server *s, const char *address, proa_err *err)
{
    const proa_remote_ops *ops = s->options.remote;
    PROA_TRY(ops->open(&root->remote, address, s->options.remote_arg, err));
    root->path = ops->folder(root->remote), root->single = ops->single(root->remote);
    return PROA_OK;
}

void proa_roots_close(proa_server *s)
{
    for (int i = 0; i < s->roots_count; i++)
        if (s->roots[i].remote) s->options.remote->close(s->roots[i].remote);
    s->roots_count = 0;
}

proa_status proa_roots_list(proa_server *s, proa_err *err)
{
    for (int i = 0; i < s->roots_count; i++)
        if (s->roots[i].remote) PROA_TRY(s->options.remote->list(s->roots[i].remote, err));
    return PROA_OK;
}

proa_status proa_roots_fetch(proa_server *s, const char *name, bool relist, proa_err *err)
{
    if (proa_name_check(name, NULL) != PROA_OK) return PROA_OK; /* proa_folder_find knows none of that name */
    for (int i = 0; i < s->roots_count; i++)
        if (s->roots[i].remote) PROA_TRY(s->options.remote->fetch(s->roots[i].remote, name, relist, err));
    return PROA_OK;
}

static proa_status root_open(proa_root *root, proa_arena *arena, const char *given, proa_err *err)
{
    char *path = realpath(given, NULL);
    if (!path || (!proa_dir_exists(path) && !proa_config_is_gguf_file(path))) {
        free(path);
        return PROA_FAIL(err, INVALID, "repository path is not a valid directory: '%s'", given);
    }
    root->path = proa_arena_strdup(arena, proa_str_c(path));
    free(path);
    root->single = single_name(root->path, arena);
    return PROA_OK;
}

proa_status proa_roots_open(proa_server *s, proa_err *err)
{
    const proa_server_options *o = &s->options;
    s->roots = PROA_ARENA_NEW(&s->arena, proa_root, o->repositories_count);
    for (int i = 0; i < o->repositories_count; i++) {
        proa_root *root = &s->roots[s->roots_count];
        bool remote = o->remote && o->remote->is_address(o->repositories[i]);
        if (remote) PROA_TRY(open_remote(root, s, o->repositories[i], err));
        else PROA_TRY(root_open(root, &s->arena, o->repositories[i], err));
        s->roots_count++;
    }
    return PROA_OK;
}

proa_status proa_folders_each(const proa_server *s, proa_folder_fn *fn, void *arg, proa_err *err)
{
    proa_status status = PROA_OK;
    bool more = true;
    for (int i = 0; i < s->roots_count && more; i++) {
        const proa_root *root = &s->roots[i];
        char path[PROA_PATH_MAX];
        names n = {0};
        if (root->single && !root->remote) {
            more = fn(arg, root->single, root->path);
            continue;
        }
        proa_status one = folders_in(&n, root->path, err);
        if (one != PROA_OK) status = one;
        for (int k = 0; k < n.count && more; k++)
            if (proa_path_join(path, root->path, n.name[k], NULL) == PROA_OK) more = fn(arg, n.name[k], path);
        names_release(&n);
    }
    return status;
}

int proa_folder_find(const proa_server *s, const char *name, char **path)
{
    int count = 0;
    *path = NULL;
    if (proa_name_check(name, NULL) != PROA_OK) return 0;
    for (int i = 0; i < s->roots_count; i++) {
        const proa_root *root = &s->roots[i];
        char full[PROA_PATH_MAX];
        if (root->single && !root->remote) {
            if (strcmp(root->single, name) != 0) continue;
            snprintf(full, sizeof full, "%s", root->path);
        } else if (proa_path_join(full, root->path, name, NULL) != PROA_OK || !proa_dir_exists(full)) {
            continue;
        }
        /* a remote model's folder is a link that a later fetch replaces; what serves keeps the folder behind it */
        if (count++ == 0) *path = root->remote ? realpath(full, NULL) : proa_strdup(full);
    }
    return count;
}

/* ---- the print of a folder: a sum, so that the order of its files does not matter ---- */

static uint64_t mix_hash(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

static uint64_t add_folder_fingerprint(const char *path, int depth);

static uint64_t path_fingerprint(const char *path, const char *name, int depth)
{
    struct stat st;
    if (stat(path, &st) != 0) return 1;
    uint64_t h = mix_hash(proa_str_hash(proa_str_c(name)), (uint64_t)st.st_mtim.tv_sec);
    h = mix_hash(h, (uint64_t)st.st_mtim.tv_nsec);
    h = mix_hash(h, S_ISDIR(st.st_mode) ? 0 : (uint64_t)st.st_size);
    if (S_ISDIR(st.st_mode) && depth < FOLDER_DEPTH_MAX)
        h = mix_hash(h, add_folder_fingerprint(path, depth + 1));
    return h;
}

static uint64_t add_file_fingerprint(const char *folder, const char *name, int depth)
{
    char path[PROA_PATH_MAX];
    if (proa_path_join(path, folder, name, NULL) != PROA_OK) return 1;
    return path_fingerprint(path, name, depth);
}

static uint64_t add_folder_fingerprint(const char *path, int depth)
{
    uint64_t sum = 0;
    DIR *d = opendir(path);
    if (!d) return path_fingerprint(path, path, FOLDER_DEPTH_MAX); /* a file that is a model */
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            sum += add_file_fingerprint(path, e->d_name, depth);
    closedir(d);
    return sum;
}

uint64_t proa_folder_fingerprint(const char *path)
{
    return add_folder_fingerprint(path, 0);
}

/* ---- sources ---- */

proa_source *proa_source_hold(proa_source *source)
{
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

void proa_source_drop(proa_source *source)
{
    if (!source || atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) != 1) return;
    proa_agents_end(source);
    if (source->temporary) proa_dir_remove(source->temporary);
    proa_arena_release(&source->arena);
    free(source);
}

bool proa_source_is_ensemble(const proa_source *source)
{
    return source->config->scheduling_choice_case ==
           INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

proa_config_options proa_server_config_options(const proa_server *s)
{
    return (proa_config_options){.config_name = s->options.config_name,
                                 .fills = s->options.fills,
                                 .fills_count = s->options.fills_count,
                                 .no_auto_complete = s->options.no_auto_complete,
                                 .external_paths = s->options.allow_external_paths,
                                 .gpus = -1};
}

static proa_source *source_alloc(const char *name, const char *path)
{
    proa_source *source = proa_calloc(1, sizeof *source);
    atomic_init(&source->refs, 1);
    proa_arena_init(&source->arena);
    source->name = proa_arena_strdup(&source->arena, proa_str_c(name));
    source->path = proa_arena_strdup(&source->arena, proa_str_c(path));
    return source;
}

static proa_status source_read(proa_source **out, proa_source *source, const proa_server *s,
                               const char *config_json, proa_err *err)
{
    proa_config_options options = proa_server_config_options(s);
    source->is_version_folder = proa_config_is_model_folder(source->path) && !has_versions(source->path);
    source->overridden = config_json != NULL;
    const proa_config_place place = {source->name, source->path, config_json};
    proa_status status = proa_config_load(&source->config, &source->provided, &place, &options,
                                          &source->arena, err);
    if (status != PROA_OK) proa_source_drop(source);
    else *out = source;
    return status;
}

proa_status proa_source_new(proa_source **out, const proa_server *s, const char *name, const char *path,
                            const char *config_json, proa_err *err)
{
    proa_source *source = source_alloc(name, path);
    source->fingerprint = proa_folder_fingerprint(
        path); /* before the files are read: what changes from here on is seen later */
    return source_read(out, source, s, config_json, err);
}

bool proa_source_needs(const proa_source *source, const char *name)
{
    if (!proa_source_is_ensemble(source)) return false;
    const Inference__ModelEnsembling *e = source->config->ensemble_scheduling;
    for (size_t i = 0; i < e->n_step; i++)
        if (strcmp(e->step[i]->model_name, name) == 0) return true;
    return false;
}

static bool same_config(const proa_source *a, const proa_source *b)
{
    proa_buf x, y;
    proa_buf_init(&x, PROA_PBTXT_BYTES_MAX);
    proa_buf_init(&y, PROA_PBTXT_BYTES_MAX);
    bool same = proa_message_pack(&x, &a->config->base) && proa_message_pack(&y, &b->config->base) &&
                proa_str_eq(proa_buf_view(&x), proa_buf_view(&y));
    proa_buf_release(&x);
    proa_buf_release(&y);
    return same;
}

/* Fingerprint of the files that a version depends on besides its configuration: its own folder, and all that is in no
 * version folder. */
static uint64_t version_fingerprint(const proa_source *source, int64_t wanted)
{
    uint64_t sum = 0;
    DIR *d = opendir(source->path);
    if (!d) return path_fingerprint(source->path, source->name, FOLDER_DEPTH_MAX);
    for (struct dirent *e; (e = readdir(d));) {
        int64_t version = -1;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (strcmp(e->d_name, "config.pbtxt") == 0 || strcmp(e->d_name, "configs") == 0) continue;
        if (proa_config_version_folder(e->d_name, &version) && version != wanted) continue;
        sum += add_file_fingerprint(source->path, e->d_name, 0);
    }
    closedir(d);
    return sum;
}

uint64_t proa_source_version_fingerprint(const proa_source *source, int64_t version)
{
    return source->is_version_folder ? proa_folder_fingerprint(source->path)
                                     : version_fingerprint(source, version);
}

bool proa_source_same(const proa_source *a, const proa_source *b)
{
    return !proa_source_is_ensemble(a) && strcmp(a->path, b->path) == 0 &&
           a->is_version_folder == b->is_version_folder && same_config(a, b);
}

/* ---- files that come with a load ---- */

static bool path_is_inside(const char *path)
{
    if (!*path || path[0] == '/') return false;
    for (const char *p = path; *p; p += strcspn(p, "/"), p += *p == '/') {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.')) return false;
    }
    return path[strlen(path) - 1] != '/';
}

static void make_parents(char *path, size_t from)
{
    for (char *slash = strchr(path + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700); /* a failure shows when the file below is opened */
        *slash = '/';
    }
}

static proa_status write_all(int fd, proa_str bytes)
{
    while (bytes.len) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return PROA_IO;
        bytes.ptr += n;
        bytes.len -= (size_t)n;
    }
    return PROA_OK;
}

static proa_status write_file(const char *folder, const proa_model_file *file, proa_err *err)
{
    char name[PROA_PATH_MAX], path[PROA_PATH_MAX];
    proa_str given = file->path, prefix = proa_str_c("file:");
    if (proa_str_starts(given, prefix)) given = (proa_str){given.ptr + prefix.len, given.len - prefix.len};
    if (given.len >= sizeof name || memchr(given.ptr, 0, given.len))
        return PROA_FAIL(err, INVALID, "the path of an override file is not valid");
    snprintf(name, sizeof name, "%.*s", (int)given.len, given.ptr);
    if (!path_is_inside(name))
        return PROA_FAIL(err, INVALID, "the path of override file '%s' leaves the model's folder", name);
    PROA_TRY(proa_path_join(path, folder, name, err));
    make_parents(path, strlen(folder) + 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return PROA_FAIL(err, INTERNAL, "cannot write override file '%s': %s", name, strerror(errno));
    proa_status status = write_all(fd, file->bytes);
    close(fd);
    return status == PROA_OK
               ? PROA_OK
               : PROA_FAIL(err, INTERNAL, "cannot write override file '%s': %s", name, strerror(errno));
}

proa_status proa_source_from_files(proa_source **out, const proa_server *s, const char *name,
                                   const proa_load_override *load, proa_err *err)
{
    const char *tmp = getenv("TMPDIR");
    char folder[PROA_PATH_MAX];
    if (!load->config_json) return PROA_FAIL(err, INVALID, "override files need a 'config' parameter");
    snprintf(folder, sizeof folder, "%s/proa-model-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return PROA_FAIL(err, INTERNAL, "cannot make a folder for override files: %s", strerror(errno));
    proa_source *source = source_alloc(name, folder);
    source->temporary = source->path;
    for (int i = 0; i < load->files_count; i++) {
        proa_status status = write_file(folder, &load->files[i], err);
        if (status != PROA_OK) {
            proa_source_drop(source);
            return status;
        }
    }
    return source_read(out, source, s, load->config_json, err);
}

/* ---- versions ---- */

static bool policy_wants(const Inference__ModelVersionPolicy *policy, int64_t version)
{
    if (!policy || policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC)
        return true;
    for (size_t i = 0; i < policy->specific->n_versions; i++)
        if (policy->specific->versions[i] == version) return true;
    return false;
}

/* How many of the newest; INT_MAX: all. */
static int policy_latest(const Inference__ModelVersionPolicy *policy)
{
    if (!policy || policy->policy_choice_case == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE__NOT_SET)
        return 1;
    if (policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST) return INT32_MAX;
    return policy->latest->num_versions > INT32_MAX ? INT32_MAX : (int)policy->latest->num_versions;
}

static int by_version(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void warn_missing(const proa_source *source, const int64_t *have, int count)
{
    const Inference__ModelVersionPolicy *policy = source->config->version_policy;
    if (!policy || policy->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC)
        return;
    for (size_t i = 0; i < policy->specific->n_versions; i++) {
        int64_t want = policy->specific->versions[i];
        if (!bsearch(&want, have, (size_t)count, sizeof *have, by_version))
            PROA_LOG(ERROR, "version %lld is specified for model '%s', but the version directory is not present",
                     (long long)want, source->name);
    }
}

proa_status proa_source_versions(const proa_source *source, int64_t **versions, int *count, proa_err *err)
{
    names n = {0};
    if (!source->is_version_folder) PROA_TRY(folders_in(&n, source->path, err));
    int64_t *list = proa_malloc(((size_t)n.count + 1) * sizeof *list);
    int have = 0;
    if (source->is_version_folder && policy_wants(source->config->version_policy, 1)) list[have++] = 1;
    for (int i = 0; i < n.count; i++) {
        int64_t v;
        if (proa_config_version_folder(n.name[i], &v) && policy_wants(source->config->version_policy, v))
            list[have++] = v;
    }
    names_release(&n);
    if (have) qsort(list, (size_t)have, sizeof *list, by_version);
    warn_missing(source, list, have);
    int keep = policy_latest(source->config->version_policy);
    if (have > keep) {
        memmove(list, list + (have - keep), (size_t)keep * sizeof *list);
        have = keep;
    }
    *versions = list;
    *count = have;
    if (have) return PROA_OK;
    free(list);
    *versions = NULL;
    return PROA_FAIL(err, INVALID,
                     "at least one version must be available under the version policy of model '%s'",
                     source->name);
}

proa_status proa_source_version_path(const proa_source *source, int64_t version, char *out, proa_err *err)
{
    char name[24];
    if (source->is_version_folder) {
        snprintf(out, PROA_PATH_MAX, "%s", source->path);
        return PROA_OK;
    }
    snprintf(name, sizeof name, "%lld", (long long)version);
    return proa_path_join(out, source->path, name, err);
}
