/* SPDX-License-Identifier: Apache-2.0
 * json.h - json-c behind one small header: strict reading with limits, and getters that report.
 * Owner:   proa_json_parse gives a root that proa_json_free releases; all other pointers live inside it.
 * Threads: one document, one thread.
 * Way in:  proa_json_parse, then proa_json_get and the typed getters. */
#ifndef PROA_BASE_JSON_H
#define PROA_BASE_JSON_H

#include "base/status.h"
#include "base/str.h"

typedef struct json_object proa_json;
typedef enum proa_json_type {
    PROA_JSON_NULL,
    PROA_JSON_BOOL,
    PROA_JSON_INT,
    PROA_JSON_DOUBLE,
    PROA_JSON_STRING,
    PROA_JSON_ARRAY,
    PROA_JSON_OBJECT
} proa_json_type;

/* Parses one document: strict RFC 8259 and UTF-8, at most PROA_JSON_DEPTH_MAX deep and PROA_JSON_NODES_MAX
 * commas and colons, where an array or object counts for 8. `what` names it in errors. Python's NaN and Infinity are
 * refused. Of two members with one key the last stays; a key ends at \u0000 (json-c's keys are C strings); half a
 * surrogate pair becomes U+FFFD; an integer beyond 64 bits becomes the nearest one. */
PROA_MUST_CHECK proa_status proa_json_parse(proa_json **out, proa_str text, const char *what, proa_err *err);
/* As proa_json_parse, for files that Python's json module has written: NaN, Infinity and -Infinity are read as null. */
PROA_MUST_CHECK proa_status proa_json_parse_python(proa_json **out, proa_str text, const char *what,
                                                   proa_err *err);
/* As proa_json_parse with a limit of its own, for what a client sends: the tree takes up to 100 bytes for
 * each of nodes_max. */
PROA_MUST_CHECK proa_status proa_json_parse_within(proa_json **out, proa_str text, int64_t nodes_max,
                                                   const char *what, proa_err *err);
/* Reads and parses a file of at most bytes_max bytes. */
PROA_MUST_CHECK proa_status proa_json_load(proa_json **out, const char *path, int64_t bytes_max, proa_err *err);
void proa_json_free(proa_json *root); /* NULL is fine */

proa_json_type proa_json_kind(const proa_json *j); /* a NULL pointer is PROA_JSON_NULL, as json-c has it */
const char *proa_json_kind_name(proa_json_type kind);
/* The member, or NULL if there is none, it is null, or obj is not an object. */
proa_json *proa_json_get(const proa_json *obj, const char *key);
int64_t proa_json_len(const proa_json *j); /* of an array or object; 0 otherwise */
proa_json *proa_json_at(const proa_json *array, int64_t i);
/* The string's bytes; the empty slice if j is not a string. */
proa_str proa_json_str(const proa_json *j);
/* The value; 0 or false if j is of another kind. */
int64_t proa_json_int(const proa_json *j);
uint64_t proa_json_uint(const proa_json *j); /* 0 if negative; above INT64_MAX proa_json_int returns INT64_MAX */
double proa_json_double(const proa_json *j); /* of an integer too */
bool proa_json_bool(const proa_json *j);

/* Sets a member of an object to a string, in its place if it is there. */
void proa_json_put_str(proa_json *obj, const char *key, proa_str value);
/* To a document, which then belongs to the object. */
void proa_json_put(proa_json *obj, const char *key, proa_json *value);
void proa_json_remove(proa_json *obj, const char *key);
/* New documents; the caller owns them until they are put into another one. NULL without memory, which reads as null. */
proa_json *proa_json_new_object(void);
proa_json *proa_json_new_array(void);
proa_json *proa_json_new_str(proa_str value);
/* Appends a document to an array, which then owns it. */
void proa_json_add(proa_json *array, proa_json *value);
/* Moves all elements of an array, or all members of an object, after those of another one; frees `from`. */
void proa_json_move_all(proa_json *to, proa_json *from);
proa_json *proa_json_hold(proa_json *j); /* one more owner, who frees it too; on the same thread only */
/* Takes a member out of an object: the caller owns it. NULL as proa_json_get. */
proa_json *proa_json_take(proa_json *obj, const char *key);
/* Appends the document as text with an indentation of two spaces. Numbers are spelt as they were read. */
void proa_json_print(proa_buf *out, const proa_json *j);
/* Removes every member that is null or not one of these `count` names. */
void proa_json_keep(proa_json *obj, const char *const *names, int count);
/* About what the tree takes in memory. */
size_t proa_json_bytes(const proa_json *j);

/* Members of an object in file order: for (it = proa_json_begin(o); proa_json_next(&it);) it.key, it.value. */
typedef struct proa_json_iter {
    proa_str key;
    proa_json *value;
    void *entry;
} proa_json_iter;
proa_json_iter proa_json_begin(const proa_json *obj);
bool proa_json_next(proa_json_iter *it);

/* Reports: *out is left alone (the default) when the key is absent or null; INVALID when it has another type or
 * is outside [min, max]. The message names the key, the value and the range. */
PROA_MUST_CHECK proa_status proa_json_get_int(int64_t *out, const proa_json *obj, const char *key,
                                              int64_t min, int64_t max, proa_err *err);
PROA_MUST_CHECK proa_status proa_json_get_double(double *out, const proa_json *obj, const char *key,
                                                 double min, double max, proa_err *err);
PROA_MUST_CHECK proa_status proa_json_get_bool(bool *out, const proa_json *obj, const char *key, proa_err *err);
PROA_MUST_CHECK proa_status proa_json_get_str(proa_str *out, const proa_json *obj, const char *key,
                                              proa_err *err);

#endif
