/* SPDX-License-Identifier: Apache-2.0
 * message.c - protobuf-c messages in arenas, handled by their descriptors. */
#include "proto/message.h"

#include <string.h>

ProtobufCMessage *proa_message_new(const ProtobufCMessageDescriptor *type, proa_arena *arena)
{
    ProtobufCMessage *m = proa_arena_alloc(arena, type->sizeof_message);
    type->message_init(m);
    return m;
}

const ProtobufCFieldDescriptor *proa_field_find(const ProtobufCMessageDescriptor *type, proa_str name)
{
    for (unsigned i = 0; i < type->n_fields; i++)
        if (proa_str_is(name, type->fields[i].name)) return &type->fields[i];
    return NULL;
}

/* Does `entry` read as the field's name in camel case with Entry after it? So does protoc name a map's entries. */
static bool entry_named(const char *entry, const char *field)
{
    bool upper = true;
    for (; *field; field++) {
        if (*field == '_') {
            upper = true;
            continue;
        }
        char c = upper && *field >= 'a' && *field <= 'z' ? (char)(*field - 'a' + 'A') : *field;
        if (*entry++ != c) return false;
        upper = false;
    }
    return strcmp(entry, "Entry") == 0;
}

bool proa_field_is_map(const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label != PROTOBUF_C_LABEL_REPEATED) return false;
    const ProtobufCMessageDescriptor *type = field->descriptor;
    if (type->n_fields != 2 || type->fields[0].id != 1 || type->fields[1].id != 2) return false;
    return strcmp(type->fields[0].name, "key") == 0 && strcmp(type->fields[1].name, "value") == 0 &&
           entry_named(type->short_name, field->name);
}

size_t proa_field_bytes(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_FLOAT: return 4;
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: break;
    }
    return 8;
}

const char *proa_enum_name(const ProtobufCEnumDescriptor *type, int value)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(type, value);
    return found ? found->name : NULL;
}

bool proa_enum_find(const ProtobufCEnumDescriptor *type, proa_str name, int *value)
{
    for (unsigned i = 0; i < type->n_values; i++) {
        if (!proa_str_is(name, type->values[i].name)) continue;
        *value = type->values[i].value;
        return true;
    }
    return false;
}

static char *field_address(const ProtobufCMessage *m, unsigned offset)
{
    return (char *)(uintptr_t)m + offset;
}

/* Presence in proto3: a string or bytes if it is not empty, a number if any of its bits is set. */
static bool is_there(const ProtobufCFieldDescriptor *field, const char *member)
{
    static const char zero[sizeof(ProtobufCBinaryData)];
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *s = *(char *const *)(const void *)member;
        return s && s[0];
    }
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return ((const ProtobufCBinaryData *)(const void *)member)->len > 0;
    return memcmp(member, zero, proa_field_bytes(field)) != 0;
}

size_t proa_message_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)(const void *)field_address(m, field->quantifier_offset);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)(const void *)field_address(m, field->quantifier_offset) == field->id;
    return is_there(field, field_address(m, field->offset));
}

const void *proa_message_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, size_t i)
{
    const char *member = field_address(m, field->offset);
    if (field->label != PROTOBUF_C_LABEL_REPEATED) return member;
    PROA_ASSERT(i < proa_message_count(m, field));
    return *(char *const *)(const void *)member + i * proa_field_bytes(field);
}

static void *append_element(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, proa_arena *arena)
{
    enum { FIRST = 4 }; /* elements; then twice as many whenever a power of two is full */
    size_t *count = (size_t *)(void *)field_address(m, field->quantifier_offset);
    char **array = (char **)(void *)field_address(m, field->offset);
    size_t bytes = proa_field_bytes(field), n = *count;
    if (n == 0 || (n >= FIRST && (n & (n - 1)) == 0)) {
        char *grown = proa_arena_array(arena, n ? (int64_t)n * 2 : FIRST, bytes);
        if (n) memcpy(grown, *array, n * bytes);
        *array = grown;
    }
    *count = n + 1;
    return *array + n * bytes;
}

void *proa_message_put(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, proa_arena *arena)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) return append_element(m, field, arena);
    char *member = field_address(m, field->offset);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        *(uint32_t *)(void *)field_address(m, field->quantifier_offset) = field->id;
        memset(member, 0, proa_field_bytes(field));
    }
    return member;
}

ProtobufCMessage *proa_message_add(ProtobufCMessage *m, const char *name, proa_arena *arena)
{
    const ProtobufCFieldDescriptor *field = proa_field_find(m->descriptor, proa_str_c(name));
    PROA_ASSERT(field && field->type == PROTOBUF_C_TYPE_MESSAGE);
    ProtobufCMessage *added = proa_message_new(field->descriptor, arena);
    *(ProtobufCMessage **)proa_message_put(m, field, arena) = added;
    return added;
}

ProtobufCMessage *proa_message_entry(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *map,
                                     const void *key)
{
    const ProtobufCFieldDescriptor *of = &((const ProtobufCMessageDescriptor *)map->descriptor)->fields[0];
    for (size_t i = 0; i < proa_message_count(m, map); i++) {
        ProtobufCMessage *entry = *(ProtobufCMessage *const *)proa_message_at(m, map, i);
        const char *own = field_address(entry, of->offset);
        bool same;
        if (of->type == PROTOBUF_C_TYPE_STRING)
            same = strcmp(*(char *const *)(const void *)own, *(char *const *)key) == 0;
        else same = memcmp(own, key, proa_field_bytes(of)) == 0;
        if (same) return entry;
    }
    return NULL;
}

static void copy_element(void *to, const ProtobufCFieldDescriptor *field, const void *from, proa_arena *arena)
{
    memcpy(to, from, proa_field_bytes(field));
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        char **s = to;
        *s = proa_arena_strdup(
            arena, proa_str_c(*s)); /* also copies "": protobuf-c takes its shared empty string for unset */
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        ProtobufCBinaryData *data = to;
        data->data = (uint8_t *)proa_arena_strdup(arena, (proa_str){(const char *)data->data, data->len});
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage **inner = to;
        if (*inner) *inner = proa_message_copy(*inner, arena);
    }
}

ProtobufCMessage *proa_message_copy(const ProtobufCMessage *m, proa_arena *arena)
{
    ProtobufCMessage *copy = proa_message_new(m->descriptor, arena);
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        size_t n = proa_message_count(m, field);
        for (size_t j = 0; j < n; j++)
            copy_element(proa_message_put(copy, field, arena), field, proa_message_at(m, field, j), arena);
    }
    return copy;
}

bool proa_message_pack(proa_buf *out, const ProtobufCMessage *m)
{
    size_t bytes = protobuf_c_message_get_packed_size(m);
    if (!proa_buf_reserve(out, bytes)) return false;
    protobuf_c_message_pack(m, (uint8_t *)out->ptr + out->len);
    out->len += bytes;
    out->ptr[out->len] = '\0';
    return true;
}

static void *arena_take(void *arena, size_t bytes)
{
    return proa_arena_alloc(arena, bytes);
}

static void arena_leave(void *arena, void *ptr)
{
    PROA_UNUSED(arena);
    PROA_UNUSED(ptr);
}

proa_status proa_message_unpack(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                proa_str bytes, const char *what, proa_arena *arena, proa_err *err)
{
    ProtobufCAllocator allocator = {arena_take, arena_leave, arena};
    *out = protobuf_c_message_unpack(type, &allocator, bytes.len, (const uint8_t *)bytes.ptr);
    if (!*out) return PROA_FAIL(err, INVALID, "%s: not a message of type %s", what, type->short_name);
    return PROA_OK;
}
