/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a template, rendered with a small conversation. What fails says why and leaves the output alone; what
 * renders does so twice with the same result. */
#include "fuzz.h"

#include "text/template.h"
#include <string.h>

static const char variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"h\\u00e9\\n\"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{"
    "\"a\":1}}}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],\"bos_token\":\"<s>\",\"eos_token\":"
    "\"</s>\","
    "\"add_generation_prompt\":true,\"s\":\"Hello, "
    "World\",\"n\":7,\"f\":2.5,\"xs\":[3,1,2],\"d\":{\"b\":2,\"a\":1}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_template *t = NULL;
    proa_json *vars;
    proa_buf first, second;
    proa_err err = {.status = PROA_OK};
    if (proa_template_new(&t, (proa_str){(const char *)data, size}, &err) != PROA_OK) {
        PROA_ASSERT(t == NULL && err.status != PROA_OK && strlen(err.text) > 0);
        return 0;
    }
    proa_buf_init(&first, 1 << 20);
    proa_buf_init(&second, 1 << 20);
    PROA_ASSERT(proa_json_parse(&vars, proa_str_c(variables), "variables", NULL) == PROA_OK);
    proa_status status = proa_template_render(t, vars, &first, &err);
    PROA_ASSERT(status == err.status);
    PROA_ASSERT(proa_template_render(t, vars, &second, NULL) == status);
    if (status != PROA_OK) PROA_ASSERT(first.len == 0 && strlen(err.text) > 0);
    else if (!memmem(data, size, "strftime_now", 12))
        PROA_ASSERT(proa_str_eq(proa_buf_view(&first), proa_buf_view(&second)));
    PROA_ASSERT(proa_utf8_valid(proa_buf_view(&first)));
    proa_json_free(vars);
    proa_buf_release(&first);
    proa_buf_release(&second);
    proa_template_free(t);
    return 0;
}
