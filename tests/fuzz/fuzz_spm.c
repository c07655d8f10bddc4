/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a SentencePiece model, alone and with the ids that fairseq gives its pieces. What opens must keep the
 * promises of check_text.h; what does not says why. */
#include "fuzz.h"

#include "check_text.h"
#include "text/pipeline.h"

static void check_opened(proa_status status, proa_tokenizer *tok, const proa_err *err)
{
    if (status != PROA_OK) {
        PROA_ASSERT(tok == NULL && strlen(err->text) > 0);
        return;
    }
    check_tokenizer(tok);
    proa_tokenizer_free(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const configs[] = {"{\"tokenizer_class\":\"XLMRobertaTokenizer\"}",
                                          "{\"tokenizer_class\":\"CamembertTokenizer\"}",
                                          "{\"tokenizer_class\":\"MBartTokenizer\",\"src_lang\":\"ro_RO\"}"};
    proa_tokenizer *tok = NULL;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_tokenizer_open_spm(&tok, data, size, "fuzz", &err);
    check_opened(status, tok, &err);
    for (size_t i = 0; i < PROA_COUNT(configs); i++) {
        proa_json *config = NULL;
        tok = NULL, err = (proa_err){.status = PROA_OK};
        PROA_ASSERT(proa_json_parse(&config, proa_str_c(configs[i]), "config", &err) == PROA_OK);
        status = proa_tokenizer_open_model(&tok, data, size, "fuzz", config, NULL, &err);
        check_opened(status, tok, &err);
        proa_json_free(config);
    }
    return 0;
}
