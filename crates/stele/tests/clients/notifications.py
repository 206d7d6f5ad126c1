#!/usr/bin/env python3
"""Event notifications with boto3: what is told to a webhook and into a file, and that kill -9 loses no event.

Environment: STELE, the binary; DIRECTORY, an empty directory for the server. Exits 1 if something is not as documented.
"""

import atexit
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

STELE = os.environ["STELE"]
DIRECTORY = pathlib.Path(os.environ["DIRECTORY"])
PATIENCE = 60
failed = []


def check(name, holds, detail=""):
    print(f"ok      {name}" if holds else f"NOT OK  {name}  {detail}", flush=True)
    if not holds:
        failed.append(name)


def refused(name, code, call, **named):
    try:
        call(**named)
    except ClientError as error:
        check(name, error.response["Error"]["Code"] == code, str(error))
        return
    check(name, False, "was allowed")


class Hook(http.server.BaseHTTPRequestHandler):
    taken = []
    status = 200

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if Hook.status == 200:
            Hook.taken.append(json.loads(body))
        self.send_response(Hook.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
threading.Thread(target=hook.serve_forever, daemon=True).start()
told_file = DIRECTORY / "data" / "told.jsonl"


def start():
    log = open(DIRECTORY / "server.log", "a")
    arguments = ["up", "--json", "--listen", "127.0.0.1:0", "--drive-size", "256MiB", "--dir", str(DIRECTORY / "data")]
    child = subprocess.Popen([STELE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    atexit.register(child.kill)
    return child, json.loads(child.stdout.readline())


def client(ready):
    key = json.loads((DIRECTORY / "data" / "first-key.json").read_text())
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20)
    return boto3.client(
        "s3",
        endpoint_url=ready["endpoint"],
        region_name="us-east-1",
        aws_access_key_id=key["access_key"],
        aws_secret_access_key=key["secret_key"],
        config=config,
    )


def records():
    return [record for message in list(Hook.taken) for record in message.get("Records", [])]


def lines():
    return [json.loads(line) for line in told_file.read_text().splitlines()] if told_file.exists() else []


def wait(name, condition):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return check(name, True)
        time.sleep(0.1)
    check(name, False, f"webhook: {records()[-3:]} file: {lines()[-3:]}")


def names(found, key):
    return [record["eventName"] for record in found if record["s3"]["object"]["key"] == key]


server, ready = start()
server.terminate()
server.wait()
with open(DIRECTORY / "data" / "stele.toml", "a") as settings:
    settings.write(f'\n[notifications.hook]\nwebhook = "http://127.0.0.1:{hook.server_port}/events?token=secret"\n')
    settings.write('\n[notifications.told]\nfile = "told.jsonl"\n')
server, ready = start()
s3 = client(ready)
s3.create_bucket(Bucket="plain")
s3.create_bucket(Bucket="versioned")
s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})

QUEUE = {
    "Id": "created",
    "QueueArn": "arn:stele:sqs::hook:webhook",
    "Events": ["s3:ObjectCreated:*"],
    "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "in/"}, {"Name": "suffix", "Value": ".txt"}]}},
}
TOPIC = {"Id": "removed", "TopicArn": "arn:stele:sns::told:file", "Events": ["s3:ObjectRemoved:*", "s3:ObjectTagging:*"]}


def put(bucket="plain", **configuration):
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)


