/* SPDX-License-Identifier: Apache-2.0
 * triton.h - libraries that were compiled as backends of Triton.
 * Way in:  proa_triton_open, called when such a library is loaded. */
#ifndef PROA_BACKENDS_TRITON_TRITON_H
#define PROA_BACKENDS_TRITON_TRITON_H

#include "backends/library/elf.h"
#include "backends/library/library.h"
#include "serve/server.h"

#define PROA_TRITON_ENTRY "TRITONBACKEND_ModelInstanceExecute" /* what such a library must export */

/* For the server's option find_agent (serve/server.h): DIRECTORY/NAME/libtritonrepoagent_NAME.so, which is loaded once
 * and stays. INVALID if the file is none, or its initialisation fails. Any thread. */
PROA_MUST_CHECK proa_status proa_triton_find_agent(const proa_repository_agent **out, const char *directory,
                                                   const char *name, proa_err *err);

/* Before the file is loaded: INVALID naming all functions of Triton that it imports and that Proa does not have;
 * and makes the library named libtritonserver.so, which it needs, known to the loader. */
PROA_MUST_CHECK proa_status proa_triton_prepare(const proa_elf *elf, const char *path, proa_err *err);
/* Fills library->backend of a loaded library. */
PROA_MUST_CHECK proa_status proa_triton_open(proa_library *library, proa_err *err);

/* The page of another process, on which the metrics of this process's backends are shown. members: those of a JSON
 * object, as the calls "family" and "metric" of src/process have them. Any thread. */
typedef struct proa_triton_mirror {
    int64_t (*create)(const char *kind, const proa_buf *members); /* the number that it has there; -1: none */
    void (*post)(const char *kind, const proa_buf *members); /* "metric_do", "metric_free", "family_free" */
} proa_triton_mirror;
/* Before a backend runs. */
void proa_triton_metrics_mirror(const proa_triton_mirror *mirror);

#endif
