/* SPDX-License-Identifier: Apache-2.0
 * fuzz_bpe_codes.c - any bytes as subword-nmt's codes: pieces of a vocabulary, one a line, up to an empty line, then
 * the codes. What opens must keep the promises of check_text.h. */
#include "fuzz.h"

#include "check_text.h"
#include "text/load/load.h"

#define PIECES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static proa_str pieces[PIECES_MAX];
    proa_tokenizer *tok = NULL;
    proa_err err = {.status = PROA_OK};
    proa_piece_list list = {pieces, 0};
    proa_str rest = {(const char *)data, size}, line;
    while (list.len < PIECES_MAX && proa_next_line(&rest, &line) && line.len) pieces[list.len++] = line;
    proa_buf json;
    proa_buf_init(&json, (size_t)PROA_TOKENIZER_BYTES_MAX);
    proa_status status = proa_bpe_codes_write(&json, rest, &list, &err);
    if (status == PROA_OK && !json.full)
        status = proa_tokenizer_open_json(&tok, proa_buf_view(&json), "fuzz", &err);
    if (status != PROA_OK) PROA_ASSERT(tok == NULL && strlen(err.text) > 0);
    if (tok) check_tokenizer(tok);
    proa_tokenizer_free(tok);
    proa_buf_release(&json);
    return 0;
}
