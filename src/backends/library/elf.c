/* SPDX-License-Identifier: Apache-2.0
 * elf.c - reads the header and the table of dynamic symbols of a shared library (System V ABI, chapters 4 and 5). All
 * offsets are the file's own claims, and are checked against its size. */
#include "backends/library/elf.h"
#include <string.h>

static const char *machine_name(unsigned machine)
{
    switch (machine) {
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "AArch64";
    case EM_386: return "i386";
    case EM_ARM: return "ARM";
    case EM_PPC64: return "PowerPC64";
    case EM_RISCV: return "RISC-V";
    default: return "another machine";
    }
}

/* The bytes [offset, offset + bytes) of the file; NULL if they leave it. */
static const void *file_range(const proa_elf *elf, uint64_t offset, uint64_t bytes)
{
    uint64_t size = (uint64_t)elf->map.bytes;
    return offset <= size && bytes <= size - offset ? elf->map.ptr + offset : NULL;
}

static proa_status check_header(const proa_elf *elf, Elf64_Ehdr *h, const char *path, proa_err *err)
{
    const void *at = file_range(elf, 0, sizeof *h);
    if (!at || memcmp(at, ELFMAG, SELFMAG) != 0)
        return PROA_FAIL(err, INVALID, "'%s' is not a shared library", path);
    memcpy(h, at, sizeof *h);
    if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
        return PROA_FAIL(err, INVALID, "'%s' is not a 64-bit little-endian library", path);
    if (h->e_machine != PROA_ELF_MACHINE)
        return PROA_FAIL(err, INVALID, "'%s' was built for %s, this machine is %s", path,
                         machine_name(h->e_machine), machine_name(PROA_ELF_MACHINE));
    if (h->e_type != ET_DYN) return PROA_FAIL(err, INVALID, "'%s' is not a shared library", path);
    return PROA_OK;
}

static bool read_section(const proa_elf *elf, const Elf64_Ehdr *h, unsigned index, Elf64_Shdr *out)
{
    if (index >= h->e_shnum || h->e_shoff > INT64_MAX) return false;
    const void *at = file_range(elf, h->e_shoff + (uint64_t)index * sizeof *out, sizeof *out);
    if (at) memcpy(out, at, sizeof *out);
    return at != NULL;
}

/* The table of what the loader must do, which shares the names of the symbols. */
static proa_status read_dynamic(proa_elf *elf, const Elf64_Ehdr *h, const char *path, proa_err *err)
{
    Elf64_Shdr table;
    for (unsigned i = 0; i < h->e_shnum; i++) {
        if (!read_section(elf, h, i, &table) || table.sh_type != SHT_DYNAMIC) continue;
        if (!file_range(elf, table.sh_offset, table.sh_size))
            return PROA_FAIL(err, INVALID, "'%s' is cut: its dynamic section is beyond its end", path);
        elf->dynamic = (const Elf64_Dyn *)(const void *)(elf->map.ptr + table.sh_offset);
        elf->dynamic_count = table.sh_size / sizeof(Elf64_Dyn);
        return PROA_OK;
    }
    return PROA_OK;
}

static proa_status read_symbols(proa_elf *elf, const Elf64_Ehdr *h, const char *path, proa_err *err)
{
    Elf64_Shdr table, names;
    if (h->e_shnum && h->e_shentsize != sizeof table)
        return PROA_FAIL(err, INVALID, "'%s' has section headers of %d bytes", path, h->e_shentsize);
    for (unsigned i = 0; i < h->e_shnum; i++) {
        if (!read_section(elf, h, i, &table))
            return PROA_FAIL(err, INVALID, "'%s' is cut: section %u is beyond its end", path, i);
        if (table.sh_type != SHT_DYNSYM) continue;
        if (!read_section(elf, h, table.sh_link, &names) || !file_range(elf, table.sh_offset, table.sh_size) ||
            !file_range(elf, names.sh_offset, names.sh_size))
            return PROA_FAIL(err, INVALID, "'%s' is cut: its dynamic symbols are beyond its end", path);
        elf->symbols = (const Elf64_Sym *)(const void *)(elf->map.ptr + table.sh_offset);
        elf->symbols_count = table.sh_size / sizeof(Elf64_Sym);
        elf->names = (const char *)elf->map.ptr + names.sh_offset;
        elf->names_bytes = names.sh_size;
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "'%s' has no table of dynamic symbols", path);
}

proa_status proa_elf_open(proa_elf *elf, const char *path, proa_err *err)
{
    Elf64_Ehdr header;
    *elf = (proa_elf){0};
    PROA_TRY(proa_mmap_open(&elf->map, path, err));
    proa_status status = check_header(elf, &header, path, err);
    if (status == PROA_OK) status = read_symbols(elf, &header, path, err);
    if (status == PROA_OK) status = read_dynamic(elf, &header, path, err);
    if (status != PROA_OK) proa_elf_close(elf);
    return status;
}

void proa_elf_close(proa_elf *elf)
{
    proa_mmap_close(&elf->map);
    *elf = (proa_elf){0};
}

/* NULL if the name is not inside the table of names. */
static const char *name_at(const proa_elf *elf, uint64_t offset)
{
    if (offset >= elf->names_bytes) return NULL;
    return memchr(elf->names + offset, 0, elf->names_bytes - offset) ? elf->names + offset : NULL;
}

static const char *read_symbol(const proa_elf *elf, size_t index, Elf64_Sym *out)
{
    memcpy(out, (const char *)elf->symbols + index * sizeof *out, sizeof *out);
    return name_at(elf, out->st_name);
}

const char *proa_elf_next_import(const proa_elf *elf, size_t *at)
{
    Elf64_Sym s;
    while (*at < elf->symbols_count) {
        const char *name = read_symbol(elf, (*at)++, &s);
        if (name && *name && s.st_shndx == SHN_UNDEF && ELF64_ST_BIND(s.st_info) == STB_GLOBAL) return name;
    }
    return NULL;
}

const char *proa_elf_next_needed(const proa_elf *elf, size_t *at)
{
    Elf64_Dyn d;
    while (*at < elf->dynamic_count) {
        memcpy(&d, (const char *)elf->dynamic + (*at)++ * sizeof d, sizeof d);
        const char *name = d.d_tag == DT_NEEDED ? name_at(elf, d.d_un.d_val) : NULL;
        if (name) return name;
    }
    return NULL;
}

bool proa_elf_exports(const proa_elf *elf, const char *wanted)
{
    Elf64_Sym s;
    for (size_t i = 0; i < elf->symbols_count; i++) {
        const char *name = read_symbol(elf, i, &s);
        if (name && s.st_shndx != SHN_UNDEF && strcmp(name, wanted) == 0) return true;
    }
    return false;
}
