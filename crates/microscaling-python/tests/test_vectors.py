"""Test vectors for hardware, and the check of a device."""

import numpy as np
import pytest

import microscaling as ms


def test_a_set_is_an_array():
    cases = ms.vectors("codes", "fp4_e2m1")
    values = cases["value"].astype(np.uint32).view(np.float32)
    np.testing.assert_array_equal(values, ms.Format("mxfp4").values())
    blocks = ms.vectors("blocks", "bfp16ebs8", limit=50)
    assert len(blocks) == 50
    x = blocks["input"].astype(np.uint32).view(np.float32)
    for case, numbers in zip(blocks, x):
        packed = ms.pack(numbers[: case["count"]], "bfp16ebs8")
        assert packed.scales[0] == case["scale"]


def test_check_names_the_rule_of_a_device():
    device = ms.vectors("elements", "fp8_e4m3", rounding="nearest", flush_outputs=True)
    report = ms.check("elements", "fp8_e4m3", device)
    assert report["rules"] == ["ties away from zero", "subnormal outputs flushed to zero (after rounding)"]
    assert report["differ"] > 0 and report["share_unexplained"] == 0
    outputs = np.ascontiguousarray(ms.vectors("elements", "fp8_e4m3")["code"])
    assert ms.check("elements", "fp8_e4m3", outputs)["differ"] == 0


def test_errors():
    for call, message in [
        (lambda: ms.vectors("elements", "fp9"), "fp9"),
        (lambda: ms.vectors("tiles", "fp8_e4m3"), "tiles"),
        (lambda: ms.vectors("codes", "fp8_e4m3", output="x.hex"), "without output"),
        (lambda: ms.check("codes", "fp8_e4m3", np.zeros((3, 3))), "expected one axis"),
        (lambda: ms.check("codes", "fp4_e2m1", ms.vectors("codes", "fp4_e2m1")[:3]), "3 cases, expected 16"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
