/* SPDX-License-Identifier: Apache-2.0
 * files.h - the files of web/ as arrays, which cmake/console.cmake makes.
 * Threads: constants. */
#ifndef PROA_API_CONSOLE_FILES_H
#define PROA_API_CONSOLE_FILES_H

#include <stddef.h>

typedef struct proa_console_file {
    const char *name; /* "index.html", which is served at /; the others are at /console/NAME */
    const unsigned char *bytes;
    size_t len;
} proa_console_file;

extern const proa_console_file proa_console_files[];
extern const int proa_console_files_count;

#endif
