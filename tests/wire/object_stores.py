# SPDX-License-Identifier: Apache-2.0
"""Object stores on this machine: S3, Google's and Azure's protocol, with signatures checked as their documents say, and with
faults on demand. Written from the documents, not from Proa's code:

S3     docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, API_ListObjectsV2.html
Azure  learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key, list-blobs
Google cloud.google.com/storage/docs/json_api/v1/objects, developers.google.com/identity/protocols/oauth2/service-account
"""
import base64
import contextlib
import hashlib
import hmac
import http.server
import json
import pathlib
import subprocess
import tempfile
import threading
import urllib.parse
from xml.sax.saxutils import escape

KEY_ID, SECRET, SESSION = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "session+token/with=signs"
ACCOUNT, ACCOUNT_KEY = "account1", base64.b64encode(b"an account's key of 32 bytes....").decode()


def md5(data):
    return hashlib.md5(data).hexdigest()


def md5_base64(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def hmac256(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Store:
    """One bucket "models". objects: key to bytes; a change of bytes is a change of the etag."""

    def __init__(self, kind):
        self.kind, self.objects, self.faults, self.requests = kind, {}, [], []
        self.page = 1000
        self.anonymous = False
        self.session = None
        self.bearer = "ya29.token"  # of Google and, in place of a key, of Azure
        self.public_key = None  # of Google's service account, as a path of a PEM file
        self.kms = False
        self.lock = threading.Lock()

    def put_folder(self, folder, prefix):
        for path in sorted(pathlib.Path(folder).rglob("*")):
            key = prefix + str(path.relative_to(folder))
            if path.is_file():
                self.objects[key] = path.read_bytes()
            elif not any(path.iterdir()):
                self.objects[key + "/"] = b""

    def fault(self, match, count=1, **what):
        """The next `count` requests whose path and query contain `match`: status=503, cut=BYTES, text=BYTES, headers={}, wrong=True."""
        self.faults.append({"match": match, "count": count, **what})

    def seen(self, text):
        return [r for r in self.requests if text in r["path"]]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", len(body))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, message):
        if self.store.kind == "gs":
            self.answer(status, json.dumps({"error": {"code": status, "message": message}}).encode())
        else:
            self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>".encode())

    def do_POST(self):
        self.store = self.server.store
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.store.requests.append({"path": self.path, "form": form, "headers": dict(self.headers)})
        if self.path != "/token" or not self.server.check_claim(form):
            return self.answer(400, b'{"error": "invalid_grant", "error_description": "the claim is wrong"}')
        self.answer(200, b'{"access_token": "ya29.token", "expires_in": 3599, "token_type": "Bearer"}')

    def do_GET(self):
        self.store = self.server.store
        url = urllib.parse.urlsplit(self.path)
        self.path_only, self.query = url.path, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        fault = None
        with self.store.lock:
            self.store.requests.append({"path": urllib.parse.unquote(self.path), "headers": dict(self.headers)})
            fault = next((f for f in self.store.faults if f["count"] > 0 and f["match"] in urllib.parse.unquote(self.path)), None)
            if fault:
                fault["count"] -= 1
        if fault and "status" in fault:
            return self.answer(fault["status"], fault.get("text", b""), **fault.get("headers", {}))
        if fault and "text" in fault:
            return self.answer(200, fault["text"])
        problem = None if self.store.anonymous else getattr(self, "check_" + self.store.kind)()
        if problem:
            return self.refuse(403, "SignatureDoesNotMatch" if self.store.kind == "s3" else "AuthenticationFailed", problem)
        getattr(self, "get_" + self.store.kind)(fault or {})

    # ---- signatures ----

    def check_s3(self):
        text = self.headers.get("Authorization", "")
        if not text.startswith("AWS4-HMAC-SHA256 "):
            return "no signature"
        parts = dict(part.split("=", 1) for part in text.split(" ", 1)[1].split(", "))
        key_id, *scope = parts["Credential"].split("/")
        date = self.headers["x-amz-date"]
        if key_id != KEY_ID or scope[0] != date[:8] or scope[2:] != ["s3", "aws4_request"]:
            return "the scope is wrong"
        if self.headers.get("x-amz-security-token") != self.store.session:
            return "the session token is wrong"
        names = parts["SignedHeaders"].split(";")
        must = {"host"} | {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if names != sorted(names) or not must <= set(names):
            return "headers are not signed"
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(b"").hexdigest():
            return "the body's sum is wrong"
        path = urllib.parse.quote(urllib.parse.unquote(self.path_only), safe="/-_.~")
        query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}" for k, v in sorted(self.query.items()))
        headers = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in names)
        request = "\n".join(["GET", path, query, headers, ";".join(names), self.headers["x-amz-content-sha256"]])
        key = ("AWS4" + SECRET).encode()
        for part in scope:
            key = hmac256(key, part)
        to_sign = "\n".join(["AWS4-HMAC-SHA256", date, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
        return None if hmac256(key, to_sign).hex() == parts["Signature"] else "the signature is wrong"

    def check_as(self):
        if self.query.get("sig"):
            return None if self.query["sig"] == "sas+secret/=" and self.query.get("sv") else "the SAS is wrong"
        scheme, _, rest = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Bearer":
            return None if rest == self.store.bearer and self.headers.get("x-ms-version") else "the bearer is wrong"
        account, _, signature = rest.partition(":")
        if scheme != "SharedKey" or account != ACCOUNT or not self.headers.get("x-ms-version"):
            return "no shared key"
        lines = ["GET"] + [self.headers.get(name, "") for name in (
            "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date", "If-Modified-Since",
            "If-Match", "If-None-Match", "If-Unmodified-Since", "Range")]
        lines += [f"{name}:{self.headers[name]}" for name in sorted(n.lower() for n in self.headers) if name.startswith("x-ms-")]
        lines += [f"/{ACCOUNT}{self.path_only}"] + [f"{k.lower()}:{v}" for k, v in sorted(self.query.items())]
        expected = base64.b64encode(hmac256(base64.b64decode(ACCOUNT_KEY), "\n".join(lines))).decode()
        return None if signature == expected else "the signature is wrong"

    def check_gs(self):
        return None if self.headers.get("Authorization") == f"Bearer {self.store.bearer}" else "no token"

    # ---- objects ----

    def page_of(self, prefix, start):
        keys = sorted(k for k in self.store.objects if k.startswith(prefix))
        keys = [k for k in keys if k > start] if start else keys
        return keys[:self.store.page], keys[self.store.page - 1] if len(keys) > self.store.page else ""

    def send_object(self, key, fault, etag, wanted=None, **headers):
        if key not in self.store.objects:
            return self.refuse(404, "NoSuchKey", "The specified key does not exist.")
        data, status = self.store.objects[key], 200
        if wanted is not None and wanted != etag:
            return self.refuse(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        if self.headers.get("Range"):
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            total, status = len(data), 206
            data = data[int(first):int(last) + 1]
            headers["Content_Range"] = f"bytes {first}-{int(first) + len(data) - 1}/{total}"
        if fault.get("wrong"):
            data = b"?" * len(data)
        self.send_response(status)
        for name, value in {**headers, "ETag": f'"{etag}"', **fault.get("headers", {})}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", len(data))
        self.end_headers()
        if "cut" in fault:
            self.wfile.write(data[:fault["cut"]])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(data)

    def get_s3(self, fault):
        _, bucket, *rest = urllib.parse.unquote(self.path_only).split("/", 2)
        if bucket != "models":
            return self.refuse(404, "NoSuchBucket", "The specified bucket does not exist")
        if self.query.get("list-type") != "2":
            key = rest[0]
            data = self.store.objects.get(key, b"")
            headers = {"x_amz_server_side_encryption": "aws:kms"} if self.store.kms else {}
            wanted = self.headers.get("If-Match")
            return self.send_object(key, fault, self.etag_s3(data), wanted.strip('"') if wanted else None, **headers)
        start = base64.b64decode(self.query.get("continuation-token", "")).decode()
        keys, more = self.page_of(self.query["prefix"], start)
        rows = "".join(f"<Contents><Key>{urllib.parse.quote_plus(k, safe='/')}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                       f"<ETag>&quot;{self.etag_s3(self.store.objects[k])}&quot;</ETag><Size>{len(self.store.objects[k])}</Size>"
                       f"</Contents>" for k in keys)
        token = f"<NextContinuationToken>{base64.b64encode(more.encode()).decode()}</NextContinuationToken>" if more else ""
        self.answer(200, f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                    f"<Name>models</Name>{rows}<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}"
                    f"<EncodingType>url</EncodingType></ListBucketResult>".encode())

    def etag_s3(self, data):
        if self.store.kms:
            return hashlib.md5(b"key" + data).hexdigest()
        return md5(data) if len(data) < 100000 else md5(data) + "-2"  # as of an upload in parts

    def get_as(self, fault):
        _, container, *rest = urllib.parse.unquote(self.path_only).split("/", 2)
        if container != "models":
            return self.refuse(404, "ContainerNotFound", "The specified container does not exist.")
        if self.query.get("comp") != "list":
            wanted = self.headers.get("If-Match")
            return self.send_object(rest[0], fault, "0x8D" + md5(self.store.objects.get(rest[0], b""))[:12],
                                    wanted.strip('"') if wanted else None)
        keys, more = self.page_of(self.query["prefix"], self.query.get("marker", ""))
        rows = "".join(f"<Blob><Name>{escape(k)}</Name><Properties><Etag>0x8D{md5(self.store.objects[k])[:12]}</Etag>"
                       f"<Content-Length>{len(self.store.objects[k])}</Content-Length>"
                       f"<Content-MD5>{md5_base64(self.store.objects[k])}</Content-MD5></Properties></Blob>" for k in keys)
        self.answer(200, f"\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{rows}</Blobs>"
                    f"<NextMarker>{escape(more)}</NextMarker></EnumerationResults>".encode())

    def get_gs(self, fault):
        parts = self.path_only.split("/")
        if parts[:5] != ["", "storage", "v1", "b", "models"]:
            return self.refuse(404, "notFound", "The specified bucket does not exist.")
        if len(parts) > 6:
            key = urllib.parse.unquote(parts[6])
            return self.send_object(key, fault, self.generation(key), self.query.get("generation"))
        keys, more = self.page_of(self.query["prefix"], self.query.get("pageToken", ""))
        items = [{"name": k, "size": str(len(self.store.objects[k])), "md5Hash": md5_base64(self.store.objects[k]),
                  "etag": "C" + self.generation(k), "generation": self.generation(k)} for k in keys]
        self.answer(200, json.dumps({"items": items, **({"nextPageToken": more} if more else {})}).encode())

    def generation(self, key):
        return str(int(md5(self.store.objects.get(key, b""))[:12], 16))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def check_claim(self, form):
        """The claim of a service account, whose signature openssl checks."""
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return False
        head, claim, signature = form["assertion"].split(".")
        pad = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        claims = json.loads(pad(claim))
        if json.loads(pad(head)) != {"alg": "RS256", "typ": "JWT"} or claims["iss"] != "robot@project.iam" or \
                claims["aud"] != f"http://{self.server_name_port}/token" or not claims["scope"].endswith("devstorage.read_only") or \
                claims["exp"] - claims["iat"] != 3600:
            return False
        with tempfile.NamedTemporaryFile() as file:
            file.write(pad(signature))
            file.flush()
            return subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.store.public_key, "-signature", file.name],
                                  input=f"{head}.{claim}".encode(), stdout=subprocess.DEVNULL).returncode == 0


@contextlib.contextmanager
def serve(kind):
    """A store of kind "s3", "as" or "gs"; .host is its "127.0.0.1:PORT"."""
    server = Server(("127.0.0.1", 0), Handler)
    server.store = store = Store(kind)
    store.host = server.server_name_port = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
