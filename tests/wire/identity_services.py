# SPDX-License-Identifier: Apache-2.0
"""The services that give machines, containers and applications their credentials, on this machine: Amazon's STS, container and
instance services, Google's metadata server, its token exchange and impersonation, Azure's authority and managed identities.
Written from their documents (the addresses are in src/hub/cloud/fetch_aws.c and fetch_bearer.c); the real SDKs take what they
give. Each answer is a new session of the store's key or a new bearer, which the store then wants."""
import contextlib
import datetime
import hashlib
import http.server
import json
import threading
import urllib.parse

import object_stores

IMDS_TOKEN, CONTAINER_TOKEN, WEB_TOKEN = "imds-token==", "container-token", "eyJ.web.identity"
ROLE, ROLE_ARN = "machine-role", "arn:aws:iam::123456789012:role/models"
IMPERSONATE = "/v1/projects/-/serviceAccounts/robot@project.iam:generateAccessToken"
TENANT, CLIENT, IDENTITY_HEADER = "tenant-1", "client-1", "identity-header"


class Service:
    def __init__(self, store):
        self.store, self.requests, self.grants = store, [], 0
        self.seconds = 3600  # until what is given ends
        self.broken = None   # a status for every request
        self.raw = None      # a body in place of the right one
        self.slow = 0
        self.region = None
        self.role = ROLE

    def end(self):
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.seconds)
        return when.strftime("%Y-%m-%dT%H:%M:%SZ")

    def key(self):
        self.grants += 1
        self.store.session = f"{object_stores.SESSION}{self.grants}"
        return {"AccessKeyId": object_stores.KEY_ID, "SecretAccessKey": object_stores.SECRET, "Token": self.store.session, "Expiration": self.end()}

    def bearer(self):
        self.grants += 1
        self.store.bearer = f"ya29.token{self.grants}"
        return self.store.bearer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_one(self, method):
        self.service = self.server.service
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.query = dict(urllib.parse.parse_qsl(url.query))
        self.form = dict(urllib.parse.parse_qsl(body))
        self.body = body
        self.service.requests.append({"method": method, "path": url.path, "query": self.query, "form": self.form, "body": body,
                                      "headers": {k.lower(): v for k, v in self.headers.items()}})
        if self.service.slow:
            threading.Event().wait(self.service.slow)
        if self.service.broken:
            return self.answer(self.service.broken, b"", {"Location": f"http://{self.headers['Host']}/elsewhere"})
        rules = {("PUT", "/latest/api/token"): self.imds_token, ("GET", "/latest/meta-data/iam/security-credentials/"): self.imds_role,
                 ("GET", f"/latest/meta-data/iam/security-credentials/{ROLE}"): self.imds_key, ("GET", "/latest/meta-data/placement/region"): self.imds_region,
                 ("GET", "/container"): self.container, ("POST", "/"): self.sts,
                 ("GET", "/computeMetadata/v1/instance/service-accounts/default/token"): self.gce,
                 ("GET", "/computeMetadata/v1/instance/service-accounts/default/"): lambda: {"email": "robot@project.iam", "scopes": []}, ("POST", "/exchange"): self.exchange,
                 ("POST", IMPERSONATE): self.impersonate, ("POST", f"/{TENANT}/oauth2/v2.0/token"): self.authority,
                 ("GET", "/metadata/identity/oauth2/token"): self.azure_instance, ("GET", "/msi/token"): self.azure_app}
        rule = rules.get((method, url.path))
        given = rule() if rule else None
        if given is None:
            return self.answer(400 if rule else 404, b'{"error": "invalid_request", "error_description": "the request is wrong"}')
        if self.service.raw is not None:
            given = self.service.raw
        self.answer(200, given.encode() if isinstance(given, str) else given if isinstance(given, bytes) else json.dumps(given).encode(),
                    {"Content-Type": "application/json", "Metadata-Flavor": "Google", "x-aws-ec2-metadata-token-ttl-seconds": "21600"})

    def do_GET(self):
        self.handle_one("GET")

    def do_PUT(self):
        self.handle_one("PUT")

    def do_POST(self):
        self.handle_one("POST")

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", len(body))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(body)

    # ---- Amazon ----

    def imds_token(self):
        return IMDS_TOKEN if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") == "21600" else None

    def imds(self, answer):
        return answer() if self.headers.get("X-aws-ec2-metadata-token") == IMDS_TOKEN else None

    def imds_role(self):
        return self.imds(lambda: self.service.role)

    def imds_key(self):
        return self.imds(lambda: {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", **self.service.key()})

    def imds_region(self):
        return self.imds(lambda: self.service.region)

    def container(self):
        return self.service.key() if self.headers.get("Authorization") == CONTAINER_TOKEN else None

    def sts(self):
        action, form = self.form.get("Action"), self.form
        web = action == "AssumeRoleWithWebIdentity" and form.get("WebIdentityToken") == WEB_TOKEN and "Authorization" not in self.headers
        role = action == "AssumeRole" and self.check_signature()
        if form.get("Version") != "2011-06-15" or form.get("RoleArn") != ROLE_ARN or not form.get("RoleSessionName") or not (web or role):
            return None
        key = self.service.key()
        return (f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><AssumedRoleUser><Arn>{ROLE_ARN}/x</Arn>'
                f"<AssumedRoleId>AROA:x</AssumedRoleId></AssumedRoleUser><Credentials><SessionToken>{key['Token']}</SessionToken>"
                f"<SecretAccessKey>{key['SecretAccessKey']}</SecretAccessKey><Expiration>{key['Expiration']}</Expiration>"
                f"<AccessKeyId>{key['AccessKeyId']}</AccessKeyId></Credentials></{action}Result>"
                f"<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>")

    def check_signature(self):
        """Signature Version 4 over the body, with the key "base-key"."""
        parts = dict(p.split("=", 1) for p in self.headers["Authorization"].split(" ", 1)[1].split(", "))
        key_id, *scope = parts["Credential"].split("/")
        names = parts["SignedHeaders"].split(";")
        if key_id != "base-key" or scope[2:] != ["sts", "aws4_request"] or "host" not in names or "x-amz-date" not in names:
            return False
        headers = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in names)
        request = "\n".join(["POST", "/", "", headers, ";".join(names), hashlib.sha256(self.body.encode()).hexdigest()])
        key = b"AWS4base-secret"
        for part in scope:
            key = object_stores.hmac256(key, part)
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
        return object_stores.hmac256(key, to_sign).hex() == parts["Signature"]

    # ---- Google ----

    def gce(self):
        if self.headers.get("Metadata-Flavor") != "Google":
            return None
        return {"access_token": self.service.bearer(), "expires_in": self.service.seconds, "token_type": "Bearer"}

    def exchange(self):
        form = self.form
        good = (form.get("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange" and form.get("audience") == "//iam/pool"
                and form.get("requested_token_type") == "urn:ietf:params:oauth:token-type:access_token"
                and form.get("subject_token") == WEB_TOKEN and form.get("subject_token_type") == "urn:ietf:params:oauth:token-type:jwt")
        return {"access_token": self.service.bearer(), "expires_in": str(self.service.seconds), "token_type": "Bearer"} if good else None

    def impersonate(self):
        if self.headers.get("Authorization") != f"Bearer {self.service.store.bearer}" or "scope" not in json.loads(self.body):
            return None
        return {"accessToken": self.service.bearer(), "expireTime": self.service.end()}

    # ---- Azure ----

    def azure(self, good, **more):
        return {"access_token": self.service.bearer(), "token_type": "Bearer", **more} if good else None

    def authority(self):
        form = self.form
        assertion = form.get("client_assertion") == WEB_TOKEN and form["client_assertion_type"].endswith(":jwt-bearer")
        return self.azure(form.get("grant_type") == "client_credentials" and form.get("client_id") == CLIENT
                          and "https://storage.azure.com/.default" in form.get("scope", "").replace("//.", "/.")
                          and (assertion or form.get("client_secret") == "client-secret"), expires_in=self.service.seconds)

    def azure_instance(self):
        return self.azure(self.headers.get("Metadata") == "true" and self.query.get("api-version") == "2018-02-01"
                          and self.query.get("resource", "").rstrip("/") == "https://storage.azure.com", expires_in=str(self.service.seconds))

    def azure_app(self):
        until = datetime.datetime.now().timestamp() + self.service.seconds
        return self.azure(self.headers.get("X-IDENTITY-HEADER") == IDENTITY_HEADER and self.query.get("api-version") == "2019-08-01"
                          and self.query.get("resource", "").rstrip("/") == "https://storage.azure.com", expires_on=str(int(until)))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


@contextlib.contextmanager
def serve(store):
    """The services; .host is their "127.0.0.1:PORT"."""
    server = Server(("127.0.0.1", 0), Handler)
    server.service = service = Service(store)
    service.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
