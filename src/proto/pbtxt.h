/* SPDX-License-Identifier: Apache-2.0
 * pbtxt.h - protobuf's text format, read and written by protobuf-c's descriptors (config.pbtxt).
 * Owner:   what is read lives in the arena (message.h).
 * Threads: none of its own.  Limits: PROA_PBTXT_BYTES_MAX, PROA_PBTXT_DEPTH_MAX, PROA_MAP_ENTRIES_MAX.
 * Way in:  proa_pbtxt_parse. */
#ifndef PROA_PROTO_PBTXT_H
#define PROA_PROTO_PBTXT_H

#include "proto/message.h"

/* Reads one message. `what` (a file's name) precedes line and column in errors. It accepts and refuses what `protoc
 * --encode` accepts and refuses, and is stricter in one point: a string field must be UTF-8 without NUL. If two map
 * entries have the same key, the last wins. INVALID or LIMIT: the arena holds some garbage and *out is NULL. */
PROA_MUST_CHECK proa_status proa_pbtxt_parse(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                             proa_str text, const char *what, proa_arena *arena, proa_err *err);
/* Appends text that proa_pbtxt_parse reads to an equal message, two spaces a level; false if `out` is full. */
bool proa_pbtxt_print(proa_buf *out, const ProtobufCMessage *m);

#endif
