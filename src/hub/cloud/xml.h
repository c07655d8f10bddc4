/* SPDX-License-Identifier: Apache-2.0
 * xml.h - reads an answer of an object store in XML: elements by their paths, with limits. A document type is refused.
 * Owner:   the caller. Threads: one at a time. */
#ifndef PROA_HUB_CLOUD_XML_H
#define PROA_HUB_CLOUD_XML_H

#include "base/str.h"
#include "hub/cloud/expat.h"

enum { PROA_CLOUD_XML_PATH_MAX = 128, PROA_CLOUD_XML_TEXT_MAX = 8192 };

typedef struct proa_cloud_xml {
    const proa_expat *expat;
    XML_Parser parser;
    /* called at the end of an element; false ends the parse */
    bool (*on_end)(struct proa_cloud_xml *r, const char *path, proa_str text);
    void *arg;
    char path[PROA_CLOUD_XML_PATH_MAX]; /* "ListBucketResult/Contents/Key" */
    int depth_beyond;                   /* elements below a path that was too long */
    proa_buf text;                      /* of the innermost element */
    proa_err err;
} proa_cloud_xml;

/* Calls on_end, which the caller sets, for each element. CORRUPT for what is not well formed; what on_end leaves in err
 * if it ends the parse. */
PROA_MUST_CHECK proa_status proa_cloud_xml_read(proa_cloud_xml *r, proa_str page, proa_err *err);

#endif
