/* SPDX-License-Identifier: Apache-2.0
 * soname.c - empty shared libraries named libtritonserver.so. Backends of Triton name it as one that they need; the
 * functions themselves are the program's. The loader takes a library that is loaded already for one that is needed
 * if its DT_SONAME is the same, so an image in memory is enough and no file has to be installed. */
#include "backends/triton/abi.h"

#include "backends/library/elf.h"
#include "base/alloc.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SONAME_PREFIX    "libtritonserver"
#define SONAME_MAX       127     /* bytes, with the NUL: "libtritonserver-717102f0.so" */
#define LARGEST_PAGE     0x10000 /* bytes: 64 KiB on some ARM kernels */
#define IMAGE_AT(member) offsetof(image, member)

/* One segment holds all: the headers, a hash table of one empty chain, the null symbol, and the name. */
typedef struct image {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    Elf64_Dyn dynamic[7];
    Elf64_Sym symbols[1];
    uint32_t hash[4]; /* buckets, chains, bucket 0, chain 0 */
    char names[1 + SONAME_MAX];
} image;

static void fill_image(image *m, const char *soname)
{
    *m = (image){
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                   .e_type = ET_DYN,
                   .e_machine = PROA_ELF_MACHINE,
                   .e_version = EV_CURRENT,
                   .e_phoff = IMAGE_AT(segments),
                   .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = 3},
        .segments = {{.p_type = PT_LOAD,
                      .p_flags = PF_R | PF_W,
                      .p_filesz = sizeof *m,
                      .p_memsz = sizeof *m,
                      .p_align = LARGEST_PAGE},
                     {.p_type = PT_DYNAMIC,
                      .p_flags = PF_R | PF_W,
                      .p_offset = IMAGE_AT(dynamic),
                      .p_vaddr = IMAGE_AT(dynamic),
                      .p_paddr = IMAGE_AT(dynamic),
                      .p_filesz = sizeof m->dynamic,
                      .p_memsz = sizeof m->dynamic,
                      .p_align = 8},
                     {.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16}}, /* or stacks are executable */
        .dynamic = {{DT_SONAME, {1}},
                    {DT_HASH, {IMAGE_AT(hash)}},
                    {DT_SYMTAB, {IMAGE_AT(symbols)}},
                    {DT_STRTAB, {IMAGE_AT(names)}},
                    {DT_STRSZ, {sizeof m->names}},
                    {DT_SYMENT, {sizeof(Elf64_Sym)}},
                    {DT_NULL, {0}}},
        .hash = {1, 1, 0, 0},
    };
    memcpy(m->names + 1, soname, strlen(soname) + 1); /* the first name is the empty one */
}

static proa_status load_image(const char *soname, proa_err *err)
{
    image m;
    char path[64];
    int file = memfd_create("libtritonserver.so", MFD_CLOEXEC);
    if (file < 0) return PROA_FAIL(err, INTERNAL, "cannot make libtritonserver.so: %s", strerror(errno));
    fill_image(&m, soname);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    proa_status status = PROA_OK;
    if (write(file, &m, sizeof m) != (ssize_t)sizeof m)
        status = PROA_FAIL(err, INTERNAL, "cannot make libtritonserver.so: %s", strerror(errno));
    else if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
        status = PROA_FAIL(err, INTERNAL, "cannot load libtritonserver.so: %s", dlerror());
    close(file);
    return status;
}

/* Once for a name. Libraries are loaded under one lock. */
static proa_status provide_soname(const char *soname, proa_err *err)
{
    typedef struct provided {
        struct provided *next;
        char name[SONAME_MAX];
    } provided;
    static provided *all;
    for (const provided *p = all; p; p = p->next)
        if (strcmp(p->name, soname) == 0) return PROA_OK;
    PROA_TRY(load_image(soname, err));
    provided *p = proa_malloc(sizeof *p);
    memcpy(p->name, soname, strlen(soname) + 1);
    p->next = all;
    all = p;
    return PROA_OK;
}

/* Wheels rename the library: "libtritonserver-717102f0.so". */
proa_status proa_triton_provide_sonames(const proa_elf *elf, proa_err *err)
{
    const char *name;
    for (size_t at = 0; (name = proa_elf_next_needed(elf, &at)) != NULL;)
        if (strncmp(name, SONAME_PREFIX, strlen(SONAME_PREFIX)) == 0 && strlen(name) < SONAME_MAX)
            PROA_TRY(provide_soname(name, err));
    return PROA_OK;
}
