/* SPDX-License-Identifier: Apache-2.0
 * soname.c - an empty shared library named libtritonserver.so. Backends of Triton name it as one that they need; the
 * functions themselves are the program's. The loader takes a library that is loaded already for one that is needed
 * if its DT_SONAME is the same, so an image in memory is enough and no file has to be installed. */
#include "backends/triton/abi.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

#define IMAGE_AT(member) offsetof(image, member)

/* One segment holds all: the headers, a hash table of one empty chain, the null symbol, and the name. */
typedef struct image {
    Elf64_Ehdr header;
    Elf64_Phdr segments[3];
    Elf64_Dyn dynamic[7];
    Elf64_Sym symbols[1];
    uint32_t hash[4]; /* buckets, chains, bucket 0, chain 0 */
    char names[32];
} image;

static void fill_image(image *m)
{
    *m = (image){
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                   .e_type = ET_DYN,
                   .e_machine = MACHINE,
                   .e_version = EV_CURRENT,
                   .e_phoff = IMAGE_AT(segments),
                   .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_phentsize = sizeof(Elf64_Phdr),
                   .e_phnum = 3},
        .segments = {{.p_type = PT_LOAD,
                      .p_flags = PF_R | PF_W,
                      .p_filesz = sizeof *m,
                      .p_memsz = sizeof *m,
                      .p_align = 0x10000},
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
        .names = "\0libtritonserver.so",
    };
}

static proa_status load_image(proa_err *err)
{
    image m;
    char path[64];
    int file = memfd_create("libtritonserver.so", MFD_CLOEXEC);
    if (file < 0) return PROA_FAIL(err, INTERNAL, "cannot make libtritonserver.so: %s", strerror(errno));
    fill_image(&m);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    proa_status status = PROA_OK;
    if (write(file, &m, sizeof m) != (ssize_t)sizeof m)
        status = PROA_FAIL(err, INTERNAL, "cannot make libtritonserver.so: %s", strerror(errno));
    else if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
        status = PROA_FAIL(err, INTERNAL, "cannot load libtritonserver.so: %s", dlerror());
    close(file);
    return status;
}

proa_status proa_triton_provide_soname(proa_err *err)
{
    static bool provided; /* libraries are loaded under one lock */
    if (provided) return PROA_OK;
    PROA_TRY(load_image(err));
    provided = true;
    return PROA_OK;
}
