/* SPDX-License-Identifier: Apache-2.0
 * host.h - the handle of a model that a library gets, and the host's functions that are about it (declared.c). The
 *          other functions of the host are in table.c.
 * Owner:   the handle, and the arena of what its functions return, are released when the model closes. */
#ifndef PROA_BACKENDS_LIBRARY_HOST_H
#define PROA_BACKENDS_LIBRARY_HOST_H

#include "base/arena.h"
#include "proa/backend.h"
#include "serve/backend.h"

enum { PROA_HOST_IO_KINDS = PROA_BACKEND_IO_NEXT_STATE + 1 };

struct proa_backend_model {
    proa_served_model *served;
    const proa_backend_table *table;
    void *state;     /* the library's */
    proa_buf config; /* as JSON */
    proa_arena arena;
    proa_backend_io *ios[PROA_HOST_IO_KINDS]; /* by kind */
    int32_t counts[PROA_HOST_IO_KINDS];
};

/* Fills the lists of tensors of a handle that is zeroed but for `served`. */
void proa_host_model_init(proa_backend_model *m);
void proa_host_model_release(proa_backend_model *m);

const proa_backend_io *proa_host_model_io(const proa_backend_model *m, proa_backend_io_kind kind, int32_t index);
int64_t proa_host_model_max_batch(const proa_backend_model *m);
const char *proa_host_model_file(const proa_backend_model *m);
const char *proa_host_model_platform(const proa_backend_model *m);
void proa_host_model_takes_device_inputs(proa_backend_model *m);

/* The server's description of a library's device memory, made once for each; INVALID if it lacks its function. */
PROA_MUST_CHECK proa_status proa_library_memory(const proa_device_memory **out,
                                                const proa_backend_memory *memory, proa_err *err);

#endif
