/* SPDX-License-Identifier: Apache-2.0
 * status.h - the one list of statuses, and the detail of an error.
 * Owner:   the caller owns the proa_err and may pass NULL where the detail does not matter.
 * Threads: a proa_err belongs to one thread at a time.
 * Way in:  a function that depends on outside input returns proa_status and fills err on failure. */
#ifndef PROA_STATUS_H
#define PROA_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Functions of the library that programs may call. */
#ifndef PROA_EXPORT
#define PROA_EXPORT __attribute__((visibility("default")))
#endif

/* name, gRPC code, HTTP status, text. HTTP and gRPC map statuses by this table and no other. */
#define PROA_STATUS_LIST(X)                                                                                  \
    X(OK, 0, 200, "ok")                                                                                      \
    X(CANCELLED, 1, 499, "cancelled")                                                                        \
    X(INVALID, 3, 400, "invalid argument")                                                                   \
    X(DEADLINE, 4, 504, "deadline exceeded")                                                                 \
    X(NOT_FOUND, 5, 404, "not found")                                                                        \
    X(EXISTS, 6, 409, "already exists")                                                                      \
    X(NO_MEMORY, 8, 503, "not enough memory")                                                                \
    X(LIMIT, 8, 413, "over a limit")                                                                         \
    X(UNSUPPORTED, 12, 501, "not supported")                                                                 \
    X(INTERNAL, 13, 500, "internal error")                                                                   \
    X(UNAVAILABLE, 14, 503, "unavailable")                                                                   \
    X(CORRUPT, 15, 500, "corrupt data")                                                                      \
    X(IO, 15, 500, "input or output failed")

typedef enum proa_status {
#define PROA_STATUS_ENUM(name, grpc, http, text) PROA_##name,
    PROA_STATUS_LIST(PROA_STATUS_ENUM)
#undef PROA_STATUS_ENUM
        PROA_STATUS_COUNT
} proa_status;

/* What failed and where. The first message wins: a caller further up does not overwrite it. */
typedef struct proa_err {
    proa_status status;
    int line;         /* of the source file that raised it */
    const char *file; /* static string */
    uint64_t whole;   /* where a text is kept that text[] cannot hold (the server's); 0: text[] is all */
    char text[480];   /* one line, lower case, no full stop; names what and where */
} proa_err;

/* The text of a status ("not found"); never NULL, also for values outside the list. */
const char *proa_status_text(proa_status status);
/* The gRPC code (0 to 16) and the HTTP status of a status. */
int proa_status_grpc(proa_status status);
int proa_status_http(proa_status status);

#ifdef __cplusplus
}
#endif
#endif
