/* SPDX-License-Identifier: Apache-2.0
 * print.c - numbers and bytes as text, for both printers. */
#include "proto/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static bool same_number(const char *text, double value, bool single)
{
    double again = strtod(text, NULL);
    return single ? (float)again == (float)value : again == value;
}

void proa_print_real(proa_buf *out, double value, bool single)
{
    char text[40];
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (same_number(text, value, single)) break;
    }
    proa_buf_str(out, proa_str_c(text));
}

const char *proa_print_special(double value, const char *nan, const char *inf, const char *minus_inf)
{
    if (isnan(value)) return nan;
    if (isinf(value)) return value > 0 ? inf : minus_inf;
    return NULL;
}

void proa_print_integer(proa_buf *out, ProtobufCType type, const void *at)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: proa_buf_printf(out, "%" PRId64, *(const int64_t *)at); break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: proa_buf_printf(out, "%" PRIu64, *(const uint64_t *)at); break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: proa_buf_printf(out, "%" PRIu32, *(const uint32_t *)at); break;
    default: proa_buf_printf(out, "%" PRId32, *(const int32_t *)at); break;
    }
}