check("nothing is set at first", "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="plain"))
for name, change in [
    ("an unknown target", {"QueueArn": "arn:stele:sqs::other:webhook"}),
    ("a target of another form", {"QueueArn": "arn:stele:sqs::hook:file"}),
    ("an address", {"QueueArn": "http://169.254.169.254/latest"}),
    ("an address as a name", {"QueueArn": "arn:stele:sqs::http%3A//x:webhook"}),
    ("a queue of AWS", {"QueueArn": "arn:aws:sqs:us-east-1:123456789012:q"}),
    ("a topic in a queue", {"QueueArn": "arn:stele:sns::hook:webhook"}),
    ("an unknown event", {"Events": ["s3:ObjectRestore:*"]}),
]:
    refused(f"{name} is refused", "InvalidArgument", put, QueueConfigurations=[{**QUEUE, **change}])
refused("rules that overlap are refused", "InvalidArgument", put, QueueConfigurations=[QUEUE, {**QUEUE, "Id": "2"}])
put(QueueConfigurations=[QUEUE], TopicConfigurations=[TOPIC])
got = s3.get_bucket_notification_configuration(Bucket="plain")
check("the queues as they were set", got["QueueConfigurations"] == [QUEUE], got)
check("the topics as they were set", got["TopicConfigurations"] == [TOPIC], got)
wait("the webhook gets a test event", lambda: any(message.get("Event") == "s3:TestEvent" for message in Hook.taken))
wait("so does the file", lambda: any(line.get("Event") == "s3:TestEvent" for line in lines()))

etag = s3.put_object(Bucket="plain", Key="in/a b.txt", Body=b"seven b")["ETag"]
s3.put_object(Bucket="plain", Key="in/a.jpg", Body=b"x")
s3.put_object(Bucket="plain", Key="out/a.txt", Body=b"x")
s3.copy_object(Bucket="plain", Key="in/copy.txt", CopySource="plain/in/a b.txt")
upload = {"Bucket": "plain", "Key": "in/parts.txt"}
upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
part = s3.upload_part(**upload, PartNumber=1, Body=b"part")
s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
form = s3.generate_presigned_post("plain", "in/form.txt")
mark = "----form"
body = "".join(
    f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in form["fields"].items()
)
body += f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\nContent-Type: text/plain\r\n\r\nform\r\n--{mark}--\r\n'
head = {"Content-Type": f"multipart/form-data; boundary={mark}"}
urllib.request.urlopen(urllib.request.Request(f"{ready['endpoint']}/plain", body.encode(), head, method="POST"))
s3.put_object_tagging(Bucket="plain", Key="in/a.jpg", Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
s3.delete_object(Bucket="plain", Key="in/a.jpg")
wait("the webhook gets the last event", lambda: names(records(), "in/form.txt"))
for key, event in [
    ("in/a+b.txt", "ObjectCreated:Put"),
    ("in/copy.txt", "ObjectCreated:Copy"),
    ("in/parts.txt", "ObjectCreated:CompleteMultipartUpload"),
    ("in/form.txt", "ObjectCreated:Post"),
]:
    check(f"{event} is told", names(records(), key) == [event], names(records(), key))
check("another suffix is not", names(records(), "in/a.jpg") == [])
check("another prefix is not", names(records(), "out/a.txt") == [])
first = records()[0]
thing = first["s3"]["object"]
check("size and entity tag", (thing["size"], thing["eTag"]) == (7, etag.strip('"')), thing)
check("no version in a bucket without versions", "versionId" not in thing, thing)
check("the version of the record", (first["eventVersion"], first["eventSource"]) == ("2.1", "aws:s3"), first)
check("the address", first["requestParameters"]["sourceIPAddress"] == "127.0.0.1", first)
order = [record["s3"]["object"]["sequencer"] for record in records()]
check("in order", order == sorted(order), order)
found = lambda: [record for line in lines() for record in line.get("Records", [])]
wait("the file gets the removal", lambda: names(found(), "in/a.jpg") == ["ObjectTagging:Put", "ObjectRemoved:Delete"])

put("versioned", QueueConfigurations=[{**QUEUE, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"], "Filter": {}}])
version = s3.put_object(Bucket="versioned", Key="v", Body=b"1")["VersionId"]
marker = s3.delete_object(Bucket="versioned", Key="v")["VersionId"]
s3.delete_object(Bucket="versioned", Key="v", VersionId=version)
expected = ["ObjectCreated:Put", "ObjectRemoved:DeleteMarkerCreated", "ObjectRemoved:Delete"]
wait("a version, a marker above it and its removal", lambda: names(records(), "v") == expected)
ids = [record["s3"]["object"]["versionId"] for record in records() if record["s3"]["object"]["key"] == "v"]
check("... with their versions", ids == [version, marker, version], ids)

# The webhook refuses while objects come from several clients, and the server is killed among them.
Hook.status = 503
done, stop = [], threading.Event()


def write(number):
    own, at = client(ready), 0
    while not stop.is_set():
        key = f"in/{number}-{at}.txt"
        try:
            own.put_object(Bucket="plain", Key=key, Body=b"x")
        except (BotoCoreError, ClientError):
            return
        done.append(key)
        at += 1


writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
for writer in writers:
    writer.start()
while len(done) < 200:
    time.sleep(0.01)
server.send_signal(signal.SIGKILL)
server.wait()
stop.set()
for writer in writers:
    writer.join()
server, ready = start()
s3 = client(ready)
check("a server whose webhook refuses takes writes", s3.put_object(Bucket="plain", Key="in/last.txt", Body=b"x")["ETag"])
done.append("in/last.txt")
time.sleep(2)
# Killed again with events under way.
Hook.status = 200
time.sleep(0.3)
server.send_signal(signal.SIGKILL)
server.wait()
server, ready = start()
s3 = client(ready)
missing = lambda: set(done) - {record["s3"]["object"]["key"] for record in records()}
wait(f"kill -9 loses no event of {len(done)} acknowledged writes", lambda: not missing())
repeats = len(records()) - len({record["s3"]["object"]["sequencer"] for record in records()})
print(f"        {repeats} of {len(records())} came twice")
got = s3.get_bucket_notification_configuration(Bucket="plain")
check("the rules survive", got["QueueConfigurations"] == [QUEUE], got)
put()
check("an empty document removes them", "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="plain"))
server.terminate()
server.wait()
sys.exit(bool(failed))
