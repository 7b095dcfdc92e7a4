"""Every error, setting and metric of the gateway is in its reference page."""

from corral.gateway import errors, figures
from corral.gateway.settings import GatewaySettings
from tests.lint.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "gateway.md"


def test_settings_are_documented() -> None:
    page = PAGE.read_text()
    for name in GatewaySettings.model_fields:
        assert f"`GATEWAY_{name.upper()}`" in page


def test_metrics_are_documented() -> None:
    page = PAGE.read_text()
    for table, end in ((figures.GAUGES, ""), (figures.COUNTERS, "_total")):
        for name, (labels, doc) in table.items():
            assert f"| `gateway_{name}{end}` | {', '.join(labels)} | {doc} |" in page


def test_errors_are_documented() -> None:
    page = PAGE.read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| −32")]
    documented = {
        (int(row[1].replace("−", "-")), reason.strip(" `"))
        for row in rows
        for reason in row[2].split(",")
        if reason.strip()
    }
    found = [
        one
        for one in vars(errors).values()
        if isinstance(one, type)
        and issubclass(one, errors.GatewayError)
        and one is not errors.GatewayError
    ]
    assert documented == {(one.rpc_code, one.code) for one in found}
