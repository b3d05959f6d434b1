"""Copies a tree to or from S3 with s3transfer's manager on Amazon's common runtime (awscrt), which
is what the AWS CLI uses with `preferred_transfer_client = crt`.

usage: common_runtime.py FROM TO ENDPOINT, one of FROM and TO an s3://bucket/prefix
"""

import os
import sys

import botocore.session
from s3transfer.crt import (
    BotocoreCRTCredentialsWrapper,
    BotocoreCRTRequestSerializer,
    CRTTransferManager,
    create_s3_crt_client,
)


def split(address):
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return bucket, prefix


def main(source, target, endpoint):
    session = botocore.session.get_session()
    region = os.environ.get("AWS_REGION", "us-east-1")
    wrapper = BotocoreCRTCredentialsWrapper(session.get_credentials())
    client = create_s3_crt_client(
        region=region,
        crt_credentials_provider=wrapper.to_crt_credentials_provider(),
        use_ssl=endpoint.startswith("https"),
    )
    serializer = BotocoreCRTRequestSerializer(
        session, {"region_name": region, "endpoint_url": endpoint}
    )
    with CRTTransferManager(client, serializer) as manager:
        futures = []
        if target.startswith("s3://"):
            bucket, prefix = split(target)
            for folder, _, names in os.walk(source):
                for name in names:
                    path = os.path.join(folder, name)
                    key = f"{prefix}/{os.path.relpath(path, source)}"
                    futures.append(manager.upload(path, bucket, key))
        else:
            bucket, prefix = split(source)
            s3 = session.create_client("s3", region_name=region, endpoint_url=endpoint)
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
            for page in pages:
                for found in page.get("Contents", []):
                    path = os.path.join(target, os.path.relpath(found["Key"], prefix))
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    futures.append(manager.download(bucket, found["Key"], path))
        for future in futures:
            future.result()


main(*sys.argv[1:])
