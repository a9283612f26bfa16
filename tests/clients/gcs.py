"""A server with one bucket that answers as the XML interface of Google's storage does: what object_store sends, and nothing
else. It takes only tokens that the account's key has signed. Arguments: port, bucket, e-mail of the account, its public key.

Answers follow Google's description of the interface: objects are whole or not there, every write has a generation, parts
other than the last have at least 5 MiB, and a list has pages (of five, so that there are some)."""
import base64, hashlib, http.server, json, re, subprocess, sys, tempfile, threading, time, urllib.parse
from email.utils import formatdate
from xml.sax.saxutils import escape

PORT, BUCKET, EMAIL, PUBLIC_KEY = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
PAGE, LEAST_PART = 5, 5 << 20
SCOPES = {"https://www.googleapis.com/auth/" + name for name in ("cloud-platform", "devstorage.full_control", "devstorage.read_write")}
lock, objects, uploads, tokens, generation = threading.Lock(), {}, {}, {}, [0]


class Refused(Exception):
    def __init__(self, status, code, message):
        self.status, self.code, self.message = status, code, message


def unpack(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def claims_of(token):
    """What a token claims, if the account has signed it; asked once, since openssl is a process."""
    if token not in tokens:
        try:
            head, body, signature = token.split(".")
            assert json.loads(unpack(head))["alg"] == "RS256"
            with tempfile.NamedTemporaryFile() as file:
                file.write(unpack(signature))
                file.flush()
                command = ["openssl", "dgst", "-sha256", "-verify", PUBLIC_KEY, "-signature", file.name]
                subprocess.run(command, input=f"{head}.{body}".encode(), check=True, capture_output=True)
            tokens[token] = json.loads(unpack(body))
        except (AssertionError, KeyError, ValueError, subprocess.CalledProcessError):
            tokens[token] = None
    return tokens[token]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.check_token()
            address = urllib.parse.urlsplit(self.path)
            _, bucket, *key = address.path.split("/", 2)
            if urllib.parse.unquote(bucket) != BUCKET:
                raise Refused(404, "NoSuchBucket", "The specified bucket does not exist.")
            query = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
            with lock:
                self.act(urllib.parse.unquote(key[0]) if key else "", query, body)
        except Refused as why:
            text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{why.code}</Code><Message>{escape(why.message)}</Message></Error>"
            self.answer(why.status, text.encode(), Content_Type="application/xml; charset=UTF-8")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def check_token(self):
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        claims, now = claims_of(token), time.time()
        if not claims or claims["iss"] != EMAIL or not claims["iat"] - 60 <= now < claims["exp"] <= claims["iat"] + 3600:
            raise Refused(401, "AuthenticationRequired", "Authentication required.")
        if claims["scope"] not in SCOPES:
            raise Refused(403, "AccessDenied", "Access denied.")

    def act(self, key, query, body):
        what = (self.command, *sorted(query))
        if not key:
            if self.command == "GET" and query.get("list-type") == "2":
                return self.list(query)
        elif what in (("GET",), ("HEAD",)):
            return self.read(key)
        elif what == ("PUT",):
            return self.write(key, body)
        elif what == ("DELETE",):
            if objects.pop(key, None) is None:
                raise Refused(404, "NoSuchKey", "The specified key does not exist.")
            return self.answer(204)
        elif what == ("POST", "uploads"):
            upload = f"upload-{len(uploads)}/+={time.time_ns()}"
            uploads[upload] = (key, {})
            return self.xml("InitiateMultipartUploadResult", f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>")
        elif "uploadId" in query:
            target, parts = uploads.get(query["uploadId"], (None, {}))
            if target != key:
                raise Refused(404, "NoSuchUpload", "The requested upload was not found.")
            if what == ("PUT", "partNumber", "uploadId") and 1 <= int(query["partNumber"]) <= 10000:
                parts[int(query["partNumber"])] = body
                return self.answer(200, ETag=tag(body))
            if what == ("DELETE", "uploadId"):
                del uploads[query["uploadId"]]
                return self.answer(204)
            if what == ("POST", "uploadId"):
                return self.complete(key, query["uploadId"], parts, body)
        raise Refused(400, "InvalidArgument", f"{self.command} {self.path}")

    def xml(self, name, inside, **headers):
        text = f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>{inside}</{name}>"
        self.answer(200, text.encode(), Content_Type="application/xml; charset=UTF-8", **headers)

    def store(self, key, data):
        generation[0] += 1
        objects[key] = (data, generation[0], time.time())
        return {"ETag": tag(data), "x_goog_generation": str(generation[0])}

    def write(self, key, body):
        if self.headers.get("x-goog-if-generation-match", "") == "0" and key in objects:
            raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
        if "Content-Length" not in self.headers:
            raise Refused(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
        self.answer(200, **self.store(key, body))

    def complete(self, key, upload, parts, body):
        named = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>", body.decode()) or [
            (number, etag) for etag, number in re.findall(r"<Part><ETag>([^<]*)</ETag><PartNumber>(\d+)</PartNumber></Part>", body.decode())]
        numbers = [int(number) for number, _ in named]
        if not named or numbers != sorted(set(numbers)):
            raise Refused(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
        for number, etag in named:
            if int(number) not in parts or tag(parts[int(number)]) != etag.replace("&quot;", '"'):
                raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if any(len(parts[number]) < LEAST_PART for number in numbers[:-1]):
            raise Refused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum object size.")
        del uploads[upload]
        headers = self.store(key, b"".join(parts[number] for number in numbers))
        etag = headers.pop("ETag")
        self.xml("CompleteMultipartUploadResult", f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><ETag>{escape(etag)}</ETag>", **headers)

    def read(self, key):
        if key not in objects:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        data, number, when = objects[key]
        headers = {"ETag": tag(data), "x_goog_generation": str(number), "Last_Modified": formatdate(when, usegmt=True),
                   "Content_Type": "application/octet-stream", "Accept_Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, data, **headers)
        first, last = asked.groups()
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            raise Refused(416, "InvalidRange", "The requested range cannot be satisfied.")
        self.answer(206, data[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(data)}", **headers)

    def list(self, query):
        if query.keys() - {"list-type", "prefix", "delimiter", "continuation-token", "start-after", "max-keys"}:
            raise Refused(400, "InvalidArgument", self.path)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("continuation-token", query.get("start-after", ""))
        names = sorted(name for name in objects if name.startswith(prefix))
        entries, folders = [], set()
        for name in names:
            rest = name[len(prefix):]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            elif name > after:
                entries.append(name)
        page, more = entries[:PAGE], len(entries) > PAGE
        inside = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            inside += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        for name in page:
            data, number, when = objects[name]
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(when))
            inside += (f"<Contents><Key>{escape(name)}</Key><Generation>{number}</Generation><LastModified>{stamp}</LastModified>"
                       f"<ETag>{escape(tag(data))}</ETag><Size>{len(data)}</Size></Contents>")
        inside += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        self.xml("ListBucketResult", inside)


def tag(data):
    return '"' + hashlib.md5(data).hexdigest() + '"'


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
