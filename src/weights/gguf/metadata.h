/* SPDX-License-Identifier: Apache-2.0
 * metadata.h - the header of a GGUF file: its metadata by key, and its list of tensors.
 * Owner:   proa_gguf_parse; the arrays are in the arena of the checkpoint, everything else points into the file.
 * Threads: only read after the parse.
 * Format:  ggml-org/ggml, docs/gguf.md, versions 2 and 3. */
#ifndef PROA_WEIGHTS_GGUF_METADATA_H
#define PROA_WEIGHTS_GGUF_METADATA_H

#include "base/arena.h"
#include "base/status.h"
#include "tensor/source.h"

/* Types of metadata, by their numbers in the file. enum, name, bytes of an element (0: it varies) */
#define PROA_GGUF_TYPE_LIST(T)                                                                               \
    T(U8, "uint8", 1)                                                                                        \
    T(I8, "int8", 1)                                                                                         \
    T(U16, "uint16", 2)                                                                                      \
    T(I16, "int16", 2)                                                                                       \
    T(U32, "uint32", 4)                                                                                      \
    T(I32, "int32", 4)                                                                                       \
    T(F32, "float32", 4)                                                                                     \
    T(BOOL, "bool", 1)                                                                                       \
    T(STRING, "string", 0)                                                                                   \
    T(ARRAY, "array", 0)                                                                                     \
    T(U64, "uint64", 8)                                                                                      \
    T(I64, "int64", 8)                                                                                       \
    T(F64, "float64", 8)

typedef enum proa_gguf_type {
#define PROA_GGUF_TYPE_ENUM(name, text, bytes) PROA_GGUF_##name,
    PROA_GGUF_TYPE_LIST(PROA_GGUF_TYPE_ENUM)
#undef PROA_GGUF_TYPE_ENUM
        PROA_GGUF_TYPE_COUNT
} proa_gguf_type;

/* One member of the metadata. */
typedef struct proa_gguf_value {
    proa_str key;
    proa_gguf_type type;
    proa_gguf_type element;  /* of an ARRAY; else the type */
    int64_t count;           /* elements of an ARRAY; else 1 */
    const unsigned char *at; /* the first element, little-endian; a string is 8 bytes of length and the text */
} proa_gguf_value;

/* One line of the list of tensors. */
typedef struct proa_gguf_tensor {
    proa_str name;
    int64_t shape[PROA_RANK_MAX]; /* outermost axis first: the file's order is reversed */
    int32_t rank;
    uint32_t type;
    int64_t offset; /* in the data */
} proa_gguf_tensor;

typedef struct proa_gguf {
    const char *what; /* the file's name, for errors */
    const unsigned char *bytes;
    int64_t len;
    uint32_t version;
    proa_gguf_value *values; /* [value_count] */
    int64_t value_count;
    proa_gguf_tensor *tensors; /* [tensor_count] in file order */
    int64_t tensor_count;
    int64_t data; /* where the data begins */
    int64_t alignment;
} proa_gguf;

/* Reads and checks the header. CORRUPT, LIMIT or UNSUPPORTED with the file and the key or tensor. Shapes, types and
 * offsets of tensors are numbers here: reader.c checks them against the data. */
PROA_MUST_CHECK proa_status proa_gguf_parse(proa_gguf *g, const char *what, const unsigned char *bytes,
                                            int64_t len, proa_arena *arena, proa_err *err);

const proa_gguf_value *proa_gguf_find(const proa_gguf *g, const char *key); /* NULL: absent */
const proa_gguf_tensor *proa_gguf_find_tensor(const proa_gguf *g, const char *name);

/* Element i of a value as an integer, a number or a string; false if it is of another kind (or out of int64_t). */
bool proa_gguf_int_at(int64_t *out, const proa_gguf_value *v, int64_t i);
bool proa_gguf_double_at(double *out, const proa_gguf_value *v, int64_t i);
/* Strings are read one after the other: at starts at v->at and moves to the next. v is a string or an array of
 * strings. */
proa_str proa_gguf_next_str(const unsigned char **at);

/* As proa_json_get_*: *out stays as it is if the key is absent. INVALID names the file, the key, what it is and what
 * it must be. An array of integers counts as one integer if all are equal (sizes by layer), but for those that are 0:
 * layers without such a part. */
PROA_MUST_CHECK proa_status proa_gguf_get_int(int64_t *out, const proa_gguf *g, const char *key, int64_t min,
                                              int64_t max, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_get_double(double *out, const proa_gguf *g, const char *key, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_get_bool(bool *out, const proa_gguf *g, const char *key, proa_err *err);
PROA_MUST_CHECK proa_status proa_gguf_get_str(proa_str *out, const proa_gguf *g, const char *key, proa_err *err);
/* An array with elements of that type, NULL if the key is absent. */
PROA_MUST_CHECK proa_status proa_gguf_get_array(const proa_gguf_value **out, const proa_gguf *g,
                                                const char *key, proa_gguf_type element, proa_err *err);

#endif
