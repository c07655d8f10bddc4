/* SPDX-License-Identifier: Apache-2.0
 * json_print.c - prints a message as JSON, as Triton does. */
#include "proto/print.h"
#include "proto/proto_json.h"
#include <math.h>
#include <string.h>

typedef struct printer {
    proa_buf *out;
    const char *const *quoted;
} printer;

static void print_text(printer *p, const char *s)
{
    proa_buf_str(p->out, proa_str_c(s));
}

static bool is_wide(ProtobufCType type)
{
    return type == PROTOBUF_C_TYPE_INT64 || type == PROTOBUF_C_TYPE_UINT64 || type == PROTOBUF_C_TYPE_SINT64 ||
           type == PROTOBUF_C_TYPE_FIXED64 || type == PROTOBUF_C_TYPE_SFIXED64;
}

static bool is_quoted(const printer *p, const ProtobufCMessageDescriptor *in)
{
    if (!p->quoted) return true;
    for (const char *const *name = p->quoted; *name; name++)
        if (strcmp(*name, in->short_name) == 0) return true;
    return false;
}

static void print_real(printer *p, double value, bool single)
{
    const char *special = proa_print_special(value, "\"NaN\"", "\"Infinity\"", "\"-Infinity\"");
    if (special) print_text(p, special);
    else if (value == 0 && signbit(value))
        print_text(p, "-0.0"); /* "-0" would be an integer, without its sign */
    else proa_print_real(p->out, value, single);
}

static void print_enum(printer *p, const ProtobufCFieldDescriptor *field, int32_t value)
{
    const char *name = proa_enum_name(field->descriptor, value);
    if (name) proa_buf_printf(p->out, "\"%s\"", name);
    else proa_buf_printf(p->out, "%d", value);
}

static void print_message(printer *p, const ProtobufCMessage *m);

static void print_value(printer *p, const ProtobufCFieldDescriptor *field,
                        const ProtobufCMessageDescriptor *in, const void *at)
{
    const ProtobufCBinaryData *data = at;
    const char *quote = is_wide(field->type) && is_quoted(p, in) ? "\"" : "";
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT: print_real(p, (double)*(const float *)at, true); break;
    case PROTOBUF_C_TYPE_DOUBLE: print_real(p, *(const double *)at, false); break;
    case PROTOBUF_C_TYPE_BOOL: print_text(p, *(const protobuf_c_boolean *)at ? "true" : "false"); break;
    case PROTOBUF_C_TYPE_ENUM: print_enum(p, field, *(const int32_t *)at); break;
    case PROTOBUF_C_TYPE_STRING: proa_buf_json_str(p->out, proa_str_c(*(char *const *)at)); break;
    case PROTOBUF_C_TYPE_BYTES:
        proa_buf_char(p->out, '"');
        proa_buf_base64(p->out, (proa_str){(const char *)data->data, data->len});
        proa_buf_char(p->out, '"');
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        if (*(ProtobufCMessage *const *)at) print_message(p, *(ProtobufCMessage *const *)at);
        else print_text(p, "{}");
        break;
    default:
        print_text(p, quote);
        proa_print_integer(p->out, field->type, at);
        print_text(p, quote);
    }
}

/* JSON's keys are strings, whatever the map's are. */
static void print_key(printer *p, const ProtobufCFieldDescriptor *field, const void *at)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        proa_buf_json_str(p->out, proa_str_c(*(char *const *)at));
        return;
    }
    proa_buf_char(p->out, '"');
    if (field->type == PROTOBUF_C_TYPE_BOOL)
        print_text(p, *(const protobuf_c_boolean *)at ? "true" : "false");
    else proa_print_integer(p->out, field->type, at);
    proa_buf_char(p->out, '"');
}

static void print_repeated(printer *p, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    bool map = proa_field_is_map(field);
    proa_buf_char(p->out, map ? '{' : '[');
    for (size_t i = 0; i < proa_message_count(m, field); i++) {
        const void *at = proa_message_at(m, field, i);
        if (i) proa_buf_char(p->out, ',');
        if (!map) {
            print_value(p, field, m->descriptor, at);
            continue;
        }
        const ProtobufCMessage *entry = *(ProtobufCMessage *const *)at;
        const ProtobufCFieldDescriptor *fields = entry->descriptor->fields;
        print_key(p, &fields[0], proa_message_at(entry, &fields[0], 0));
        proa_buf_char(p->out, ':');
        print_value(p, &fields[1], entry->descriptor, proa_message_at(entry, &fields[1], 0));
    }
    proa_buf_char(p->out, map ? '}' : ']');
}

/* Messages and members of a oneof only if they are set. */
static bool is_shown(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    bool optional = field->type == PROTOBUF_C_TYPE_MESSAGE || (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
    return field->label == PROTOBUF_C_LABEL_REPEATED || !optional || proa_message_count(m, field);
}

static void print_message(printer *p, const ProtobufCMessage *m)
{
    const char *comma = "";
    proa_buf_char(p->out, '{');
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        if (!is_shown(m, field)) continue;
        proa_buf_printf(p->out, "%s\"%s\":", comma, field->name);
        comma = ",";
        if (field->label == PROTOBUF_C_LABEL_REPEATED) print_repeated(p, m, field);
        else print_value(p, field, m->descriptor, proa_message_at(m, field, 0));
    }
    proa_buf_char(p->out, '}');
}

bool proa_proto_json_print(proa_buf *out, const ProtobufCMessage *m, const char *const *quoted)
{
    printer p = {out, quoted};
    print_message(&p, m);
    return !out->full;
}
