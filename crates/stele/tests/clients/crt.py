"""Transfers by the AWS Common Runtime. Keys and endpoint come from the environment; ends with 'all held'."""

import os
import pathlib

import boto3
import botocore.session
from botocore.config import Config
from s3transfer.crt import (
    BotocoreCRTCredentialsWrapper,
    BotocoreCRTRequestSerializer,
    CRTTransferManager,
    create_s3_crt_client,
)

ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
REGION = os.environ["AWS_DEFAULT_REGION"]
PART = 5 << 20
PATIENCE = 120

s3 = boto3.client("s3", endpoint_url=ENDPOINT, config=Config(s3={"addressing_style": "path"}))
session = botocore.session.get_session()
credentials = BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
runtime = create_s3_crt_client(REGION, credentials, part_size=PART, use_ssl=ENDPOINT.startswith("https:"))
serializer = BotocoreCRTRequestSerializer(
    session, {"endpoint_url": ENDPOINT, "region_name": REGION, "config": Config(s3={"addressing_style": "path"})}
)

s3.create_bucket(Bucket="crt")
block = bytes(number * 197 >> 5 & 255 for number in range(65521))
files = {"small": block[:1000], "parts/ü & +": (block * (4 * PART // len(block) + 1))[: 4 * PART + 17]}
# A download's result is ready before its file has its name: only the manager's end waits for that too.
with CRTTransferManager(runtime, serializer) as transfers:
    for number, (key, data) in enumerate(files.items()):
        up = pathlib.Path(f"up-{number}")
        up.write_bytes(data)
        transfers.upload(str(up), "crt", key, {"Metadata": {"by": "crt"}}).result(PATIENCE)
        transfers.download("crt", key, f"down-{number}").result(PATIENCE)
for number, (key, data) in enumerate(files.items()):
    assert pathlib.Path(f"down-{number}").read_bytes() == data, f"{key} came back changed"
    assert s3.get_object(Bucket="crt", Key=key)["Body"].read() == data, f"{key} was stored changed"
    head = s3.head_object(Bucket="crt", Key=key)
    assert head["Metadata"] == {"by": "crt"}, head
    parts = head["ETag"].strip('"').partition("-")[2]
    assert parts == ("5" if len(data) > PART else ""), f"{key} has the ETag {head['ETag']}"
with CRTTransferManager(runtime, serializer) as transfers:
    transfers.delete("crt", "small").result(PATIENCE)
assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="crt")["Contents"]] == ["parts/ü & +"]
assert "Uploads" not in s3.list_multipart_uploads(Bucket="crt")
print("all held")
