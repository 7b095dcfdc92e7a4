"""What the renderer makes of a host, and what it refuses; a sample stands for any module."""

import hashlib
from pathlib import Path

import pytest

from tests.nix import nix, render, verify
from tests.nix.render import derivations
from tests.nix.render.outputs import BuildError
from tests.nix.render.places import UnknownPackageError

SAMPLE = Path(__file__).parent / "samples" / "module.nix"


def sample(folder: Path, settings: str = "") -> render.Rendered:
    host = folder / "host.nix"
    host.write_text(
        f"{{ lib, pkgs, ... }}: {{ services.sample = {{ enable = true; {settings} }}; }}"
    )
    return render.host(host, modules=[SAMPLE])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> render.Rendered:
    return sample(tmp_path_factory.mktemp("sample"), "settings.answer = 42;")


def lines(rendered: render.Rendered, unit: str) -> list[str]:
    return rendered.units[unit].splitlines()


def test_a_unit_has_what_the_module_says(rendered: render.Rendered) -> None:
    text = lines(rendered, "sample.service")
    assert text[0] == "[Unit]"
    assert "Requires=sample-first.service" in text
    assert text.index("StartLimitIntervalSec=0") < text.index("[Service]")
    assert 'Environment="SAMPLE=a b"' in text
    assert [line for line in text if line.startswith("ReadWritePaths=")] == [
        "ReadWritePaths=/run/sample",
        "ReadWritePaths=/var/lib/sample",
    ]
    assert text[-2:] == ["[Install]", "WantedBy=multi-user.target"]


def test_a_script_is_an_executable_file(rendered: render.Rendered) -> None:
    (start,) = (x for x in lines(rendered, "sample.service") if x.startswith("ExecStart="))
    path = start.removeprefix("ExecStart=").strip()
    assert path.startswith("/nix/store/")
    assert path.endswith("/bin/sample-start")
    file = rendered.files[path]
    assert file.mode == "0555"
    interpreter, *body = file.text.splitlines()
    assert rendered.links[interpreter.removeprefix("#!")] == "/usr/bin/bash"
    assert "exec cat /etc/sample/sample.json" in body


def test_the_path_of_a_unit_has_the_programs_of_its_packages_only(
    rendered: render.Rendered,
) -> None:
    def programs(unit: str) -> set[str]:
        (path,) = (x for x in lines(rendered, unit) if x.startswith('Environment="PATH='))
        folders = path.removeprefix('Environment="PATH=').rstrip('"').split(":")
        return {p.rpartition("/")[2] for p in rendered.links if p.rpartition("/")[0] in folders}

    assert {"ip", "cat", "sed", "grep", "find", "systemctl"} <= programs("sample.service")
    assert {"ip", "nft", "jq"} & programs("sample-first.service") == set()


def test_a_file_is_made_by_its_command_and_a_change_restarts_the_unit(
    rendered: render.Rendered,
) -> None:
    file = rendered.etc["sample/sample.json"]
    assert (file.text, file.mode, file.user) == ('{"answer":42}', "0444", "root")
    (trigger,) = (
        x for x in lines(rendered, "sample.service") if x.startswith("X-Restart-Triggers=")
    )
    (made,) = derivations.references(rendered.files[trigger.partition("=")[2]].text)
    assert rendered.files[made].text == file.text


def test_a_file_with_a_mode_has_an_owner(rendered: render.Rendered) -> None:
    assert rendered.etc["sample/own"] == render.EtcFile("mine\n", "0400", "sample", "root")


def test_users_groups_and_folders(rendered: render.Rendered) -> None:
    user = rendered.users["sample"]
    assert (user.uid, user.group, user.system, user.shell) == (
        None,
        "sample",
        True,
        "/usr/sbin/nologin",
    )
    assert rendered.users["root"].shell == "/bin/bash"
    assert rendered.groups["sample"] == render.Group(None, [])
    assert "'d' '/run/sample' '0755' 'sample' '-' '-'" in rendered.tmpfiles


def test_commands_and_copied_sources(rendered: render.Rendered) -> None:
    command = rendered.files[rendered.commands["sample"]]
    (source,) = (x for x in derivations.references(command.text) if x.endswith("-module.nix"))
    assert rendered.files[source].text == SAMPLE.read_text(encoding="utf-8")


