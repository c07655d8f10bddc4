/* SPDX-License-Identifier: Apache-2.0
 * bleu_of.c - BLEU of two files by the program's own code: score, brevity penalty, tokens, precisions. Driven by
 * test_eval.py, which compares with sacrebleu. */
#include "cli/eval/bleu.h"
#include "cli/lines.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    proa_line_list hyp, ref;
    proa_err err = {0};
    if (argc != 3) return 2;
    if (proa_line_list_read(&hyp, argv[1], &err) != PROA_OK ||
        proa_line_list_read(&ref, argv[2], &err) != PROA_OK || hyp.count != ref.count) {
        fprintf(stderr, "bleu_of: %s\n", err.text[0] ? err.text : "the files have different numbers of lines");
        return 1;
    }
    proa_bleu bleu;
    proa_bleu_init(&bleu);
    for (int64_t i = 0; i < hyp.count; i++) proa_bleu_add(&bleu, hyp.line[i], ref.line[i]);
    proa_bleu_result r = proa_bleu_score(&bleu);
    printf("%.17g %.17g %lld %lld", r.score, r.brevity, (long long)bleu.hyp_tokens, (long long)bleu.ref_tokens);
    for (int n = 0; n < PROA_BLEU_ORDERS; n++) printf(" %.17g", r.precisions[n]);
    printf("\n");
    proa_bleu_release(&bleu);
    proa_line_list_release(&hyp);
    proa_line_list_release(&ref);
    return 0;
}
