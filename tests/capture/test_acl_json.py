"""acl.json's dump section: every configuration of which the vendor's verdict is known gets that verdict."""

import json
from pathlib import Path

import pytest

from sgsdump.capture.configs.acl_json import Refused, parse

VERDICTS = Path(__file__).parents[1] / "golden" / "ascend" / "dump_config_verdicts.jsonl"
CASES = [json.loads(line) for line in VERDICTS.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["json"][:60] for case in CASES])
def test_the_vendors_verdict(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if case["ret"]:
        with pytest.raises(Refused) as caught:
            parse(case["json"])
        error = caught.value
        assert (error.code, error.item, error.value) == (case["code"], case["item"], case["value"])
        assert case["reason"] in (None, error.reason)
        return
    acl = parse(case["json"])
    assert (acl.need_dump, acl.dump_type) == (case["need_dump"], case["dump_type"])