def test_the_server_has_its_unit_and_its_configuration(rendered: render.Rendered) -> None:
    text = lines(rendered, "redis-sample.service")
    assert "Type=notify" in text
    (config,) = (path for path in rendered.files if path.endswith("-redis.conf"))
    assert "maxmemory 1mb" in rendered.files[config].text.splitlines()
    (prepare,) = (file for path, file in rendered.files.items() if path.endswith("-prep-conf"))
    assert f'include "{config}"' in prepare.text
    assert rendered.sysctl["vm.overcommit_memory"] == "1"


def test_links_replace_enabling(rendered: render.Rendered) -> None:
    assert rendered.unit_links["multi-user.target.wants/sample.service"] == "../sample.service"


def test_sums_are_those_of_the_texts(rendered: render.Rendered) -> None:
    assert set(rendered.unit_sha256) == set(rendered.units)
    for name, text in rendered.units.items():
        assert rendered.unit_sha256[name] == hashlib.sha256(text.encode()).hexdigest()


def test_everything_that_is_named_is_there(rendered: render.Rendered) -> None:
    made = [*rendered.files, *rendered.links]
    texts = [*rendered.units.values(), *(file.text for file in rendered.files.values())]
    without_programs = ("-glibc-locales-2.40", "-glibcLocales-2.40")
    for text in texts:
        for path in derivations.references(text):
            known = any(one == path or one.startswith(f"{path}/") for one in made)
            assert known or path.endswith(without_programs), path


def test_rendering_twice_gives_the_same(rendered: render.Rendered, tmp_path: Path) -> None:
    assert sample(tmp_path, "settings.answer = 42;").as_text() == rendered.as_text()


def test_a_failed_assertion_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(render.HostError) as refused:
        sample(tmp_path, "settings.forbidden = 1;")
    assert refused.value.messages == ["services.sample.settings.forbidden: must not be set"]


def test_a_file_that_its_check_refuses_fails(tmp_path: Path) -> None:
    module = tmp_path / "module.nix"
    text = SAMPLE.read_text(encoding="utf-8").replace("'^{'", "'^no'")
    module.write_text(text, encoding="utf-8")
    host = tmp_path / "host.nix"
    host.write_text("{ services.sample.enable = true; }")
    with pytest.raises(BuildError, match=r"^sample\.json: "):
        render.host(host, modules=[module])


def test_a_package_without_a_place_fails(tmp_path: Path) -> None:
    assert sample(tmp_path, "packages = [ pkgs.jq ];").links
    with pytest.raises(UnknownPackageError, match=r"^statix: "):
        sample(tmp_path, "packages = [ pkgs.statix ];")


# ---- what systemd says ----------------------------------------------------------------------


def test_systemd_has_nothing_to_say(rendered: render.Rendered) -> None:
    assert verify.problems(rendered) == []
    assert verify.dangling(rendered) == []


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ('{ RestrtSec = "1s"; }', "Unknown key 'RestrtSec' in section [Service]"),
        ('{ MemoryMax = "much"; }', "Invalid memory limit 'much'"),
        ('{ ExecStartPre = "/nowhere"; }', "Command /nowhere is not executable"),
        ("{ StartLimitIntervalSec = 0; }", "Unknown key 'StartLimitIntervalSec'"),
    ],
)
def test_systemd_finds_a_planted_fault(tmp_path: Path, planted: str, said: str) -> None:
    found = verify.problems(sample(tmp_path, f"extra = {planted};"))
    assert any(said in line for line in found), found


def test_a_reference_to_no_unit_is_found(tmp_path: Path) -> None:
    host = tmp_path / "host.nix"
    host.write_text(
        '{ services.sample.enable = true; systemd.services.sample.wants = [ "nobody.service" ]; }'
    )
    rendered = render.host(host, modules=[SAMPLE])
    assert verify.dangling(rendered) == ["sample.service: nobody.service"]


def test_without_systemd_the_failure_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert verify.analyzer()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(verify.AnalyzerMissingError, match=r"apt-get install .*systemd"):
        verify.analyzer()


def test_a_derivation_is_read_and_nothing_else() -> None:
    text = (
        'Derive([("out","/nix/store/x-a","","")],[],[],"x86_64-linux","/bin/sh",[],'
        '[("name","a"),("text","\\"1\\"\\n")])'
    )
    assert derivations.parse(text) == derivations.Derivation(
        "a", "/nix/store/x-a", {"name": "a", "text": '"1"\n'}
    )
    with pytest.raises(ValueError, match="not a derivation"):
        derivations.parse("print(1)")


def test_an_unknown_option_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(nix.NixError, match=r"The option `services.sample.enabel' does not exist"):
        sample(tmp_path, "enabel = true;")
