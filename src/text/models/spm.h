/* SPDX-License-Identifier: Apache-2.0
 * spm.h - SentencePiece's own normaliser and decoder, as steps of the pipeline; internal to this folder. */
#ifndef PROA_TEXT_MODELS_SPM_H
#define PROA_TEXT_MODELS_SPM_H

#include "text/pipeline.h"

/* Switches of both steps (proa_text_step.on). */
enum { PROA_SPM_DUMMY_PREFIX, PROA_SPM_SQUEEZE, PROA_SPM_ESCAPE, PROA_SPM_SUFFIX };

int proa_spm_byte(proa_str piece); /* the byte of "<0xNN>" (upper case), or -1 */

#endif
