/* SPDX-License-Identifier: Apache-2.0
 * expat.h - the XML parser expat, opened at run time: only listings of object stores need it.
 * Owner:   the process; it stays open.
 * Threads: any. */
#ifndef PROA_HUB_CLOUD_EXPAT_H
#define PROA_HUB_CLOUD_EXPAT_H

#include "base/status.h"
#include <expat.h>

#define PROA_EXPAT_LIST(X)                                                                                   \
    X(ErrorString)                                                                                           \
    X(GetCurrentLineNumber)                                                                                  \
    X(GetErrorCode)                                                                                          \
    X(Parse)                                                                                                 \
    X(ParserCreate)                                                                                          \
    X(ParserFree)                                                                                            \
    X(SetCharacterDataHandler)                                                                               \
    X(SetElementHandler)                                                                                     \
    X(SetStartDoctypeDeclHandler)                                                                            \
    X(SetUserData)                                                                                           \
    X(StopParser)

#define PROA_EXPAT_FIELD(name) __typeof__(XML_##name) *name;
typedef struct proa_expat {
    PROA_EXPAT_LIST(PROA_EXPAT_FIELD)
} proa_expat;

/* UNSUPPORTED if libexpat is not installed. */
PROA_MUST_CHECK proa_status proa_expat_open(const proa_expat **out, proa_err *err);

#endif
