/* SPDX-License-Identifier: Apache-2.0
 * xml.c - expat with limits: paths of elements, their texts, no entities. */
#include "hub/cloud/xml.h"

#include <string.h>

static void stop_reader(proa_cloud_xml *r)
{
    r->expat->StopParser(r->parser, XML_FALSE);
}

static void XMLCALL begin_element(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    proa_cloud_xml *r = arg;
    size_t used = strlen(r->path), more = strlen(name);
    (void)attributes;
    proa_buf_clear(&r->text);
    if (r->depth_beyond || used + more + 2 > sizeof r->path) {
        if (++r->depth_beyond > 64)
            (void)PROA_FAIL(&r->err, CORRUPT, "elements are nested too deep"), stop_reader(r);
        return;
    }
    snprintf(r->path + used, sizeof r->path - used, "%s%s", used ? "/" : "", name);
}

static void XMLCALL end_element(void *arg, const XML_Char *name)
{
    proa_cloud_xml *r = arg;
    (void)name;
    if (r->depth_beyond) {
        r->depth_beyond--;
        return;
    }
    if (!r->on_end(r, r->path, proa_buf_view(&r->text))) stop_reader(r);
    char *slash = strrchr(r->path, '/');
    *(slash ? slash : r->path) = '\0';
    proa_buf_clear(&r->text);
}

static void XMLCALL take_text(void *arg, const XML_Char *text, int len)
{
    proa_cloud_xml *r = arg;
    if (proa_buf_append(&r->text, text, (size_t)len)) return;
    (void)PROA_FAIL(&r->err, LIMIT, "a text has more than %d bytes", PROA_CLOUD_XML_TEXT_MAX);
    stop_reader(r);
}

/* Entities, and with them texts that grow without end, need a document type. No store sends one. */
static void XMLCALL refuse_doctype(void *arg, const XML_Char *name, const XML_Char *system,
                                   const XML_Char *public, int internal)
{
    proa_cloud_xml *r = arg;
    (void)name, (void)system, (void)public, (void)internal;
    (void)PROA_FAIL(&r->err, CORRUPT, "it has a document type");
    stop_reader(r);
}

proa_status proa_cloud_xml_read(proa_cloud_xml *r, proa_str page, proa_err *err)
{
    PROA_TRY(proa_expat_open(&r->expat, err));
    const proa_expat *x = r->expat;
    r->parser = x->ParserCreate(NULL);
    if (!r->parser) return PROA_FAIL(err, NO_MEMORY, "libexpat has no memory");
    proa_buf_init(&r->text, PROA_CLOUD_XML_TEXT_MAX);
    x->SetUserData(r->parser, r);
    x->SetElementHandler(r->parser, begin_element, end_element);
    x->SetCharacterDataHandler(r->parser, take_text);
    x->SetStartDoctypeDeclHandler(r->parser, refuse_doctype);
    bool good = x->Parse(r->parser, page.ptr ? page.ptr : "", (int)page.len, 1) == XML_STATUS_OK;
    if (!good && r->err.status == PROA_OK)
        (void)PROA_FAIL(&r->err, CORRUPT, "line %lu: %s", (unsigned long)x->GetCurrentLineNumber(r->parser),
                        x->ErrorString(x->GetErrorCode(r->parser)));
    x->ParserFree(r->parser);
    proa_buf_release(&r->text);
    return proa_err_copy(err, &r->err);
}
