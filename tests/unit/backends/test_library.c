/* SPDX-License-Identifier: Apache-2.0
 * test_library.c - libraries before they are loaded: symbols of a small ELF file, and the same file with every byte
 * changed and cut at every length. What a file claims of its tables must never lead outside of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/library/elf.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct file {
    Elf64_Ehdr header;
    Elf64_Sym symbols[5];
    char names[64];
    Elf64_Shdr sections[3];
} file;

static const char names[] = "\0needed\0defined\0weak\0";
enum { NEEDED = 1, DEFINED = 8, WEAK = 16 };

static file valid_file(void)
{
    file f = {
        .header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                   .e_type = ET_DYN,
                   .e_shoff = offsetof(file, sections),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = 3},
        .symbols = {{0},
                    {.st_name = NEEDED, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)},
                    {.st_name = DEFINED, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1},
                    {.st_name = WEAK, .st_info = ELF64_ST_INFO(STB_WEAK, STT_FUNC)},
                    {.st_name = 5000, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)}}, /* beyond the names */
        .sections = {{0},
                     {.sh_type = SHT_DYNSYM,
                      .sh_offset = offsetof(file, symbols),
                      .sh_size = sizeof f.symbols,
                      .sh_link = 2},
                     {.sh_type = SHT_STRTAB, .sh_offset = offsetof(file, names), .sh_size = sizeof f.names}},
    };
#if defined(__x86_64__)
    f.header.e_machine = EM_X86_64;
#elif defined(__aarch64__)
    f.header.e_machine = EM_AARCH64;
#endif
    memcpy(f.names, names, sizeof names);
    return f;
}

/* Opens these bytes as a file and walks over all that can be asked. Returns whether it could be opened. */
static bool open_bytes(const void *bytes, size_t size, proa_err *err)
{
    char path[] = "/tmp/proa-elf-XXXXXX";
    int fd = mkstemp(path);
    proa_elf elf;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
    bool opened = proa_elf_open(&elf, path, err) == PROA_OK;
    if (opened) {
        for (size_t at = 0; proa_elf_next_import(&elf, &at);) {
        }
        (void)proa_elf_exports(&elf, "no such name");
        proa_elf_close(&elf);
    }
    unlink(path);
    return opened;
}

static void test_imports_and_exports(void **state)
{
    (void)state;
    char path[] = "/tmp/proa-elf-XXXXXX";
    int fd = mkstemp(path);
    file f = valid_file();
    proa_elf elf;
    proa_err err = {0};
    size_t at = 0;
    assert_int_equal(write(fd, &f, sizeof f), sizeof f);
    close(fd);
    assert_int_equal(proa_elf_open(&elf, path, &err), PROA_OK);
    assert_string_equal(proa_elf_next_import(&elf, &at), "needed");
    assert_null(proa_elf_next_import(&elf, &at)); /* a weak symbol need not be there */
    assert_true(proa_elf_exports(&elf, "defined"));
    assert_false(proa_elf_exports(&elf, "needed"));
    proa_elf_close(&elf);
    unlink(path);
}

static void test_every_length(void **state)
{
    (void)state;
    file f = valid_file();
    for (size_t size = 0; size < sizeof f; size++) {
        proa_err err = {0};
        bool opened = open_bytes(&f, size, &err);
        /* the last section is not needed */
        if (opened) assert_true(size >= offsetof(file, sections) + 2 * sizeof(Elf64_Shdr));
        else assert_true(err.text[0] != 0);
    }
}

static void test_every_byte(void **state)
{
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    (void)state;
    for (size_t i = 0; i < sizeof(file); i++) {
        for (size_t v = 0; v < sizeof values; v++) {
            file f = valid_file();
            proa_err err = {0};
            memcpy((char *)&f + i, &values[v], 1);
            if (!open_bytes(&f, sizeof f, &err)) assert_true(err.text[0] != 0);
        }
    }
}

/* The answers to what a person would put there by mistake. */
static void test_wrong_kinds(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
        const char *text;
    } wrong[] = {
        {0, 'P', "is not a shared library"},
        {EI_CLASS, ELFCLASS32, "is not a 64-bit little-endian library"},
        {offsetof(Elf64_Ehdr, e_machine), EM_RISCV, "was built for RISC-V"},
        {offsetof(Elf64_Ehdr, e_type), ET_EXEC, "is not a shared library"},
        {offsetof(Elf64_Ehdr, e_shnum), 0, "has no table of dynamic symbols"},
        {offsetof(Elf64_Ehdr, e_shnum), 200, NULL}, /* the table is found before the end of the file */
    };
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        file f = valid_file();
        proa_err err = {0};
        memcpy((char *)&f + wrong[i].at, &wrong[i].value, 1);
        assert_int_equal(open_bytes(&f, sizeof f, &err), wrong[i].text == NULL);
        if (wrong[i].text) assert_non_null(strstr(err.text, wrong[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_imports_and_exports),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_wrong_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
