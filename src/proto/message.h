/* SPDX-License-Identifier: Apache-2.0
 * message.h - protobuf-c messages that live in an arena, handled by their descriptors (proto3 only).
 * Owner:   all memory is the arena's: never call protobuf_c_message_free_unpacked on such a message.
 * Threads: none of its own.
 * Way in:  proa_message_new, then the generated struct's members; proa_message_add for repeated messages. */
#ifndef PROA_PROTO_MESSAGE_H
#define PROA_PROTO_MESSAGE_H

#include "base/arena.h"
#include "base/status.h"
#include <protobuf-c/protobuf-c.h>

/* An empty message: strings are "" (never NULL), messages NULL, repeated fields have no element. */
ProtobufCMessage *proa_message_new(const ProtobufCMessageDescriptor *type, proa_arena *arena);

/* A field by its name in the .proto file; NULL if there is none. */
const ProtobufCFieldDescriptor *proa_field_find(const ProtobufCMessageDescriptor *type, proa_str name);
/* map<K, V>: to protobuf-c a repeated message {key = 1, value = 2}. */
bool proa_field_is_map(const ProtobufCFieldDescriptor *field);
/* Bytes of one element in the C struct. */
size_t proa_field_bytes(const ProtobufCFieldDescriptor *field);
/* "STEP" for number 2 of an enum, or NULL. */
const char *proa_enum_name(const ProtobufCEnumDescriptor *type, int value);
/* False if the enum has no such name. */
bool proa_enum_find(const ProtobufCEnumDescriptor *type, proa_str name, int *value);

/* Elements: of a singular field 0 or 1. As on the wire a scalar counts if it is not zero, a string if it is not empty;
 * the chosen member of a oneof always counts. */
size_t proa_message_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field);
/* The address of an element (of the member itself for a singular field): int32_t, int64_t, float, double,
 * protobuf_c_boolean, char *, ProtobufCBinaryData or ProtobufCMessage *, as the type says. */
const void *proa_message_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, size_t i);
/* Where to write: a singular field's member (chosen, if of a oneof), or a new zeroed element at the end of a repeated
 * field. That field is empty before, or was filled by this function only: it grows by doubling. */
void *proa_message_put(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, proa_arena *arena);
/* A new message in the message field `name`: the field's value, or one more element. */
ProtobufCMessage *proa_message_add(ProtobufCMessage *m, const char *name, proa_arena *arena);
/* Map entries: the entry whose key equals `key` (strings by bytes, numbers by value); NULL if there is none. */
ProtobufCMessage *proa_message_entry(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *map,
                                     const void *key);
/* The same message in another arena: for overrides that must not touch what is in use. */
ProtobufCMessage *proa_message_copy(const ProtobufCMessage *m, proa_arena *arena);

/* Appends the wire encoding; false if `out` is full. */
bool proa_message_pack(proa_buf *out, const ProtobufCMessage *m);
/* Decodes the wire encoding; memory from the arena. INVALID if the bytes are not such a message. */
PROA_MUST_CHECK proa_status proa_message_unpack(ProtobufCMessage **out,
                                                const ProtobufCMessageDescriptor *type, proa_str bytes,
                                                const char *what, proa_arena *arena, proa_err *err);

#endif
