/* SPDX-License-Identifier: Apache-2.0
 * reply.h - the headers of a response, and names of codes for messages. */
#ifndef PROA_HUB_REPLY_H
#define PROA_HUB_REPLY_H

#include "hub/http.h"

void proa_hub_reply_clear(proa_hub_reply *r);
/* One header line with its line end. A status line begins a new response; what only the hub says (commit, linked etag
 * and size) outlives it. */
void proa_hub_reply_header(proa_hub_reply *r, proa_str line);
const char *proa_hub_reason(long code); /* "Too Many Requests"; "" for one without a name here */

#endif
