/* SPDX-License-Identifier: Apache-2.0
 * wire.h - the small texts of gRPC over HTTP/2: time-outs, percent-encoding, base64 of "-bin" metadata.
 * Threads: none of its own. */
#ifndef PROA_NET_GRPC_WIRE_H
#define PROA_NET_GRPC_WIRE_H

#include "base/arena.h"

/* "100m": 1 to 8 digits and one of H M S m u n, as nanoseconds (at most INT64_MAX / 2). False: not of that form. */
bool proa_grpc_timeout_parse(proa_str text, int64_t *ns);
/* As much of a grpc-message as clients take, in whole characters. */
proa_str proa_grpc_cut(proa_str text);
/* grpc-message: printable ASCII stays, '%' and all else becomes %XX. In the arena unless nothing changes. */
proa_str proa_grpc_percent_encode(proa_arena *arena, proa_str text);
/* With or without padding. False: not base64; *out is then untouched. */
bool proa_base64_decode(proa_arena *arena, proa_str text, proa_str *out);
proa_str proa_base64_encode(proa_arena *arena, proa_str bytes); /* without padding, as gRPC writes it */
/* "application/grpc", alone or with "+proto" or parameters after it. */
bool proa_grpc_content_type(proa_str value);

#endif
