/* SPDX-License-Identifier: Apache-2.0
 * pbtxt_print.c - prints a message in protobuf's text format. */
#include "base/limits.h"
#include "proto/pbtxt.h"
#include "proto/print.h"
#include <math.h>

static void put_indent(proa_buf *out, int level)
{
    for (int i = 0; i < level; i++) proa_buf_append(out, "  ", 2);
}

/* Bytes in quotes: UTF-8 stays readable if `text`; all else outside ASCII is octal. */
static void print_quoted(proa_buf *out, proa_str s, bool text)
{
    static const char from[] = "\n\r\t\"\\", to[] = "nrt\"\\";
    proa_buf_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t special = 0;
        while (from[special] && from[special] != (char)c) special++;
        if (c && from[special]) proa_buf_printf(out, "\\%c", to[special]);
        else if (c < 0x20 || c == 0x7F || (c >= 0x80 && !text)) proa_buf_printf(out, "\\%03o", (unsigned)c);
        else proa_buf_char(out, (char)c);
    }
    proa_buf_char(out, '"');
}

static void print_real(proa_buf *out, double value, bool single)
{
    const char *special = proa_print_special(value, signbit(value) ? "-nan" : "nan", "inf", "-inf");
    if (special) proa_buf_str(out, proa_str_c(special));
    else proa_print_real(out, value, single);
}

static void print_scalar(proa_buf *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    const char *name;
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT: print_real(out, (double)*(const float *)at, true); break;
    case PROTOBUF_C_TYPE_DOUBLE: print_real(out, *(const double *)at, false); break;
    case PROTOBUF_C_TYPE_BOOL:
        proa_buf_str(out, proa_str_c(*(const protobuf_c_boolean *)at ? "true" : "false"));
        break;
    case PROTOBUF_C_TYPE_ENUM:
        name = proa_enum_name(field->descriptor, *(const int32_t *)at);
        if (name) proa_buf_str(out, proa_str_c(name));
        else proa_buf_printf(out, "%d", *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_STRING: print_quoted(out, proa_str_c(*(char *const *)at), true); break;
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *data = at;
        print_quoted(out, (proa_str){(const char *)data->data, data->len}, false);
        break;
    }
    default: proa_print_integer(out, field->type, at);
    }
}

static void print_message(proa_buf *out, const ProtobufCMessage *m, int level);

static void print_element(proa_buf *out, const ProtobufCFieldDescriptor *field, const void *at, int level)
{
    put_indent(out, level);
    proa_buf_str(out, proa_str_c(field->name));
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) {
        proa_buf_append(out, ": ", 2);
        print_scalar(out, field, at);
        proa_buf_char(out, '\n');
        return;
    }
    const ProtobufCMessage *inner = *(ProtobufCMessage *const *)at;
    proa_buf_append(out, " {\n", 3);
    if (inner) print_message(out, inner, level + 1);
    put_indent(out, level);
    proa_buf_append(out, "}\n", 2);
}

static void print_list(proa_buf *out, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, int level)
{
    put_indent(out, level);
    proa_buf_printf(out, "%s: [", field->name);
    for (size_t i = 0; i < proa_message_count(m, field); i++) {
        proa_buf_str(out, proa_str_c(i ? ", " : " "));
        print_scalar(out, field, proa_message_at(m, field, i));
    }
    proa_buf_append(out, " ]\n", 3);
}

static void print_message(proa_buf *out, const ProtobufCMessage *m, int level)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        size_t n = proa_message_count(m, field);
        if (n && field->label == PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE) {
            print_list(out, m, field, level);
            continue;
        }
        for (size_t j = 0; j < n; j++) print_element(out, field, proa_message_at(m, field, j), level);
    }
}

bool proa_pbtxt_print(proa_buf *out, const ProtobufCMessage *m)
{
    print_message(out, m, 0);
    return !out->full;
}
