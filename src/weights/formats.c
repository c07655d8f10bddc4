/* SPDX-License-Identifier: Apache-2.0
 * formats.c - the formats of files that are read, as a table by their first bytes. */
#include "weights/parts.h"

#include "weights/packed.h"

typedef struct file_format {
    const char *magic; /* the first bytes */
    int64_t magic_bytes;
    proa_weights_reader *read;
} file_format;

/* What git leaves in the place of a large file when git-lfs is not installed. */
static proa_status refuse_pointer(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                  proa_err *err)
{
    PROA_UNUSED(bytes);
    PROA_UNUSED(len);
    return PROA_FAIL(err, INVALID, "%.*s: a pointer of Git LFS in the place of the file: run 'git lfs pull'",
                     PROA_NAME_SHOWN, w->files[file].name);
}

static const file_format file_formats[] = {
    {"GGUF", 4, proa_gguf_read},
    {PROA_PACKED_MAGIC, 8, proa_packed_read},
    {"PK\3\4", 4, proa_torch_zip_read},
    /* a pickle of torch's magic number: PROTO 2, LONG1 of 10 bytes */
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15, proa_torch_legacy_read},
    {"version https://git-lfs.", 24, refuse_pointer},
    {"", 0, proa_safetensors_read}, /* begins with a length, so it comes last */
};

proa_status proa_weights_read_bytes(proa_weights *w, const unsigned char *bytes, int64_t len, int32_t file,
                                    proa_err *err)
{
    const file_format *f = file_formats;
    while (f->magic_bytes && (len < f->magic_bytes || memcmp(bytes, f->magic, (size_t)f->magic_bytes) != 0))
        f++;
    return f->read(w, bytes, len, file, err);
}

proa_status proa_weights_read_file(proa_weights *w, const char *path, proa_err *err)
{
    return proa_weights_read_file_as(w, path, proa_weights_read_bytes, err);
}
