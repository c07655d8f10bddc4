/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tiktoken.c - any bytes as a vocabulary of tiktoken: the file's name on the first line, tokenizer_config.json
 * (or nothing) on the second, then the file. What opens must keep the promises of check_text.h. */
#include "fuzz.h"

#include "check_text.h"
#include "text/load/load.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_tokenizer *tok = NULL;
    proa_err err = {.status = PROA_OK};
    proa_json *config = NULL;
    proa_str rest = {(const char *)data, size}, line = {"", 0}, name = {"", 0};
    char file[64];
    if (!proa_next_line(&rest, &name) || !proa_next_line(&rest, &line)) return 0;
    snprintf(file, sizeof file, "%.*s", name.len > 60 ? 60 : (int)name.len, name.ptr);
    if (line.len && proa_json_parse(&config, line, "config", &err) != PROA_OK) return 0;
    proa_status status = proa_tokenizer_open_tiktoken(&tok, rest, file, "fuzz", config, &err);
    proa_json_free(config);
    if (status != PROA_OK) {
        PROA_ASSERT(tok == NULL && strlen(err.text) > 0);
        return 0;
    }
    check_tokenizer(tok);
    proa_tokenizer_free(tok);
    return 0;
}
