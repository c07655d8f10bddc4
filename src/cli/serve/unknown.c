/* SPDX-License-Identifier: Apache-2.0
 * unknown.c - warnings about unknown names of backends and of their settings on the command line. Not errors: a library
 * may be put into --backend-directory while the server runs, and command lines of tritonserver name backends that are
 * not here. */
#include "cli/serve/options.h"

#include "backends/backends.h"
#include "backends/library/library.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include <dirent.h>
#include <string.h>

enum { KNOWN_MAX = 128 };

typedef struct known_names {
    proa_arena *arena;
    const char *list[KNOWN_MAX];
    size_t count;
} known_names;

static void add_known(known_names *k, const char *name)
{
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->list[i], name) == 0) return;
    if (k->count < KNOWN_MAX) k->list[k->count++] = proa_arena_strdup(k->arena, proa_str_c(name));
}

/* Each subfolder of --backend-directory counts as a backend name, whether or not it holds a library. */
static void add_folders(known_names *k, const char *directory)
{
    char path[PROA_PATH_MAX];
    DIR *d = directory ? opendir(directory) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) // NOLINT(concurrency-mt-unsafe): each DIR has one thread
        if (e->d_name[0] != '.' && proa_path_join(path, directory, e->d_name, NULL) == PROA_OK &&
            proa_dir_exists(path))
            add_known(k, e->d_name);
    if (d) closedir(d);
}

static const char *join_names(const known_names *k)
{
    const char *text = "";
    for (size_t i = 0; i < k->count; i++)
        text = proa_arena_printf(k->arena, "%s%s%s", text, i ? ", " : "", k->list[i]);
    return text;
}

static void warn_name(const known_names *k, const char *option, const char *name)
{
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->list[i], name) == 0) return;
    const char *near = proa_args_nearest(name, k->list, k->count);
    if (near)
        PROA_LOG(WARNING, "--%s '%s' has no effect: there is no such backend (did you mean '%s'?)", option,
                 name, near);
    else
        PROA_LOG(WARNING, "--%s '%s' has no effect: there is no such backend, but %s", option, name,
                 join_names(k));
}

/* Warns of a setting that its backend does not have, once for each name. */
static void warn_setting(proa_arena *arena, const proa_setting *settings, int at)
{
    const char *backend = settings[at].backend, *key = settings[at].key;
    const char *const *names = proa_backend_setting_names(backend);
    known_names k = {.arena = arena};
    if (!names) return;
    for (int i = 0; i < at; i++)
        if (strcmp(settings[i].backend, backend) == 0 && strcmp(settings[i].key, key) == 0) return;
    for (; *names; names++) {
        if (strcmp(*names, key) == 0) return;
        add_known(&k, *names);
    }
    const char *near = proa_args_nearest(key, k.list, k.count);
    PROA_LOG(WARNING, "--backend-config %s,%s has no effect: the backend has no such setting%s%s%s", backend,
             key, near ? " (did you mean '" : ", but ", near ? near : join_names(&k), near ? "'?)" : "");
}

void proa_serve_warn_unknown(proa_serve_plan *plan, const proa_serve_options *o)
{
    const proa_server_options *s = &plan->server;
    known_names k = {.arena = &plan->arena};
    for (const proa_backend *const *b = proa_backends; *b; b++) add_known(&k, (*b)->name);
    for (int i = 0; proa_library_plugin_name(i); i++) add_known(&k, proa_library_plugin_name(i));
    add_folders(&k, s->backend_directory);
    if (s->backend_directory && !proa_dir_exists(s->backend_directory))
        PROA_LOG(WARNING, "--backend-directory '%s' has no effect: it is no folder", s->backend_directory);
    for (int i = 0; i < o->isolate.count; i++) warn_name(&k, "isolate", o->isolate.items[i]);
    for (int i = 0; i < o->in_process.count; i++)
        if (strcmp(o->in_process.items[i], "all") != 0) warn_name(&k, "in-process", o->in_process.items[i]);
    for (int i = 0; i < s->settings_count; i++) {
        if (*s->settings[i].backend) warn_name(&k, "backend-config", s->settings[i].backend);
        warn_setting(&plan->arena, s->settings, i);
    }
}
