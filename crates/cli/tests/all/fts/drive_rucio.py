"""Rucio's own tool that drives FTS, against the service at URL, without a Rucio around it.

usage: drive_rucio.py URL TOKEN PORT FILES

FILES is JSON: {"NAME": [size, "adler32"]}, which lie at SITE_A below /a/test/. Prints one JSON object.
"""
import json
import os
import socket
import sys
import tempfile
import time

url, token, port, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
home = tempfile.mkdtemp()
config = os.path.join(home, "rucio.cfg")
with open(config, "w") as out:
    out.write(f"[database]\ndefault = sqlite:///{home}/rucio.db\n[policy]\npermission = generic\nschema = generic\n")
os.environ["RUCIO_CONFIG"] = config

import requests
import rucio.transfertool.fts3 as module
from rucio.common.types import InternalAccount, InternalScope
from rucio.common.utils import generate_uuid
from rucio.core.request import RequestSource, RequestWithSources, TransferDestination
from rucio.core.rse import RseData
from rucio.core.transfer import DirectTransferImplementation, ProtocolFactory
from rucio.db.sqla import models
from rucio.db.sqla.constants import RequestState, RequestType, RSEType
from rucio.db.sqla.session import get_engine, get_session

# Its schema, empty: it looks there for its sites and settings.
models.BASE.metadata.create_all(get_engine())
session = get_session()()
session.add(models.VO(vo="def", description="test", email="test@example.org"))
session.commit()
# It waits for five seconds otherwise, which a machine that is busy otherwise may take.
ask = requests.Session.request
requests.Session.request = lambda self, *what, **how: ask(self, *what, **{**how, "timeout": 120})
# Tokens come from an issuer otherwise; here there is one, the service's.
module.request_token = lambda audience, scope, **more: token
module.determine_audience_for_rse = lambda rse_id: "storage"
module.determine_scope_for_rse = lambda rse_id, scopes, extra_scopes=None: " ".join(scopes)


def site(name, prefix, port):
    domains = {d: dict(read=1, write=1, delete=1, third_party_copy_read=1, third_party_copy_write=1) for d in ("lan", "wan")}
    protocol = dict(scheme="davs", hostname="127.0.0.1", port=port, prefix=prefix,
                    impl="rucio.rse.protocols.webdav.Default", extended_attributes=None, domains=domains)
    info = dict(id=generate_uuid(), rse=name, rse_type="DISK", deterministic=True, domain=["lan", "wan"],
                verify_checksum=True, lfn2pfn_algorithm="identity", qos_class=None, availability_read=True,
                availability_write=True, availability_delete=True, read_protocol=1, write_protocol=1,
                delete_protocol=1, third_party_copy_read_protocol=1, third_party_copy_write_protocol=1,
                protocols=[protocol])
    session.add(models.RSE(id=info["id"], rse=name, vo="def", rse_type=RSEType.DISK, deterministic=True))
    session.commit()
    return RseData(id_=info["id"], name=name, columns={}, attributes=dict(fts=url), info=info)


SITE_A, SITE_B, SITE_C = site("SITE_A", "/a/", port), site("SITE_B", "/b/", port), site("SITE_C", "/c/", port)
# Nobody listens there.
AWAY = site("AWAY", "/a/", 9)
# Its connections are never accepted: what is asked there waits.
silence = socket.create_server(("127.0.0.1", 0))
SILENT = site("SILENT", "/a/", silence.getsockname()[1])
factory = ProtocolFactory()


def transfer(name, source=SITE_A, destination=SITE_B, others=()):
    size, adler32 = files[name]
    request = RequestWithSources(
        id_=generate_uuid(), request_type=RequestType.TRANSFER, rule_id=generate_uuid(), scope=InternalScope("test"),
        name=name, md5=None, adler32=adler32, byte_count=size, activity="User Subscriptions",
        attributes={"lifetime": None}, previous_attempt_id=None, dest_rse=destination, account=InternalAccount("root"),
        retry_count=0, priority=3, transfertool="fts3")
    made = DirectTransferImplementation(
        source=RequestSource(source, scheme="davs"), destination=TransferDestination(destination, "davs"), rws=request,
        protocol_factory=factory, operation_src="third_party_copy_read", operation_dest="third_party_copy_write")
    made.sources.extend(RequestSource(other, scheme="davs") for other in others)
    return made


tool = module.FTS3Transfertool(external_host=url, oidc_support=True, group_bulk=10, group_policy="src_dest",
                               max_time_in_queue={"default": "36h"})


def submit(*paths):
    (job,) = tool.group_into_submit_jobs(list(paths))
    return tool.submit(**job)


def requests(transfers, job):
    return {t.rws.request_id: dict(
        id=t.rws.request_id, request_id=t.rws.request_id, external_id=job, state=RequestState.SUBMITTED,
        bytes=t.rws.byte_count, adler32=t.rws.adler32, md5=None, attributes={}, external_host=url) for t in transfers}


said = {"whoami": tool.whoami(), "version": tool.version()}
bulk = [transfer(name) for name in ("one", "two", "wrong")]
several = transfer("three", source=AWAY, others=[SITE_A])
hops = [transfer("four", SITE_A, SITE_C), transfer("four", SITE_C, SITE_B)]
jobs = {"bulk": (submit(*[[t] for t in bulk]), bulk), "several": (submit([several]), [several]),
        "hops": (submit(hops), hops)}
lost = "00000000-dead-beef-0000-000000000000"
asked = {job: requests(transfers, job) for job, transfers in jobs.values()}
asked[lost] = {"x": {"external_id": lost}}
names = {t.rws.request_id: f"{t.rws.name} {t.dst.rse.name}" for _, transfers in jobs.values() for t in transfers}
for _ in range(3000):
    told = tool.bulk_query(asked)
    reports = {names[request]: report.get_db_fields_to_update(session)
               for reports in told.values() if isinstance(reports, dict) for request, report in reports.items()}
    if len(reports) == len(names) and all(fields and "state" in fields for fields in reports.values()):
        break
    time.sleep(0.1)
said["reports"] = {name: str(fields.get("state")) for name, fields in reports.items()}
said["errors"] = {name: str(fields.get("err_msg")) for name, fields in reports.items()}
said["lost"] = told[lost] is None
# The same one twice is one.
tool.deterministic_id = True
twice = transfer("one", SITE_A, SITE_C)
said["twice"] = [submit([twice]), submit([twice])]
# It does not end by itself so soon.
cancelled = submit([transfer("two", SILENT, SITE_C)])
said["priority"] = tool.update_priority(cancelled, 5)["priority"]
said["cancelled"] = tool.cancel([cancelled])["job_state"]
print(json.dumps(said))
