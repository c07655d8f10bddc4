/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a shared library of a backend, before it is loaded. It is refused with a text, or each of its names is
 * inside the file. */
#include "backends/library/elf.h"
#include "base/alloc.h"
#include "files.h"

static const char *const names[] = {"library.so"};
static const fuzz_files files = {names, 1};

static void check_name(const proa_elf *elf, const char *name)
{
    const char *begin = (const char *)elf->map.ptr, *end = begin + elf->map.bytes;
    PROA_ASSERT(name >= begin && name < end && memchr(name, 0, (size_t)(end - name)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_elf elf;
    proa_err err = {.status = PROA_OK};
    char path[PROA_PATH_MAX];
    PROA_ASSERT(proa_path_join(path, files_begin(), "library.so", NULL) == PROA_OK);
    files_write_one(&files, proa_str_c("library.so"), (proa_str){(const char *)data, size});
    if (proa_elf_open(&elf, path, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        return 0;
    }
    const char *name;
    for (size_t at = 0; (name = proa_elf_next_import(&elf, &at));) check_name(&elf, name);
    for (size_t at = 0; (name = proa_elf_next_needed(&elf, &at));) check_name(&elf, name);
    (void)proa_elf_exports(&elf, "TRITONBACKEND_Initialize");
    proa_elf_close(&elf);
    return 0;
}
