/* SPDX-License-Identifier: Apache-2.0
 * print.h - inside proto: numbers as text, for both printers. */
#ifndef PROA_PROTO_PRINT_H
#define PROA_PROTO_PRINT_H

#include "base/str.h"
#include <protobuf-c/protobuf-c.h>

/* The shortest decimal of a finite number that reads back as the same double, or the same float if `single`. */
void proa_print_real(proa_buf *out, double value, bool single);
/* One of the three words if the value is not finite; NULL if it is. */
const char *proa_print_special(double value, const char *nan, const char *inf, const char *minus_inf);
/* An integer of any of protobuf's integer types. */
void proa_print_integer(proa_buf *out, ProtobufCType type, const void *at);

#endif
