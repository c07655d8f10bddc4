/* SPDX-License-Identifier: Apache-2.0
 * proto_json.h - messages as JSON, in the flavour that Triton's clients know.
 * Owner:   what is read lives in the arena (message.h).
 * Threads: none of its own.  Limits: those of base/json.h, PROA_MAP_ENTRIES_MAX. */
#ifndef PROA_PROTO_PROTO_JSON_H
#define PROA_PROTO_PROTO_JSON_H

#include "base/json.h"
#include "proto/message.h"

/* Appends one object: names as in the .proto file; scalars, lists and maps also when they are empty, messages and
 * members of a oneof only when they are set; enums by name, bytes in base64, NaN and the infinities as strings. 64-bit
 * integers are numbers, but strings (protobuf's own rule) in messages whose short name is in `quoted`, a
 * NULL-terminated list; NULL: in all. False if `out` is full. */
bool proa_proto_json_print(proa_buf *out, const ProtobufCMessage *m, const char *const *quoted);

/* Reads what the printer writes, and protobuf's JSON in general: lowerCamelCase names too, enums by number or in any
 * case, 64-bit integers as strings or numbers, null for unset. INVALID for unknown fields, wrong kinds, numbers out of
 * range; the text says where: "WHAT: input[1]: data_type: ...". */
PROA_MUST_CHECK proa_status proa_proto_json_read(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                                 const proa_json *json, proa_arena *arena, proa_err *err);
PROA_MUST_CHECK proa_status proa_proto_json_parse(ProtobufCMessage **out,
                                                  const ProtobufCMessageDescriptor *type, proa_str text,
                                                  const char *what, proa_arena *arena, proa_err *err);

#endif
