/* SPDX-License-Identifier: Apache-2.0
 * zip.h - the directory of a zip file whose entries are stored as they are: those that torch.save writes.
 * Owner:   proa_zip_open fills the caller's struct, proa_zip_release frees it. Names point into the file's bytes.
 * Way in:  proa_zip_open; entries are found by walking them. */
#ifndef PROA_WEIGHTS_ZIP_H
#define PROA_WEIGHTS_ZIP_H

#include "base/map.h"
#include "base/status.h"

typedef struct proa_zip_entry {
    proa_str name;
    int64_t header;    /* offset of its local header in the file */
    int64_t at, bytes; /* of its data */
} proa_zip_entry;

typedef struct proa_zip {
    proa_zip_entry *entry; /* [count], in the order of the directory */
    int32_t count;
} proa_zip;

/* Reads and checks the directory (APPNOTE.TXT of PKWARE, with zip64): every entry inside the file and stored, none
 * compressed or encrypted, no two that overlap, names unique. what: the file's name in errors. Release z also on
 * failure. */
PROA_MUST_CHECK proa_status proa_zip_open(proa_zip *z, const unsigned char *bytes, int64_t len,
                                          const char *what, proa_err *err);
void proa_zip_release(proa_zip *z);

#endif
