/* SPDX-License-Identifier: Apache-2.0
 * library.h - backends that are shared libraries of --backend-directory.
 * Owner:   a library that was loaded stays until the program ends; its table is static from then on.
 * Threads: proa_library_find from any thread; a library is loaded by one.
 * Way in:  proa_library_find, given to proa_server_new as `find_backend`. */
#ifndef PROA_BACKENDS_LIBRARY_LIBRARY_H
#define PROA_BACKENDS_LIBRARY_LIBRARY_H

#include "proa/backend.h"
#include "serve/backend.h"

/* One loaded library. `backend` is what models refer to: a served model finds its library by it. */
typedef struct proa_library {
    proa_backend backend;                 /* the first member: proa_library_of */
    const char *name;                     /* of the backend */
    const char *path;                     /* of the file */
    const char *folder;                   /* of the file */
    const char *directory;                /* --backend-directory, in which folder is */
    void *handle;                         /* of dlopen */
    const proa_backend_table *table;      /* of a library with Proa's interface (table.c); else NULL */
    struct TRITONBACKEND_Backend *triton; /* of a library with Triton's (../triton); else NULL */
    struct proa_library *next;
} proa_library;

/* The backend `name` of a directory: DIRECTORY/NAME/libproa_NAME.so, or libtriton_NAME.so; else a plug-in. `directory`
 * may be NULL. `runtime`: the name of the file in that folder, "" for these. *out is NULL if there is no such file.
 * INVALID if the file is not a shared library for this machine, lacks an export, or has another version; the text
 * names it. */
PROA_MUST_CHECK proa_status proa_library_find(const proa_backend **out, const char *directory,
                                              const char *name, const char *runtime, proa_err *err);

/* Where that file is, in path[PROA_PATH_MAX]; "" if there is none. */
PROA_MUST_CHECK proa_status proa_library_locate(char *path, const char *directory, const char *name,
                                                const char *runtime, proa_err *err);
/* plugins.c: the file of a plug-in of Proa, in the directory (or NULL) or beside the program, in path[PROA_PATH_MAX];
 * "" if no plug-in has this backend. UNAVAILABLE if its file is nowhere. */
PROA_MUST_CHECK proa_status proa_library_plugin(char *path, const char *directory, const char *backend,
                                                proa_err *err);

const char *proa_library_plugin_name(int i); /* the backend of plug-in i; NULL: there is none */

/* The library of a model whose backend is one. */
static inline const proa_library *proa_library_of(const proa_served_model *model)
{
    return (const proa_library *)(const void *)proa_served_model_backend(model);
}

/* table.c: asks the entry point of a library with Proa's interface for its table and fills library->backend. */
PROA_MUST_CHECK proa_status proa_library_open_table(proa_library *library, proa_err *err);

#endif
