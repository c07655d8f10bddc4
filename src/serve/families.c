/* SPDX-License-Identifier: Apache-2.0
 * families.c - until metrics.c is here: no families of the core. */
#include "serve/server.h"

__attribute__((weak)) void proa_server_metrics(proa_server *server, proa_buf *out)
{
    PROA_UNUSED(server), PROA_UNUSED(out);
}
