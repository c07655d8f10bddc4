/* SPDX-License-Identifier: Apache-2.0
 * v2_common.c - what the handlers of all groups of routes do. */
#include "api/http/v2.h"

void proa_v2_done(proa_http_exchange *x)
{
    proa_http_respond(x, 200, (proa_str){"", 0}, (proa_http_body){0});
}

bool proa_v2_body(proa_api *api, proa_http_exchange *x, proa_jread *j)
{
    proa_str text = {x->body_len ? x->body : "", x->body_len};
    proa_jread_init(j, text, x->arena, api->options.strict_triton, (size_t)api->options.http_max_input);
    return x->body_len > 0;
}

proa_status proa_v2_forward(proa_api *api, proa_http_exchange *x, proa_infer *r, proa_err *err)
{
    if (PROA_LIKELY(!api->forward[PROA_FRONTEND_HTTP])) return PROA_OK;
    for (int i = 0; i < x->headers_count; i++)
        PROA_TRY(proa_infer_forward(api, false, r, x->headers[i].name, x->headers[i].value, err));
    return PROA_OK;
}
