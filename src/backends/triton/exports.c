/* SPDX-License-Identifier: Apache-2.0
 * exports.c - the list of the functions that backends of Triton can import. Being in this table also keeps them in the
 * program, which is linked of a static library. */
#include "backends/library/elf.h"
#include "backends/triton/abi.h"
#include <string.h>

typedef void any_function(void);
typedef struct export_row {
    const char *name;
    any_function *function;
} export_row;

static const export_row rows[] = {
#define X(result, name, parameters) {#name, (any_function *)name},
#include "backends/triton/exports.def"
#undef X
};

static bool is_offered(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(rows); i++)
        if (rows[i].function && strcmp(rows[i].name, name) == 0) return true;
    return false;
}

proa_status proa_triton_check_imports(const proa_elf *elf, const char *path, proa_err *err)
{
    proa_buf missing;
    const char *name;
    proa_buf_init(&missing, (size_t)64 << 10);
    for (size_t at = 0; (name = proa_elf_next_import(elf, &at)) != NULL;) {
        if (strncmp(name, "TRITON", strlen("TRITON")) != 0 || is_offered(name)) continue;
        if (missing.len) proa_buf_str(&missing, proa_str_c(", "));
        proa_buf_str(&missing, proa_str_c(name));
    }
    proa_status status = PROA_OK;
    if (missing.len)
        status = PROA_FAIL(err, INVALID, "'%s' needs functions of Triton that Proa does not have: %s", path,
                           missing.ptr);
    proa_buf_release(&missing);
    return status;
}
