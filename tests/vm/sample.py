"""A host for the tests of the driver itself: one unit, one user, nothing of the services."""

import hashlib

from tests.vm.payload import File, Group, Host, User

SAMPLE_UNIT = """\
[Unit]
Description=A unit of the driver's own tests

[Service]
Type=oneshot
RemainAfterExit=yes
User=sample
ExecStart=/bin/sh -c 'id -un >&2'

[Install]
WantedBy=multi-user.target
"""


def sample_host() -> Host:
    return Host(
        version=1,
        host="sample",
        units={"sample.service": SAMPLE_UNIT},
        unit_sha256={"sample.service": hashlib.sha256(SAMPLE_UNIT.encode()).hexdigest()},
        unit_links={"multi-user.target.wants/sample.service": "../sample.service"},
        etc={"sample/file": File(text="of the host\n", mode="0440", user="sample", group="sample")},
        users={
            "sample": User(  # noqa: S604 - a login shell
                uid=None,
                group="sample",
                system=True,
                home="/var/lib/sample",
                create_home=True,
                shell="/bin/sh",
                description="Sample",
                extra_groups=["adm"],
            )
        },
        groups={"sample": Group(gid=None, members=[])},
        tmpfiles=["d /run/sample 0750 sample sample - -"],
        sysctl={"vm.overcommit_memory": "1"},
        files={"/nix/store/0-sample/bin/hello": File(text="#!/bin/sh\necho hello\n", mode="0555")},
        links={"/nix/store/0-sample/bin/date": "/usr/bin/date"},
        commands={"hello": "/nix/store/0-sample/bin/hello"},
    )
