/* SPDX-License-Identifier: Apache-2.0
 * stub.h - the Python files that run inside a model's process, as bytes of the program (cmake/python.cmake).
 * Owner:   static.
 * Threads: read only. */
#ifndef PROA_PYTHON_STUB_H
#define PROA_PYTHON_STUB_H

#include <stddef.h>

typedef struct proa_python_file {
    const char *name;           /* "triton_python_backend_utils.py" */
    const unsigned char *bytes; /* not terminated */
    size_t len;
} proa_python_file;

/* The files of src/python/stub/, by name; the last entry has no name. */
extern const proa_python_file proa_python_files[];

#endif
