/* SPDX-License-Identifier: Apache-2.0
 * stored.c - GET and DELETE of a stored response. */
#include "api/responses/responses.h"

/* Stored responses are those of one API key; without keys there is one owner. */
uint64_t proa_resp_owner(const proa_http_exchange *x)
{
    return proa_str_hash(proa_http_get(x, "authorization"));
}

static void fail_stored(proa_http_exchange *x, int status, const char *text, proa_str id)
{
    proa_oai_error e = {.status = status, .type = "invalid_request_error"};
    snprintf(e.text, sizeof e.text, text, (int)(id.len < 100 ? id.len : 100), id.ptr);
    proa_oai_fail(x, &proa_oai_forms[PROA_OAI_RESPONSE], &e);
}

static void delete_stored(proa_response_store *store, proa_http_exchange *x, proa_str id, proa_buf *body)
{
    if (!proa_response_store_remove(store, id, proa_resp_owner(x))) {
        fail_stored(x, 404, "Response with id '%.*s' not found.", id);
        return;
    }
    proa_buf_str(body, proa_str_c("{\"id\":"));
    proa_buf_json_str(body, id);
    proa_buf_str(body, proa_str_c(",\"object\":\"response\",\"deleted\":true}"));
    proa_http_json(x, 200, body);
}

void proa_resp_stored(proa_api *api, proa_http_exchange *x, proa_str id)
{
    proa_response_store *store = proa_api_responses(api);
    bool get = proa_str_is(x->method, "GET");
    proa_buf body;
    proa_buf_init(&body, (size_t)PROA_OPENAI_ANSWER_MAX);
    if (!get && !proa_str_is(x->method, "DELETE"))
        fail_stored(x, 405, "Only GET and DELETE are allowed on the response '%.*s'.", id);
    else if (!proa_http_allowed(api, x, PROA_CATEGORY_INFERENCE)) get = true; /* answered */
    else if (!get) delete_stored(store, x, id, &body);
    else if (x->query.len > 0)
        fail_stored(x, 400, "Parameters of the query are not supported for the response '%.*s'.", id);
    else if (!proa_response_store_get(store, id, proa_resp_owner(x), NULL, &body))
        fail_stored(x, 404, "Response with id '%.*s' not found.", id);
    else proa_http_json(x, 200, &body);
    proa_buf_release(&body);
}
