/* SPDX-License-Identifier: Apache-2.0
 * elf.h - what can be said of a shared library before it is loaded: its machine, and the symbols that it imports.
 *         dlopen names only the first symbol that is missing, and runs code of the file before anything can be checked.
 * Owner:   the file is mapped until proa_elf_close.
 * Threads: none of its own. */
#ifndef PROA_BACKENDS_LIBRARY_ELF_H
#define PROA_BACKENDS_LIBRARY_ELF_H

#include "base/file.h"
#include <elf.h>

#if defined(__x86_64__)
#define PROA_ELF_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define PROA_ELF_MACHINE EM_AARCH64
#else
#define PROA_ELF_MACHINE EM_NONE
#endif

typedef struct proa_elf {
    proa_mmap map;
    const Elf64_Sym *symbols; /* of .dynsym, unaligned */
    size_t symbols_count;
    const char *names; /* of .dynstr */
    size_t names_bytes;
    const Elf64_Dyn *dynamic; /* of .dynamic, unaligned; NULL: none */
    size_t dynamic_count;
} proa_elf;

/* INVALID if it is not a shared library for this kind of machine, or its tables leave the file. */
PROA_MUST_CHECK proa_status proa_elf_open(proa_elf *elf, const char *path, proa_err *err);
void proa_elf_close(proa_elf *elf);
/* The next symbol that must be defined elsewhere (weak ones need not be): *at walks from 0. NULL: no more. */
const char *proa_elf_next_import(const proa_elf *elf, size_t *at);
/* The next library that it names as needed, by its soname: *at walks from 0. NULL: no more. */
const char *proa_elf_next_needed(const proa_elf *elf, size_t *at);
/* Does it define this symbol for others? */
bool proa_elf_exports(const proa_elf *elf, const char *name);

#endif
