/* SPDX-License-Identifier: Apache-2.0
 * adapters.c - /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them: low-rank adapters come and go while
 * the server runs. A loaded one is a model of its own to clients (read.c). */
#include "api/openai/openai.h"

#include "api/control.h"

static void answer_client(proa_model_control *c, const proa_err *err)
{
    proa_http_exchange *x = c->client;
    proa_oai_error e;
    proa_buf body;
    if (err->status != PROA_OK) {
        if (err->status == PROA_EXISTS) proa_oai_bad(&e, "lora_name", "%s", err->text);
        else proa_oai_error_of(&e, err);
        proa_oai_fail(x, &proa_oai_forms[PROA_OAI_CHAT], &e);
        return;
    }
    proa_buf_init(&body, (size_t)64 << 10);
    proa_buf_printf(&body, "Success: LoRA adapter '%s' %s successfully.", c->adapter,
                    c->load ? "added" : "removed");
    struct iovec iov = {body.ptr, body.len};
    proa_http_respond(x, 200, proa_str_c("Content-Type: text/plain; charset=utf-8\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1});
    proa_buf_release(&body);
}

static void on_disconnect(proa_http_exchange *x)
{
    proa_model_control *c = x->user;
    c->client = NULL;
}

/* A text member of the body, "" if it is not there; false with the error. */
static bool read_text(proa_model_control *c, const proa_json *body, const char *key, bool required,
                      const char **out, proa_oai_error *e)
{
    const proa_json *j = proa_json_get(body, key);
    proa_str text = proa_json_str(j);
    bool is_text = proa_json_kind(j) == PROA_JSON_STRING;
    if ((j && !is_text) || proa_str_has_nul(text))
        return proa_oai_bad(e, key, "Invalid type for '%s': expected a string.", key);
    if (required && !text.len) return proa_oai_bad(e, key, "'%s' must be provided.", key);
    *out = is_text ? proa_arena_strdup(&c->arena, text) : "";
    return true;
}

static bool read_body(proa_model_control *c, const proa_http_exchange *x, proa_oai_error *e)
{
    proa_json *body = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_json_parse_within(&body, (proa_str){x->body, x->body_len}, PROA_REQUEST_NODES_MAX, "body", &err) !=
        PROA_OK)
        return proa_oai_bad(e, NULL, "We could not parse the JSON body of your request: %s", err.text);
    bool ok = read_text(c, body, "lora_name", true, &c->adapter, e) &&
              read_text(c, body, "base_model_name", false, &c->model, e) &&
              (!c->load || read_text(c, body, "lora_path", true, &c->path, e));
    proa_json_free(body);
    return ok;
}

static bool may_change(const proa_api *api, proa_oai_error *e)
{
    if (api->options.allow_adapters) return true;
    proa_oai_bad(e, NULL,
                 "Loading and unloading of adapters is off: start the server with --allow-lora-updates.");
    e->status = 403;
    return false;
}

void proa_oai_change_adapter(proa_api *api, proa_http_exchange *x, bool load)
{
    proa_oai_error e;
    proa_err err = {.status = PROA_OK};
    proa_model_control *c = proa_model_control_new(api, load);
    c->client = x, c->answer = answer_client;
    bool ok = may_change(api, &e) && read_body(c, x, &e);
    if (ok && proa_model_control_start(c, proa_http_loop(x), &err) != PROA_OK) {
        proa_oai_error_of(&e, &err);
        ok = false;
    }
    if (!ok) {
        proa_oai_fail(x, &proa_oai_forms[PROA_OAI_CHAT], &e);
        proa_model_control_free(c);
        return;
    }
    x->user = c;
    proa_http_on_disconnect(x, on_disconnect);
}
